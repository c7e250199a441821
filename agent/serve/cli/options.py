"""The options that several commands share."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from retrievers.core.errors import BadRequest

Tenant = Annotated[str | None, typer.Option(help="tenant of the documents (default: the setting TENANT)")]
Principal = Annotated[
    list[str] | None,
    typer.Option(
        "--principal", help="read as this user or group, such as user:7; repeatable (default: read everything)"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout and nothing else")]
Template = Annotated[str | None, typer.Option(help="prompt template (default: answer)")]
BudgetTokens = Annotated[int, typer.Option(help="maximum tokens of passages in the prompt")]
ContextName = Annotated[
    str | None,
    typer.Option("--context", help="text shown per hit: passage, window or section (default: the setting CONTEXT)"),
]

_FILTER_EXAMPLE = '{"type": "eq", "key": "team", "value": "infrastructure"}'

_UNCHANGED = (
    "tenant",
    "collection",
    "per_document",
    "complete",
    "intent",
    "reranker",
    "fusion",
    "lexical_weight",
    "depth",
    "rank_features",
    "now",
    "fallback",
    "min_relevance",
)
"""Options that become arguments of the request unchanged."""


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """The options of `retrieve`, `augment` and `ask`; each field is an option."""

    collection: Annotated[str | None, typer.Option(help="collection to search (default: all)")] = None
    filter: Annotated[str | None, typer.Option(help="filter expression as JSON")] = None
    top_k: Annotated[
        int | None,
        typer.Option(help="number of hits, 1 to 100 (default: 10, or every match if the question asks for all)"),
    ] = None
    per_document: Annotated[
        int | None,
        typer.Option(
            help="maximum hits per document while other documents are relevant (default: the setting PER_DOCUMENT)"
        ),
    ] = None
    complete: Annotated[
        bool | None,
        typer.Option(
            "--complete/--no-complete",
            help="return every document that satisfies the filter, or only the best hits (default: as the question "
            "asks)",
        ),
    ] = None
    sources: Annotated[list[str] | None, typer.Option("--source", help="search only this source; repeatable")] = None
    intent: Annotated[
        str | None,
        typer.Option(help="how to interpret the question: auto, rules, llm or off (default: the setting INTENT)"),
    ] = None
    reranker: Annotated[
        str | None,
        typer.Option(help="none, hybrid, or the reranker of the settings (default: the reranker of the settings)"),
    ] = None
    fusion: Annotated[str | None, typer.Option(help="convex, rrf or weighted_sum (default: the setting FUSION)")] = None
    lexical_weight: Annotated[
        float | None, typer.Option(help="share of full text in convex fusion, 0 to 1 (default: chosen per question)")
    ] = None
    depth: Annotated[
        int | None, typer.Option(help="hits requested from each source, 10 to 1000 (default: the setting DEPTH)")
    ] = None
    rank_features: Annotated[
        str | None,
        typer.Option(
            help="other ranking features, such as recency:created/365=0.1 (default: the setting RANK_FEATURES)"
        ),
    ] = None
    now: Annotated[
        str | None, typer.Option(help="answer as of this date or time, ISO 8601 (default: the current time)")
    ] = None
    fallback: Annotated[
        str | None,
        typer.Option(help="ordered_backoff, do_not_route, route_to_all or fail (default: the setting FALLBACK)"),
    ] = None
    min_relevance: Annotated[
        float | None,
        typer.Option(help="leave out hits of a lower relevance, 0 to 1 (default: the setting MIN_RELEVANCE)"),
    ] = None
    tenant: Tenant = None
    principal: Principal = None
    user: Annotated[
        str | None, typer.Option(help="user who asks, for records, traces, advisors and routes; gives no access")
    ] = None
    metadata: Annotated[
        str | None, typer.Option(help="other facts about the request, a JSON object; gives no access")
    ] = None
    conversation: Annotated[str | None, typer.Option(help="id of a conversation; its turns are remembered")] = None
    advisor: Annotated[
        list[str] | None,
        typer.Option(help='advisor with parameters, {"name": "guard", "words": [...]}; repeatable'),
    ] = None

    def request_arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of a request to the service.

        Raises:
            BadRequest: a value is not JSON or not an object; the message says which.
        """
        optional = {
            "top_k": self.top_k,
            "user": self.user,
            "metadata": _object("--metadata", self.metadata, '{"app": "intranet"}'),
            "conversation": self.conversation,
            "advisors": [_advisor(text) for text in self.advisor or ()] or None,
        }
        return {
            **{name: getattr(self, name) for name in _UNCHANGED},
            **{name: value for name, value in optional.items() if value is not None},
            "principals": principals_or_all(self.principal),
            "filter": _object("--filter", self.filter, _FILTER_EXAMPLE),
            "sources": tuple(self.sources) if self.sources else None,
        }


def with_question_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of `QuestionOptions` in place of its parameter `options`.

    Typer reads the options from the signature, so the signature of the returned function lists them one by one.
    """
    names = [field.name for field in fields(QuestionOptions)]
    types = get_type_hints(QuestionOptions, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name != "options":
            parameters.append(parameter)
            continue
        for field in fields(QuestionOptions):
            parameters.append(parameter.replace(name=field.name, annotation=types[field.name], default=field.default))

    @wraps(command)
    def expanded(**given: Any) -> int:
        options = QuestionOptions(**{name: given.pop(name) for name in names})
        return command(options=options, **given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def principals_or_all(given: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the principals to read as; without any, "*", which reads everything.

    That is the default, because anyone with access to the database may read everything.
    """
    return tuple(given) if given else ("*",)


def _advisor(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return {"name": text}
    return _object("--advisor", text, '{"name": "guard", "words": ["merger"]}')


def _object(where: str, text: str | None, example: str) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number with thousands of digits also raises ValueError
        reason = str(error)[:200] if isinstance(error, ValueError) else "nested too deeply"
        raise BadRequest(f"{where} is not valid JSON: {reason}", where=where) from None
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object like {example}", where=where)
    return value
