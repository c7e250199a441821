"""Read untrusted files in processes with limits. The worst that a hostile file can do is to end its process."""

from retrievers.sandbox.limits import ProcessLimits
from retrievers.sandbox.pool import MOST_REQUESTS, Sandbox, Stopped, never

__all__ = ["MOST_REQUESTS", "ProcessLimits", "Sandbox", "Stopped", "never"]
