"""What the doctor says of one thing."""

from dataclasses import dataclass

from retrievers.core.secrets import without_credentials


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `mend` says what to do, also for what merely should be better."""

    name: str
    ok: bool
    found: str
    mend: str = ""

    def __post_init__(self) -> None:
        for name in ("found", "mend"):
            object.__setattr__(self, name, without_credentials(getattr(self, name)))
