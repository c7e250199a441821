"""Reading files of strangers in processes with limits, which a hostile file can end and nothing more."""

from retrievers.sandbox.limits import Limits
from retrievers.sandbox.pool import MOST_REQUESTS, Sandbox, Stopped, never

__all__ = ["MOST_REQUESTS", "Limits", "Sandbox", "Stopped", "never"]
