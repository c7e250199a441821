"""The intent read from a question."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agent.types.shape import Shape


class SourceChoice(Shape):
    name: str
    confidence: float
    reason: str


class Rejected(Shape):
    """A value, name or condition that was asked for and does not exist, with the valid ones."""

    what: str
    reason: str
    valid: tuple[str, ...] = ()


class Missing(Shape):
    """A source or collection that the reading chose but the request cannot use, or a choice that was never made."""

    kind: Literal["source", "collection", "choice"]
    name: str


class Intent(Shape):
    """What the question asks for, checked against the collections and fields that exist.

    Attributes:
        missing: sources and collections that the reading chose but that do not exist for this request. The fallback
            strategy says what the router does about them.
        wants: what the answer consists of: the best passages, a list of documents, or all documents.
        scope: the collections chosen from several, each with its confidence and reason. Empty if the request named a
            collection or all were searched.
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
