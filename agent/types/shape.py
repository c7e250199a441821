"""Base of the request and result types, and a conversation's messages."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Base of all types here: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Message(Shape):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=100_000)]
