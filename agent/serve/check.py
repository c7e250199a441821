"""What the doctor says of one thing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `mend` says what to do, also for what merely should be better."""

    name: str
    ok: bool
    found: str
    mend: str = ""
