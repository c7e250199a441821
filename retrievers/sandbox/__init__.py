"""Read untrusted files in processes with limits. The worst that a hostile file can do is to end its process."""

from retrievers.sandbox.limits import ProcessLimits
from retrievers.sandbox.pool import MOST_REQUESTS, CancelCheck, Sandbox, never_cancelled

__all__ = ["MOST_REQUESTS", "CancelCheck", "ProcessLimits", "Sandbox", "never_cancelled"]
