"""The commented settings file that `signalbox init` writes, made from the definitions in `model`."""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.settings.scheduled_sync import ScheduledSync
from agent.settings.schema import SETTINGS_FILE, Settings

SETTING_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Database and embedders": (
        "database_url", "service_url", "read_urls", "max_lag_s", "home", "pool_size", "embedder", "embedder_base_url",
        "embedder_api_key", "embedders", "embedder_keys",
    ),
    "Reading questions": (
        "intent", "transforms", "time_zone", "week_start", "fiscal_year_start", "choose_collections", "fallback",
    ),
    "Ranking and pages": (
        "fusion", "lexical_weight", "fusion_weights", "depth", "rank_features", "min_relevance", "per_document",
        "reranker", "reranker_model", "reranker_api_key", "rerank_min_score", "rerank_blend",
    ),
    "Rounds of searching": ("max_rounds", "loop_calls", "loop_tokens", "loop_share"),
    "Sources": (
        "local", "web_provider", "web_api_key", "web_base_url", "web_fetch", "cloud", "cloud_api_key",
        "cloud_base_url", "metered_searches", "outside_fallback", "sources", "routes",
    ),
    "Model, prompts and answers": (
        "llm", "llm_base_url", "llm_api_key", "language", "judge", "context", "prompts", "prompt_fields",
    ),
    "Time limits": ("timeout_s", "source_timeout_s", "answer_timeout_s", "grace_s"),
    "Server, jobs and logs": (
        "processes", "workers", "ocr", "tenant_jobs", "sync", "sync_max_delete", "log_format", "log_level",
        "trace_days", "chat_days",
    ),
    "Access": (
        "tenant", "auth", "guard", "jwt_issuer", "jwt_audience", "jwt_keys", "jwt_claim", "jwt_tenant_claim",
    ),
}  # fmt: skip
"""The settings by subject, in the order of the file and of docs/settings.md."""

_HEAD = (
    f"Settings of Signalbox. A command reads the file {SETTINGS_FILE} of the folder in which it is started. Each key "
    "below is commented out and shows its default; remove the # in front of a key to set it.",
    '"" means unset, and [] an empty list. An environment variable SIGNALBOX_KEY overrides the key of the file. '
    "`signalbox doctor` checks the settings in use.",
)
_ABOUT_TABLES = "Keep tables at the end of the file: in TOML, a key below the head of a table belongs to that table."
_EXAMPLES: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "sources": ((), {"kind": "local", "description": "how-to pages of the IT department", "path": "handbook"}),
    "sync": (
        [f"{name}: {field.description}" for name, field in ScheduledSync.model_fields.items()],
        {"source": "handbook", "collection": "handbook", "every": "15m"},
    ),
}
"""The settings that are tables: comment lines about their keys, and the keys and values of the example."""
_WIDTH = 100


def settings_template() -> str:
    """Return a settings file with every setting commented out at its default, and one example of each table."""
    schema = Settings.model_json_schema()["properties"]
    lines = [line for text in _HEAD for line in _comment(text)]
    for group, names in SETTING_GROUPS.items():
        lines += ["", *_comment(f"--- {group} ---")]
        for name in names:
            if name not in _EXAMPLES:
                default = Settings.model_fields[name].default
                lines += ["", *_comment(_description(schema[name])), f"#{name.upper()} = {_toml(default)}"]
    lines += ["", *_comment("--- Tables ---"), *_comment(_ABOUT_TABLES)]
    for name, (notes, values) in _EXAMPLES.items():
        lines += ["", *(line for text in (_description(schema[name]), *notes) for line in _comment(text))]
        lines += [f"#[{name}.handbook]", *(f"#{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    """Return the text as comment lines "# ..."; keys that are commented out have no blank after the #."""
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def _toml(value: object) -> str:
    """Return a default value in TOML's notation. TOML has no null, so None becomes the empty string."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps("" if value is None else str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _description(schema: Mapping[str, Any]) -> str:
    """Return a setting's description, followed by its choices and its range if the description does not name them.

    Args:
        schema: JSON schema of the setting.
    """
    text = str(schema["description"])
    form = _form(schema)
    choices = form.get("enum", ())
    if set(choices) - set(re.findall(r"\w+", text)):
        text += f"; one of: {', '.join(choices)}"
    least, most = form.get("minimum"), form.get("maximum")
    if most is not None and "0 to 1" not in text:
        text += f" (at most {_number(most)})" if least is None else f" ({_number(least)} to {_number(most)})"
    return text


def _form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `enum`, `minimum` and `maximum` of a value, or of the items of a list, as far as the schema has them."""
    form = {key: schema[key] for key in ("enum", "minimum", "maximum") if key in schema}
    for inner in (*schema.get("anyOf", ()), schema.get("items", {})):
        form |= _form(inner) if inner else {}
    return form


def _number(value: float) -> str:
    return f"{int(value) if value == int(value) else value:,}"
