import json
from pathlib import Path
from typing import Any

import pytest

from evals.faithbench import LabelledSummary, measure, read_samples
from retrievers.core.errors import BadRequest

SOURCE = "The ferry leaves at 9. It takes 40 minutes to the island. Dogs travel free of charge."
TRUE = "The ferry leaves at 9. Dogs travel free."
FALSE = "The ferry leaves at 9. It takes 50 minutes to the island."


def span(kind: str, summary: str, text: str) -> tuple[str, int, int]:
    start = summary.index(text)
    return kind, start, start + len(text)


async def test_summaries_and_sentences_are_counted_by_the_kind_of_their_labels():
    samples = [
        LabelledSummary(SOURCE, FALSE, (span("Unwanted", FALSE, "50 minutes"), span("Benign", FALSE, "ferry"))),
        LabelledSummary(SOURCE, TRUE, (span("Unwanted", TRUE, "free"),)),
        LabelledSummary(SOURCE, TRUE, ()),
        LabelledSummary(SOURCE, TRUE, ()),
        LabelledSummary(SOURCE, FALSE, ()),
        LabelledSummary(SOURCE, FALSE, (span("Questionable", FALSE, "island"),)),
    ]

    found = await measure(samples, None)

    assert found["summaries"] == {
        "Unwanted": {"count": 2, "marked": 1},
        "Benign": {"count": 0, "marked": 0},
        "Questionable": {"count": 1, "marked": 1},
        "none": {"count": 3, "marked": 1},
    }
    # Half of the unwanted are found, two thirds of the others are left alone: (1/2 + 2/3) / 2.
    assert found["balanced_accuracy"] == pytest.approx(0.5833, abs=1e-4)
    assert found["sentences"] == {
        "Unwanted": {"count": 2, "marked": 1},
        "Benign": {"count": 1, "marked": 0},
        "Questionable": {"count": 1, "marked": 1},
        "none": {"count": 8, "marked": 1},
    }


async def test_without_one_of_the_two_kinds_there_is_no_accuracy_and_without_samples_nothing():
    assert (await measure([LabelledSummary(SOURCE, TRUE, ())], None))["balanced_accuracy"] is None
    with pytest.raises(BadRequest, match="no samples"):
        await measure([], None)


def test_a_batch_is_read_as_it_is_released(tmp_path: Path):
    def annotation(*label: str, **place: Any) -> dict[str, Any]:
        return {"label": list(label), "note": "", **place}

    path = tmp_path / "batch.json"
    samples = [
        {"source": "s", "summary": "abcdef", "annotations": [
            annotation("Benign", summary_start=0, summary_end=2),
            annotation("Unwanted", "Unwanted.Intrinsic", summary_start=3, summary_end=5), annotation("Questionable"),
        ]},
        {"source": "s", "summary": "abc", "annotations": []},
    ]  # fmt: skip
    path.write_text(json.dumps({"samples": samples}))

    first, second = read_samples(path)

    assert first.spans == (("Benign", 0, 2), ("Unwanted", 3, 5), ("Questionable", 0, 0))
    assert (first.kind, second.kind) == ("Unwanted", "none")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"samples": [{"source": "s"}]}'])
def test_a_file_of_another_form_says_so(text: str, tmp_path: Path):
    path = tmp_path / "batch.json"
    path.write_text(text)

    with pytest.raises(BadRequest, match=r"batch\.json: this is not a batch of FaithBench"):
        read_samples(path)
