"""Reading files of strangers in processes with limits, which a hostile file can end and nothing more."""

from retrievers.sandbox.limits import ProcessLimits
from retrievers.sandbox.pool import MOST_REQUESTS, Sandbox, Stopped, never

__all__ = ["MOST_REQUESTS", "ProcessLimits", "Sandbox", "Stopped", "never"]
