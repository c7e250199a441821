"""The result of one check of `signalbox doctor`."""

from dataclasses import dataclass

from retrievers.core.credentials import mask_credentials


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. `mend` says what to do; it may suggest an improvement even if `ok` is true."""

    name: str
    ok: bool
    found: str
    mend: str = ""

    def __post_init__(self) -> None:
        for name in ("found", "mend"):
            object.__setattr__(self, name, mask_credentials(getattr(self, name)))
