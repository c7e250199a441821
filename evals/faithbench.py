"""Measure the sentence check on FaithBench: summaries with human labels of unsupported spans.

    python -m evals.faithbench FILE...

The files are batches as FaithBench releases them (Bao et al., NAACL 2025, doi:10.18653/v1/2025.naacl-short.38): a list
`samples`, each with `source`, `summary` and `annotations`, whose `label` is a list such as ["Unwanted",
"Unwanted.Intrinsic"]. A summary counts as marked if the check finds a sentence of it unsupported by the source.
"""

import argparse
import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.answering.faithfulness_check import check_sentences, split_answer
from agent.serve.cli.output import write_json
from agent.types import AnswerSentence
from retrievers.core.errors import BadRequest
from retrievers.embed import Embedder
from retrievers.embed.factory import open_embedders

KINDS = ("Unwanted", "Benign", "Questionable", "none")
"""Kinds of summaries, the worst first; a summary has the worst kind among its labels."""


@dataclass(frozen=True, slots=True)
class LabelledSummary:
    """One labelled summary of a source.

    Attributes:
        spans: human labels: kind, and characters [start, end) of the summary.
    """

    source: str
    summary: str
    spans: tuple[tuple[str, int, int], ...]

    @property
    def kind(self) -> str:
        """The worst of its labels."""
        return _worst(kind for kind, _, _ in self.spans)

    def parse_reranker(self, sentence: AnswerSentence) -> str:
        """Return the worst label of the spans that overlap the sentence."""
        return _worst(kind for kind, start, end in self.spans if start < sentence.end and sentence.start < end)


def read_samples(path: Path) -> list[LabelledSummary]:
    """Read the summaries of a batch.

    Raises:
        BadRequest: the file cannot be read or has another format.
    """
    try:
        samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
        return [_labelled(one) for one in samples]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"{path}: this is not a batch of FaithBench: {error!r}", where="file") from error


def _labelled(sample: Mapping[str, Any]) -> LabelledSummary:
    spans = []
    for one in sample["annotations"]:
        kind = _worst(label.partition(".")[0] for label in one["label"])
        # A label on the whole summary has no offsets.
        spans.append((kind, int(one.get("summary_start") or 0), int(one.get("summary_end") or 0)))
    return LabelledSummary(sample["source"], sample["summary"], tuple(spans))


def _worst(kinds: Iterable[str]) -> str:
    found = set(kinds)
    return next((kind for kind in KINDS if kind in found), "none")


async def measure(samples: Sequence[LabelledSummary], embedder: Embedder | None) -> dict[str, Any]:
    """Check every summary against its source.

    Returns:
        JSON values: `balanced_accuracy`, the mean of the share of summaries with an Unwanted label that are marked, and
            of the share of summaries without any label that are not (None if there are no summaries of either);
            `summaries` and `sentences`, by kind: their `count`, and how many are `marked`. The kind of a sentence is
            the worst label of the spans that overlap it.
    Raises:
        BadRequest: there are no samples.
    """
    if not samples:
        raise BadRequest("there are no samples", where="file")
    counts = {what: {kind: {"count": 0, "marked": 0} for kind in KINDS} for what in ("summaries", "sentences")}
    for sample in samples:
        said = [one.model_copy(update={"citations": (1,)}) for one in split_answer(sample.summary, 1)]
        checked = await check_sentences(said, (f"[1]\n\n{sample.source}",), embedder, patience_s=60.0)
        marked = [one for one in checked if one.supported is False]
        _add(counts["summaries"][sample.kind], bool(marked))
        for one in checked:
            _add(counts["sentences"][sample.parse_reranker(one)], one.supported is False)
    unwanted, clean = (_share(counts["summaries"][kind]) for kind in ("Unwanted", "none"))
    accuracy = None if unwanted is None or clean is None else round((unwanted + 1 - clean) / 2, 4)
    return {"balanced_accuracy": accuracy, **counts}


def _add(counted: dict[str, int], is_marked: bool) -> None:
    counted["count"] += 1
    counted["marked"] += is_marked


def _share(counted: Mapping[str, int]) -> float | None:
    return counted["marked"] / counted["count"] if counted["count"] else None


async def _measure_files(files: Sequence[Path], embedder_name: str) -> dict[str, Any]:
    samples = [sample for path in files for sample in read_samples(path)]
    if embedder_name == "none":
        return await measure(samples, None)
    embedder = open_embedders(embedder_name)
    try:
        return await measure(samples, embedder)
    finally:
        await embedder.aclose()


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description="measure the sentence check by FaithBench's labels")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="batches, such as batch_1.json")
    parser.add_argument("--embedder", default="minilm", help="value of the setting EMBEDDER, or none")
    given = parser.parse_args()
    try:
        write_json(asyncio.run(_measure_files(given.files, given.embedder)))
    except BadRequest as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
