"""Arguments of the tools that a model or an application calls, and their validation."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from agent.errors import to_bad_request
from agent.options.fusion import LEAST_DEPTH, MOST_DEPTH, FusionMethod
from agent.options.rank_features import FORM
from agent.serve.request_limits import find_oversized_part
from agent.types import (
    LEAST_TIMEOUT_S,
    MAX_COMPLETE,
    MAX_TOP_K,
    Advisors,
    ApiModel,
    Context,
    Conversation,
    Metadata,
    Moment,
    PerDocument,
    Principals,
    Text,
    UserName,
)
from retrievers.core.errors import BadRequest, join_names
from retrievers.core.filters import OPERATORS
from retrievers.core.metadata import shorten_text

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


class RankingArguments(ApiModel):
    """Ranking options that override the settings."""

    reranker: Annotated[
        str | None, Field(max_length=200, description="none, hybrid, or the reranker of the settings (the default)")
    ] = None
    fusion: Annotated[
        FusionMethod | None, Field(description="how rankings are merged: convex, rrf or weighted_sum")
    ] = None
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


class ApplicationArguments(ApiModel):
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
    principals: Annotated[
        Principals | None,
        Field(description='users and groups to read as, such as ["user:7", "group:legal"]; models leave it out'),
    ] = None


class InterpretationArguments(ApiModel):
    """How the question is read, and where its answer is searched."""

    sources: Annotated[
        Annotated[tuple[str, ...], Field(min_length=1, max_length=16)] | None,
        Field(description="names of the only sources to search, a list; chosen by the question by default"),
    ] = None
    now: Annotated[
        Moment | None,
        Field(description='day or time that "last year" counts from, such as 2026-11-20; the present by default'),
    ] = None
    ignore: Annotated[
        Annotated[tuple[dict[str, Any], ...], Field(max_length=32)],
        Field(description="conditions that must not be read from the query, as an earlier `intent.filter` has them"),
    ] = ()
    intent: Annotated[
        Literal["auto", "rules", "llm", "off"] | None,
        Field(description="how the query is read: auto, rules, llm, or off to search for its words as they are"),
    ] = None
    fallback: Annotated[
        Literal["ordered_backoff", "do_not_route", "route_to_all", "fail"] | None,
        Field(description="what follows when no source fits: ordered_backoff, do_not_route, route_to_all or fail"),
    ] = None
    timeout_s: Annotated[
        Annotated[float, Field(ge=LEAST_TIMEOUT_S, le=120)] | None,
        Field(description=f"most seconds for the call, a number from {LEAST_TIMEOUT_S} to 120"),
    ] = None


class SearchArguments(RankingArguments, InterpretationArguments, ApplicationArguments):
    """Arguments of `search_knowledge`."""

    query: Query
    collection: Annotated[CollectionName, Field(description="name of one collection; all by default")] = None
    filter: FilterObject = None
    top_k: Annotated[TopK, Field(description=f"how many passages, a whole number from 1 to {MAX_TOP_K}")] = 5
    page: Annotated[
        Annotated[int, Field(ge=1, le=1000)],
        Field(description="which page of passages, a whole number from 1 to 1000; page 2 follows page 1"),
    ] = 1
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
    template: Annotated[
        Annotated[str, Field(max_length=100)] | None,
        Field(description="name of an answer template, such as answer/v1; the newest by default"),
    ] = None


class NoArguments(ApiModel):
    """Arguments of `describe_collections`."""


def read_arguments(arguments_model: type[ApiModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated arguments with the defaults. Null counts as left out: some models must send every argument.

    An argument without a value is not in the result: then the default of the request applies.

    Raises:
        BadRequest: an argument is unknown, missing, too large or invalid; the message says what is valid.
    """
    if (oversized := find_oversized_part(given)) is not None:
        path, detail = oversized
        where = ".".join(map(shorten_text, path)) or "arguments"
        raise BadRequest(f"{where}: {detail}", where=where)
    said = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(said) - set(arguments_model.model_fields))
    if unknown:
        raise BadRequest(
            f"there is no argument {join_names(unknown)}; there are: {join_names(arguments_model.model_fields)}",
            where=unknown[0],
            valid=arguments_model.model_fields,
        )
    try:
        read = arguments_model.model_validate(said)
        return {name: value for name, value in read if value is not None}
    except ValidationError as error:
        problem = to_bad_request(error, said)
        wanted = arguments_model.model_fields[problem.where.split(".")[0]].description
        raise BadRequest(f"{problem}; expected: {wanted}", where=problem.where) from None
