"""Settings: read from the environment (`SIGNALBOX_*`), else `signalbox.toml`, else the default. Read only here."""

from agent.settings.load import is_span_export_configured, load_settings, unknown_variables
from agent.settings.scheduled_sync import ScheduledSync
from agent.settings.schema import SETTINGS_FILE, Settings
from agent.settings.template import settings_template

__all__ = [
    "SETTINGS_FILE",
    "ScheduledSync",
    "Settings",
    "is_span_export_configured",
    "load_settings",
    "settings_template",
    "unknown_variables",
]
