"""Schedules of syncs: the tables `[sync.NAME]` of the settings file."""

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator

from retrievers.ingest.clean import plain_line

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EVERY = re.compile(r"([1-9][0-9]{0,5})([smhd])")


class ScheduledSync(BaseModel):
    """A table `[sync.NAME]` of the settings file: a source that a collection follows."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    source: str = Field(min_length=1, repr=False, description="the source, written as for `signalbox sync`")
    collection: str = Field(min_length=1, max_length=128, description="collection that follows the source")
    every: str = Field(description="time between two runs, such as 30s, 15m, 2h or 1d")
    tenant: str | None = Field(
        None, min_length=1, max_length=128, description="tenant of the collection; TENANT when unset"
    )
    table: str | None = Field(None, description="table of a database, with or without its schema")
    query: str | None = Field(None, description="SELECT of a database, instead of a table")
    updated_at: str | None = Field(None, description="column of a database that changes whenever a row changes")

    @field_validator("every")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        if not _EVERY.fullmatch(value):
            raise ValueError(f'"{plain_line(value, 20)}" is not a duration; write it as 30s, 15m, 2h or 1d')
        return value

    @property
    def every_s(self) -> float:
        """Seconds from one run to the next."""
        found = _EVERY.fullmatch(self.every)
        assert found is not None
        return float(int(found[1]) * _UNITS_S[found[2]])
