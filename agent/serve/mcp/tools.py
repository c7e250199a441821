"""The tools offered to models: their purpose, arguments and answers, independent of any protocol."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from agent.errors import readable
from agent.options.fusion import LEAST_DEPTH, MOST_DEPTH, Method
from agent.options.rank_features import FORM
from agent.retrieval.highlight import Highlighter
from agent.serve.deadline import left_s
from agent.types import (
    MAX_COMPLETE,
    MAX_TOP_K,
    Advisors,
    AnswerSentence,
    Context,
    Conversation,
    Metadata,
    PerDocument,
    Prompt,
    Result,
    Shape,
    Text,
    UserName,
)
from retrievers.core.errors import BadRequest, UnknownCollection, listing
from retrievers.core.filters import OPERATORS
from retrievers.text.visible import prompt_text, prompt_value

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer

MOST_DESCRIBED = 20
"""Number of collections described with their fields, largest first; the others get only name and size."""

Query = Annotated[
    Text,
    Field(
        description="a self-contained question or search text, in the words of the person who asks; conditions that "
        'it states ("by Guido, after 2014") are read and applied as filters'
    ),
]
CollectionName = Annotated[str, Field(min_length=1, max_length=128)] | None
FilterObject = Annotated[
    dict[str, Any] | None,
    Field(
        description='a condition on metadata: {"type": OPERATOR, "key": FIELD, "value": VALUE}, where OPERATOR is '
        f"{', '.join(OPERATORS)}; combined by "
        '{"type": "and" or "or", "filters": [...]} and {"type": "not", "filter": {...}}. '
        "Dates are ISO 8601. describe_collections tells the fields and their values"
    ),
]
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K)]


class RankingArguments(Shape):
    """Ranking options that override the settings."""

    reranker: Annotated[
        str | None, Field(max_length=200, description="none, hybrid, or the reranker of the settings (the default)")
    ] = None
    fusion: Annotated[Method | None, Field(description="how rankings are merged: convex, rrf or weighted_sum")] = None
    lexical_weight: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Field(description="share of full text in convex, a number from 0 to 1; chosen per question by default"),
    ] = None
    depth: Annotated[
        Annotated[int, Field(ge=LEAST_DEPTH, le=MOST_DEPTH)] | None,
        Field(description=f"hits requested from each source, a whole number from {LEAST_DEPTH} to {MOST_DEPTH}"),
    ] = None
    rank_features: Annotated[
        str | None, Field(max_length=500, description=f"other ranking features, separated by commas: {FORM}")
    ] = None


class AskedByArguments(Shape):
    """Arguments for the application that makes the call; models leave them out."""

    user: Annotated[
        UserName | None, Field(description="the user who asks, as the application names them; models leave it out")
    ] = None
    metadata: Annotated[
        Metadata | None, Field(description="facts of the application about the request; models leave it out")
    ] = None
    conversation: Annotated[
        Conversation | None,
        Field(description="id of a conversation of the application; its turns are remembered; models leave it out"),
    ] = None
    advisors: Annotated[
        Advisors | None, Field(description='advisors with parameters, such as {"name": "guard", "words": ["merger"]}')
    ] = None


class SearchArguments(RankingArguments, AskedByArguments):
    """Arguments of `search_knowledge`."""

    query: Query
    collection: Annotated[CollectionName, Field(description="name of one collection; all by default")] = None
    filter: FilterObject = None
    top_k: Annotated[TopK, Field(description=f"how many passages, a whole number from 1 to {MAX_TOP_K}")] = 5
    min_relevance: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Field(description="leave out passages of a lower relevance, a number from 0 to 1"),
    ] = None
    per_document: Annotated[
        PerDocument | None,
        Field(
            description="most passages of one document while others are relevant, a whole number from 1 to "
            f"{MAX_TOP_K}; by default the number in the settings"
        ),
    ] = None
    complete: Annotated[
        bool | None,
        Field(
            description="true lists every document that satisfies the conditions, whatever top_k says, at most "
            f"{MAX_COMPLETE}; `total` says how many there are, `complete` whether all are there"
        ),
    ] = None


class AnswerArguments(SearchArguments):
    """Arguments of `answer_with_citations`."""

    top_k: Annotated[TopK, Field(description=f"most passages to answer from, a whole number from 1 to {MAX_TOP_K}")] = (
        10
    )
    context: Annotated[
        Context | None,
        Field(description="text shown per hit: passage, window (with the neighbouring passages) or section"),
    ] = None
    budget_tokens: Annotated[
        int,
        Field(ge=50, le=1_000_000, description="most tokens of passages, a whole number from 50 to 1000000"),
    ] = 3000


class NoArguments(Shape):
    """Arguments of `describe_collections`."""


class CitedAnswer(Prompt):
    """A prompt with numbered citations and, if the service has a model, the answer.

    Attributes:
        answer: None without a model; the caller then answers from the prompt.
        sentences: of the answer, with the passages each cites and whether they support it.
        faithfulness: share of the sentences with a claim that are supported.
        model: the model that wrote the answer.
    """

    answer: str | None = None
    sentences: tuple[AnswerSentence, ...] = ()
    faithfulness: float | None = None
    model: str | None = None


class CollectionField(Shape):
    """A metadata field usable in filters, with statistics of its values."""

    name: str
    type: str
    item: str
    separator: str | None
    declared: bool
    description: str
    unit: str | None
    derived_unit: str | None
    names: tuple[str, ...]
    documents: int
    distinct: int
    min: str | float | None
    max: str | float | None
    top: tuple[tuple[Any, int], ...]
    aliases: dict[str, tuple[str, ...]]


class DescribedCollection(Shape):
    """A collection. Fields that are None (beyond the largest `MOST_DESCRIBED`) can be read from its resource."""

    name: str
    documents: int
    description: str | None = None
    languages: dict[str, int] | None = None
    fields: tuple[CollectionField, ...] | None = None


class DescribedCollections(Shape):
    """Every collection the caller may search, largest first."""

    collections: tuple[DescribedCollection, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        answer: called with the service, the viewer, the validated arguments and the seconds the call has waited.
        searches: whether the tool searches documents, so that its description lists the collections.
    """

    title: str
    description: str
    arguments: type[Shape]
    output: type[Shape]
    answer: Callable[["Service", "Viewer", dict[str, Any], float], Awaitable[Shape]]
    searches: bool = True

    async def call(
        self, service: "Service", viewer: "Viewer", given: Mapping[str, Any], *, waited_s: float = 0.0
    ) -> Shape:
        """Validate the arguments and return the answer.

        Args:
            waited_s: seconds already used of the call's time limit.
        Raises:
            BadRequest: an argument is invalid; the message says what is valid.
            Unavailable: the database or every source failed.
        """
        return await self.answer(service, viewer, read_arguments(self.arguments, given), waited_s)


def read_arguments(shape: type[Shape], given: Mapping[str, Any]) -> dict[str, Any]:
    """Validate arguments and add the defaults. Null counts as left out: some models must send every argument.

    Raises:
        BadRequest: an argument is unknown, missing or invalid; the message says what is valid.
    """
    said = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(said) - set(shape.model_fields))
    if unknown:
        raise BadRequest(
            f"there is no argument {listing(unknown)}; there are: {listing(shape.model_fields)}",
            where=unknown[0],
            valid=shape.model_fields,
        )
    try:
        read = shape.model_validate(said)
        # Leave out arguments without a value: the request's own default applies.
        return {name: value for name, value in read if value is not None}
    except ValidationError as error:
        problem = readable(error)
        wanted = shape.model_fields[problem.where.split(".")[0]].description
        raise BadRequest(f"{problem}; expected: {wanted}", where=problem.where) from None


def for_a_model(answer: Shape) -> dict[str, Any]:
    """Return a tool's answer as JSON values with the strings cleaned as in prompts.

    `highlights` and the positions of `sentences` refer to the cleaned texts, `start` and `end` of hits and citations to
    the stored document.
    """
    shown: dict[str, Any] = prompt_value(answer.model_dump(mode="json"))
    if isinstance(answer, Result):
        mark = Highlighter(answer.intent.question, answer.intent.language)
        for hit, stored in zip(shown["hits"], answer.hits, strict=True):
            if hit["text"] != stored.text:
                hit["highlights"] = [list(place) for place in mark(hit["text"])]
    if isinstance(answer, CitedAnswer) and answer.answer is not None and shown["answer"] != answer.answer:
        places = _shown_places(answer.answer, {edge for one in answer.sentences for edge in (one.start, one.end)})
        for sentence in shown["sentences"]:
            for edge in ("start", "end"):
                sentence[edge] = min(places[sentence[edge]], len(shown["answer"]))
    return shown


def _shown_places(text: str, places: set[int]) -> dict[int, int]:
    """Map positions in a text to positions in the text as a prompt shows it.

    The text between two positions is cleaned separately, which keeps the work linear. A position inside a control token
    or next to hidden characters can be off by their length.
    """
    ordered = sorted(places | {0})
    lengths = (len(prompt_text(text[start:end])) for start, end in pairwise(ordered))
    return dict(zip(ordered, accumulate(lengths, initial=0), strict=True))


async def _search(service: "Service", viewer: "Viewer", arguments: dict[str, Any], waited_s: float) -> Result:
    timeout_s = left_s(None, service.settings, waited_s, by_model=False)
    return await service.retrieve(tenant=viewer, timeout_s=timeout_s, **arguments)


async def _answer(service: "Service", viewer: "Viewer", arguments: dict[str, Any], waited_s: float) -> CitedAnswer:
    by_model = service.answerer.model is not None
    write = service.ask if by_model else service.augment
    timeout_s = left_s(None, service.settings, waited_s, by_model=by_model)
    made: Prompt = await write(tenant=viewer, timeout_s=timeout_s, **arguments)
    held = {name: getattr(made, name) for name in CitedAnswer.model_fields if hasattr(made, name)}
    return CitedAnswer(**held | ({"answer": made.refusal} if made.refusal else {}))


async def sizes(service: "Service", viewer: "Viewer") -> dict[str, int]:
    """Return the number of documents of each collection the viewer may search, largest first."""
    documents: Counter[str] = Counter()
    for one in await service.collections(tenant=viewer):
        documents[one.name] += one.documents
    return dict(documents.most_common())


async def _describe(
    service: "Service", viewer: "Viewer", arguments: dict[str, Any], waited_s: float
) -> DescribedCollections:
    found: list[dict[str, Any]] = []
    for name, documents in (await sizes(service, viewer)).items():
        summary: dict[str, Any] = {"name": name, "documents": documents}
        if len(found) < MOST_DESCRIBED:
            # A collection deleted meanwhile has nothing to describe.
            with suppress(UnknownCollection):
                known = await service.describe(name, tenant=viewer)
                summary |= {key: known[key] for key in ("description", "languages", "fields")}
        found.append(summary)
    return DescribedCollections.model_validate({"collections": found})


TOOLS: Mapping[str, Tool] = {
    "search_knowledge": Tool(
        title="Search the documents",
        description="Finds passages in the document collections by meaning, by words and by metadata, and answers with "
        "them ranked, each with its document, URL, metadata and score. Use it for facts, names, codes or wording that "
        "the documents may hold; `table` has the figures when the question asks to count, rank or group documents.",
        arguments=SearchArguments,
        output=Result,
        answer=_search,
    ),
    "answer_with_citations": Tool(
        title="Answer from the documents",
        description="Answers a question from the document collections with numbered citations: `prompt` holds the "
        "passages, `citations` what each number stands for, `answer` the answer where the service has a model of its "
        "own; where `answer` is null, answer from `prompt` and cite its numbers. Use search_knowledge instead to look "
        "at the passages themselves.",
        arguments=AnswerArguments,
        output=CitedAnswer,
        answer=_answer,
    ),
    "describe_collections": Tool(
        title="Describe the collections",
        description="Tells which document collections there are, how large each is, and the metadata fields that a "
        "filter may name, with their types, ranges and commonest values. Use it before writing a filter.",
        arguments=NoArguments,
        output=DescribedCollections,
        answer=_describe,
        searches=False,
    ),
}
