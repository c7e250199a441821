"""Settings: read from the environment (`SIGNALBOX_*`), else `signalbox.toml`, else the default. Read only here."""

from agent.settings.load import load_settings, spans_are_wanted, unknown_variables
from agent.settings.model import FILE, Settings
from agent.settings.scheduled_sync import ScheduledSync
from agent.settings.template import settings_file

__all__ = [
    "FILE",
    "ScheduledSync",
    "Settings",
    "load_settings",
    "settings_file",
    "spans_are_wanted",
    "unknown_variables",
]
