"""The texts on which the model is calibrated and checked."""

CALIBRATION_TEXTS = (
    "How do I retry a failed request with exponential backoff?",
    "where is the connection pool configured",
    "hello",
    "The scheduler keeps a heap of pending jobs ordered by their next run time. A worker takes the first job whose "
    "time has come, marks it as running, and puts it back with a new time once it has finished; a job that fails is "
    "tried again after a delay that doubles each time, up to one hour.",
    'def read_config(path: str) -> dict[str, object]:\n    """Return the parsed settings, or the defaults."""\n'
    '    try:\n        with open(path, encoding="utf-8") as handle:\n            return json.load(handle)\n'
    "    except FileNotFoundError:\n        return dict(DEFAULTS)\n",
    "Traceback (most recent call last):\n  File 'server.py', line 210, in handle\n    rows = cursor.fetchmany(64)\n"
    "OperationalError: database is locked (timeout after 5.0 s, 3 retries)",
    "# Installation\n\nInstall the package with `pip install example`, then run `example init` in the project folder. "
    "Requires Python 3.11 or newer. License: Apache-2.0. Classifier: Development Status :: 4 - Beta",
    "Paris is the capital and largest city of France, with an estimated population of about two million residents in "
    "an area of more than 105 square kilometres; since the 17th century it has been one of the world's major centres "
    "of finance, diplomacy, commerce, culture, fashion, and gastronomy.",
    "2024-03-18T09:41:07Z WARN cache: evicted 1284 entries (oldest 3600 s), hit ratio 0.87, memory 512 MiB of 640 MiB",
    "SELECT u.id, count(*) AS n FROM users AS u JOIN orders AS o ON o.user_id = u.id WHERE o.total > 100 GROUP BY u.id "
    "HAVING count(*) >= 3 ORDER BY n DESC LIMIT 20;",
    "Thanks for the review! I have split the change in two: the first part only renames the field, the second one adds "
    "the migration. Tests pass locally, but the nightly build still fails on Windows because of the path separator.",
    '{"name": "example", "version": "1.2.0", "dependencies": {"left": "^2.0.1", "right": "~0.9"}, "private": true}',
    "Water boils at a lower temperature on a mountain, since the air pressure is lower there; that is why pasta takes "
    "longer to cook, and why recipes for high places ask for more time or for a pressure cooker.",
    "The garbage collector runs when the number of allocations minus the number of deallocations exceeds a threshold. "
    "Objects that survive a collection move to an older generation, which is examined less often.",
    "tokens, embeddings, cosine similarity, approximate nearest neighbours, inverted index, BM25, reranking",
    "Der Zug nach München fährt heute von Gleis 7. Le train pour Paris partira à 8 h 30. 東京は日本の首都です。",
)


_PROSE = (
    "An index maps each term to the list of documents that contain it. At query time the lists of the query's terms "
    "are merged, each document receives a score from the frequency and the rarity of the terms, and the best ones are "
    "kept in a small heap. A vector index answers another question: which documents lie near the query in a space "
    "learnt from pairs of similar sentences, whether or not they share a word with it. "
)


CHECK_TEXTS = (
    "hi",
    "what does the cache evict first",
    "rate limit retry with backoff",
    "Why is the sky blue?",
    _PROSE,
    "for row in reader:\n    total[row['country']] += float(row['amount'] or 0)\nprint(sorted(total.items()))",
    "The pump must be switched off and cooled for ten minutes before the filter is opened; rinse it in clear water, "
    "let it dry, and write the date in the log book. " + _PROSE,
    _PROSE * 6,
)
