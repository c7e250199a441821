"""The intent read from a question."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agent.types.base import ApiModel


class SourceChoice(ApiModel):
    name: str
    confidence: float
    reason: str


class Rejected(ApiModel):
    """A value, name or condition of the question that does not exist, with the reason and the valid alternatives."""

    what: str
    reason: str
    valid: tuple[str, ...] = ()


class Missing(ApiModel):
    """A source or collection that was chosen for the question but that the request cannot use.

    Attributes:
        kind: `choice` if a model had to choose the sources and did not answer.
        name: of the source or collection; "model" for `choice`.
    """

    kind: Literal["source", "collection", "choice"]
    name: str


class Intent(ApiModel):
    """What the question asks for, checked against the collections and fields that exist.

    Attributes:
        kind: `retrieve` passages, calculate an `aggregate` over metadata, or `none` if nothing has to be searched.
        question: the question, completed with what earlier turns say.
        searches: the texts to search for.
        filter: conditions that every hit must satisfy: the caller's and those that the question states.
        soft_filter: conditions that the question only suggests; hits that satisfy them are preferred.
        by: who decided: rules, a model, or the caller alone.
        rejected: what the question asks for and does not exist.
        wants: what the answer consists of: the best passages, a list of documents, or all documents.
        scope: the collections chosen from several, each with its confidence and reason. Empty if the request named a
            collection or all were searched.
        missing: sources and collections that were chosen but that the request cannot use. `Request.fallback` decides
            what is searched instead.
    """

    kind: Literal["retrieve", "aggregate", "none"] = "retrieve"
    question: str
    language: str
    searches: tuple[str, ...]
    collections: tuple[str, ...]
    filter: dict[str, Any] | None = None
    soft_filter: dict[str, Any] | None = None
    sources: tuple[SourceChoice, ...] = ()
    aggregate: dict[str, Any] | None = None
    by: Literal["rules", "llm", "caller"] = "caller"
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    rejected: tuple[Rejected, ...] = ()
    wants: Literal["passages", "documents", "all"] = "passages"
    scope: tuple[SourceChoice, ...] = ()
    missing: Annotated[tuple[Missing, ...], Field(exclude_if=lambda value: not value)] = ()
