"""Read untrusted files in processes with limits, so that a hostile file can end its process but do nothing more."""

from retrievers.sandbox.limits import Limits
from retrievers.sandbox.pool import MOST_REQUESTS, Sandbox, Stopped, never

__all__ = ["MOST_REQUESTS", "Limits", "Sandbox", "Stopped", "never"]
