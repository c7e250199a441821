"""The tools offered to models: their purpose, arguments and answers, independent of any protocol."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from agent.retrieval.highlight import Highlighter
from agent.serve.deadline import remaining_timeout_s
from agent.serve.mcp.arguments import AnswerArguments, NoArguments, SearchArguments, read_arguments
from agent.types import AnswerSentence, ApiModel, Prompt, Result
from retrievers.core.errors import UnknownCollection
from retrievers.text.prompt_sanitising import sanitise_prompt_text, sanitise_prompt_value

if TYPE_CHECKING:
    from agent.serve.authentication import Caller
    from agent.service.service import Service
    from retrievers.core.types import Viewer

MOST_DESCRIBED = 20
"""Number of collections described with their fields, largest first; the others get only name and size."""


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


class CollectionField(ApiModel):
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


class DescribedCollection(ApiModel):
    """A collection. Fields that are None (beyond the largest `MOST_DESCRIBED`) can be read from its resource."""

    name: str
    documents: int
    description: str | None = None
    languages: dict[str, int] | None = None
    fields: tuple[CollectionField, ...] | None = None


class DescribedCollections(ApiModel):
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
    arguments: type[ApiModel]
    output: type[ApiModel]
    answer: Callable[["Service", "Viewer", dict[str, Any], float], Awaitable[ApiModel]]
    searches: bool = True

    async def call(
        self, service: "Service", caller: "Caller", given: Mapping[str, Any], *, waited_s: float = 0.0
    ) -> ApiModel:
        """Validate the arguments and return the answer.

        Args:
            waited_s: seconds already used of the call's time limit.
        Raises:
            BadRequest: an argument is invalid; the message says what is valid.
            Forbidden: the caller may not read as the principals of the arguments.
            Unavailable: the database or every source failed.
        """
        arguments = read_arguments(self.arguments, given)
        viewer = caller.on_behalf_of(arguments.pop("principals", None)).viewer
        return await self.answer(service, viewer, arguments, waited_s)


def prompt_safe_answer(answer: ApiModel) -> dict[str, Any]:
    """Return a tool's answer as JSON values with the strings cleaned as in prompts.

    `highlights` and the positions of `sentences` refer to the cleaned texts, `start` and `end` of hits and citations to
    the stored document.
    """
    shown: dict[str, Any] = sanitise_prompt_value(answer.model_dump(mode="json"))
    if isinstance(answer, Result):
        mark = Highlighter(answer.intent.question, answer.intent.language)
        for hit, stored in zip(shown["hits"], answer.hits, strict=True):
            if hit["text"] != stored.text:
                hit["highlights"] = [list(place) for place in mark(hit["text"])]
    if isinstance(answer, CitedAnswer) and answer.answer is not None and shown["answer"] != answer.answer:
        places = _cleaned_positions(answer.answer, {edge for one in answer.sentences for edge in (one.start, one.end)})
        for sentence in shown["sentences"]:
            for edge in ("start", "end"):
                sentence[edge] = min(places[sentence[edge]], len(shown["answer"]))
    return shown


def _cleaned_positions(text: str, places: set[int]) -> dict[int, int]:
    """Map positions in a text to positions in the text as a prompt shows it.

    The text between two positions is cleaned separately, which keeps the work linear. A position inside a control token
    or next to hidden characters can be off by their length.
    """
    ordered = sorted(places | {0})
    lengths = (len(sanitise_prompt_text(text[start:end])) for start, end in pairwise(ordered))
    return dict(zip(ordered, accumulate(lengths, initial=0), strict=True))


async def _search(service: "Service", viewer: "Viewer", arguments: dict[str, Any], waited_s: float) -> Result:
    timeout_s = remaining_timeout_s(arguments.pop("timeout_s", None), service.settings, waited_s, by_model=False)
    return await service.retrieve(tenant=viewer, timeout_s=timeout_s, **arguments)


async def _answer(service: "Service", viewer: "Viewer", arguments: dict[str, Any], waited_s: float) -> CitedAnswer:
    by_model = service.answerer.model is not None
    write = service.ask if by_model else service.augment
    timeout_s = remaining_timeout_s(arguments.pop("timeout_s", None), service.settings, waited_s, by_model=by_model)
    made: Prompt = await write(tenant=viewer, timeout_s=timeout_s, **arguments)
    held = {name: getattr(made, name) for name in CitedAnswer.model_fields if hasattr(made, name)}
    return CitedAnswer(**held | ({"answer": made.refusal} if made.refusal else {}))


async def collection_sizes(service: "Service", viewer: "Viewer") -> dict[str, int]:
    """Return {collection: number of documents} of the collections the viewer may search, largest first."""
    documents: Counter[str] = Counter()
    for one in await service.collections(tenant=viewer):
        documents[one.name] += one.documents
    return dict(documents.most_common())


async def _describe(
    service: "Service", viewer: "Viewer", arguments: dict[str, Any], waited_s: float
) -> DescribedCollections:
    found: list[dict[str, Any]] = []
    for name, documents in (await collection_sizes(service, viewer)).items():
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
