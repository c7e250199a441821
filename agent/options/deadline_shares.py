"""How the time of a request is split between its stages; each number is a share in (0, 1].

`..._BY` is a point of the request's time (0 is its arrival, 1 its deadline). The others are shares of the time that is
left when the step begins.
"""

# Reading the question.
COLLECTION_CHOICE = 0.2
READING_LOOKUP = 0.1
"""Each optional lookup of words in the database."""
VALUE_LOOKUP = 0.2
"""Looking up values in the documents that the caller's filter allows."""
RULES_BY = 0.5
"""After this point a question that the rules have not read yet is searched as it is."""
MODEL_CALLS_BY = 0.75
"""Point of the reading's own time by which a model must have answered, for the reading, SQL and query transformers."""

# Searching.
LEAST_SOURCE = 0.4
"""Minimum share of the setting `timeout_s` that a source has left after the slowest reading."""
JOIN_MODEL_BY = 0.8
"""By this point the model's reading must be there, or the rules' reading stands."""
SEARCH_BY = 0.9
JUDGEMENT = 0.8
"""Share of a further round for the model's judgement; the rest is for the searches that follow it."""
LEAST_SECOND_SEARCH = 0.5
"""Minimum share of the request's time that must be left for a search beyond the chosen collections."""

# Ranking.
FEEDBACK_BY = 0.95
RELEVANCE_BY = 0.95
RERANKING = 0.4

# Answering.
TOOL_SEARCHES_BY = 0.75
"""Point of the answer's time by which the last search that a model asks for must begin."""
TOOL_SEARCH = 0.5
ADVISOR_STORAGE = 0.1
"""Maximum share of the request's time that an advisor waits for its storage."""
