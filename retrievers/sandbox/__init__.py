"""Read untrusted files in processes with limits, so that a hostile file can end its process but do nothing more."""

from retrievers.sandbox.limits import ProcessLimits
from retrievers.sandbox.pool import MOST_REQUESTS, Sandbox, Stopped, never

__all__ = ["MOST_REQUESTS", "ProcessLimits", "Sandbox", "Stopped", "never"]
