"""Show a comparison with peers: rows for the terminal, a Markdown page and plots as SVG files."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.peer_comparison import CLIENTS, MEASURES, OWN, OWN_EMBEDDING
from evals.report.markup import Markup, element

COLUMNS = (
    "contender", *MEASURES, "p50 ms", "p95 ms", "p99 ms", *(f"q/s, {one}" for one in CLIENTS),
    "passages/s", "MB stored", "peak RSS MB", "failed",
)  # fmt: skip
_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 640, 170, 90, 26, 34
_STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-weight: 600 }
    .bar { fill: #9aa5b1 } .own { fill: #2563a8 }
    @media (prefers-color-scheme: dark) { text { fill: #ddd } .bar { fill: #6b7683 } .own { fill: #6aa9ea } }
"""
_CONDITIONS = (
    "Every contender has a process and a database of its own on one server, the same passages and number of "
    "connections, and gets the vectors of passages and questions; only "
    f'"{OWN_EMBEDDING}" computes the vectors of the questions within its times. The service also splits and analyses '
    "the documents during ingestion and reads each question; the others get ready passages. A failed question has no "
    "time and scores 0."
)


def contender_rows(beside: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per contender, in the order of `COLUMNS`."""
    return [
        (
            name,
            *(f"{found['metrics'][one]:.3f}" for one in MEASURES),
            *(f"{found['latency_ms'][one]:.1f}" if found["latency_ms"] else "-" for one in ("p50", "p95", "p99")),
            *(f"{found['queries_per_s'][str(one)]:.0f}" for one in CLIENTS),
            f"{found['passages_per_s']:.0f}",
            f"{found['growth_mb']:.1f}",
            f"{found['peak_rss_mb']:.0f}",
            str(found["failed_questions"]),
        )
        for name, found in beside["contenders"].items()
    ]


def write_report(folder: Path, found: Mapping[str, Any]) -> list[Path]:
    """Write the result of `evals.bench.bench` with peers as JSON, Markdown and SVG files; return the files.

    The setting `home` is left out, since it names a folder of the machine.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown = {**found, "settings": {key: value for key, value in found["settings"].items() if key != "home"}}
    name = re.sub(r"[^\w.-]", "-", found["dataset"])
    texts = {f"{name}-{kind}.svg": plot for kind, plot in plots(found["beside"]).items()}
    texts[f"{name}.md"] = page(found, sorted(texts))
    texts[f"{name}.json"] = json.dumps(shown, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in sorted(texts)]


def page(found: Mapping[str, Any], images: Sequence[str]) -> str:
    """Return the comparison as Markdown with links to the plots."""
    beside, versions, machine = found["beside"], found["versions"], found["beside"]["machine"]
    head = f"# {found['dataset']} beside the peers"
    counts = f"{found['documents']:,} documents, {beside['passages']:,} passages, {found['questions']:,} questions"
    about = (
        f"{counts}; {found['started_at'][:10]}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']:g} GB, {machine['system']}; PostgreSQL {versions['postgres']}, "
        f"pgvector {versions['pgvector']}, text search configuration `{beside['text_search_configuration']}`. "
        f"Top {beside['limit']}; each of the two searches gives {beside['depth']} passages."
    )
    table = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    table += ["| " + " | ".join(row) + " |" for row in contender_rows(beside)]
    packages = [
        f"- {name}: " + ", ".join(f"{one} {version}" for one, version in given["packages"].items())
        for name, given in beside["contenders"].items()
        if given["packages"] and name != OWN_EMBEDDING
    ]
    left_out = [f"- {name}: {reason}" for name, reason in beside["left_out"].items()]
    parts = [head, about, _CONDITIONS, "\n".join(table), "\n".join(f"![{one[:-4]}]({one})" for one in images)]
    parts += ["Versions:", "\n".join(packages)] if packages else []
    parts += ["Left out:", "\n".join(left_out)] if left_out else []
    return "\n\n".join(parts) + "\n"


def plots(beside: Mapping[str, Any]) -> dict[str, str]:
    """Return SVG documents by kind: quality, latency and throughput."""
    contenders = beside["contenders"]
    timed = {name: one["latency_ms"]["p50"] for name, one in contenders.items() if one["latency_ms"]}
    most = str(CLIENTS[-1])
    return {
        "quality": _bars("nDCG@10 (longer is better)", {n: c["metrics"]["nDCG@10"] for n, c in contenders.items()}, 3),
        "latency": _bars("median time of a question, ms (shorter is better)", timed, 1),
        "throughput": _bars(
            f"questions per second, {most} clients (longer is better)",
            {name: one["queries_per_s"][most] for name, one in contenders.items()},
            0,
        ),
    }


def _bars(title: str, values: Mapping[str, float], decimals: int) -> str:
    """Return a horizontal bar per value, from 0."""
    most = max([*values.values(), 1e-9])
    height = _TOP + _ROW * len(values) + 8
    shapes: list[Markup] = [element("text", title, x=8, y=20, class_="title")]
    for number, (name, value) in enumerate(values.items()):
        y, width = _TOP + _ROW * number, round(value / most * (_WIDTH - _LEFT - _RIGHT), 1)
        shapes += [
            element("text", name, x=_LEFT - 8, y=y + 16, text_anchor="end"),
            element(
                "rect", x=_LEFT, y=y + 3, width=width, height=_ROW - 8, rx=2,
                class_="own" if name in (OWN, OWN_EMBEDDING) else "bar",
            ),
            element("text", f"{value:.{decimals}f}", x=_LEFT + width + 6, y=y + 16),
        ]  # fmt: skip
    return element(
        "svg", element("title", title), element("style", Markup(_STYLE)), shapes,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH, height=height, role="img",
    ) + "\n"  # fmt: skip
