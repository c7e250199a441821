"""Write what `eval tune` found as a settings file, with the evidence as comments."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from retrievers.core.errors import BadRequest


def write_settings(path: Path, found: Mapping[str, Any]) -> None:
    """Write the settings that helped in the form of `signalbox.toml`.

    Args:
        found: the result of `evals.tune.tune`.
    Raises:
        BadRequest: the file exists or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_text(found))
    except OSError as error:
        raise BadRequest(
            f"--settings {path}: the file cannot be written: {error.strerror}", where="--settings"
        ) from error


def check_settings_path(path: Path | None) -> None:
    """Raise BadRequest before the run if the settings file cannot be written."""
    if path is None:
        return
    if path.exists():
        raise BadRequest(f"--settings {path}: the file exists; name another", where="--settings")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"--settings {path}: there is no folder {path.absolute().parent}", where="--settings")


def verdict(made: Mapping[str, Any]) -> str:
    """Describe in one line what a change gained.

    Args:
        made: the entry `fusion` or `ltr` of the result of `evals.tune.tune`.
    """
    if "difference" not in made:
        return f"not trained: {made['reason']}"
    gained = made.get("pooled", made["difference"])
    figures = f"{gained['mean']:+.4f}, 95 % interval {gained['low']:+.4f} to {gained['high']:+.4f}, p {gained['p']:.3f}"
    said = "it helps" if made["helps"] else "no significant gain, left unchanged"
    return f"{said} ({figures} on the verification questions)"


def threshold_verdict(made: Mapping[str, Any]) -> str:
    """Describe in one line what a minimum relevance gained and lost on the questions to verify with.

    Args:
        made: the result of `evals.threshold.tune_threshold`.
    """
    if "reason" in made:
        return f"not tuned: {made['reason']}"
    before, after, lost = made["before"]["verified_on"], made["after"]["verified_on"], made["lost"]
    if made["after"]["min_relevance"] == made["before"]["min_relevance"]:
        return "no other minimum keeps the relevant hits, left unchanged"
    said = "it helps" if made["helps"] else "no sure gain, left unchanged"
    return (
        f"{said} (minimum {made['after']['min_relevance']}: precision of the first ten hits {before['precision']:.3f} "
        f"-> {after['precision']:.3f}, hits {before['hits']:.1f} -> {after['hits']:.1f}, relevant hits kept "
        f"{after['kept']:.3f}, 95 % interval of the loss {lost['low']:+.4f} to {lost['high']:+.4f})"
    )


def _text(found: Mapping[str, Any]) -> str:
    tuned_on, verified_on = found["tuned_on"], found["verified_on"]
    lines = [
        f"# Written by `signalbox eval tune` on {datetime.now(UTC):%Y-%m-%d} for the dataset {found['dataset']}.",
        f"# Learned on {tuned_on['from']} ({tuned_on['questions']} questions), "
        f"proved on {verified_on['from']} ({verified_on['questions']} questions).",
    ]
    for name in ("fusion", "ltr"):
        made = found[name]
        scores = ""
        if "before" in made:
            before, after = made["before"], made["after"]
            scores = f"{found['metric']} {before['verified_on']:.4f} -> {after['verified_on']:.4f}: "
        lines.append(f"# {'ranker' if name == 'ltr' else name}: {scores}{verdict(made)}")
    lines += [f"# threshold: {threshold_verdict(found['threshold'])}", ""]
    for key, value in found["settings"].items():
        lines.append(
            f"# {key}: unset, remove it where it is set"
            if value is None
            else f"{key} = {json.dumps(value, ensure_ascii=False)}"
        )
    if not found["settings"]:
        lines.append("# Nothing helped: the settings in force stay.")
    return "\n".join(lines) + "\n"
