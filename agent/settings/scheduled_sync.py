"""Schedules of syncs: the tables `[sync.NAME]` of the settings file."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent.options.durations import read_duration


class ScheduledSync(BaseModel):
    """A table `[sync.NAME]` of the settings file: a source, and the collection that is regularly made equal to it."""

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
        read_duration(value)
        return value

    @property
    def every_s(self) -> float:
        """Seconds from one run to the next."""
        return read_duration(self.every)
