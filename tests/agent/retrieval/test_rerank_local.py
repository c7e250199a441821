"""Cross-encoders that run in this process, on a model small enough to be worked out by hand.

Its logit is the number of words "good" less the number of words "bad" in the passage.
"""

import asyncio
import importlib
import json
import math
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from agent.errors import BadSetting
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank import onnx, open_reranker
from agent.retrieval.rerank.reranker import Reranker
from agent.settings import Settings
from retrievers.core.errors import Unavailable
from retrievers.core.types import Chunk, ChunkId

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "tea"]
GOOD = {"good": 1.0, "bad": -1.0}

_FLOAT, _INT64 = 1, 7
_INT = 2


def _varint(number: int) -> bytes:
    data = b""
    while number > 0x7F:
        data, number = data + bytes([number & 0x7F | 0x80]), number >> 7
    return data + bytes([number])


def _field(number: int, value: int | str | bytes) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _tensor(name: str, kind: int, shape: Sequence[int], data: bytes) -> bytes:
    return b"".join(_field(1, n) for n in shape) + _field(2, kind) + _field(8, name) + _field(9, data)


def _node(operator: str, inputs: Sequence[str], output: str, **attributes: int) -> bytes:
    held = [_field(1, name) + _field(3, value) + _field(20, _INT) for name, value in attributes.items()]
    names = b"".join(_field(1, name) for name in inputs) + _field(2, output)
    return names + _field(4, operator) + b"".join(_field(5, one) for one in held)


def _value(name: str, kind: int, *dims: str) -> bytes:
    shape = b"".join(_field(1, _field(2, dim)) for dim in dims)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))


def graph(columns: Sequence[dict[str, float]], *, counted: str = "token_type_ids") -> bytes:
    """A model that sums, per label, the weights of the tokens where the input `counted` is 1."""
    weights = b"".join(struct.pack("<f", column.get(word, 0.0)) for word in WORDS for column in columns)
    nodes = [
        _node("Gather", ["weights", "input_ids"], "of_tokens", axis=0),
        _node("Cast", [counted], "floats", to=_FLOAT),
        _node("Unsqueeze", ["floats", "last"], "mask"),
        _node("Mul", ["of_tokens", "mask"], "kept"),
        _node("ReduceSum", ["kept", "tokens"], "logits", keepdims=0),
    ]
    constants = [
        _tensor("weights", _FLOAT, [len(WORDS), len(columns)], weights),
        _tensor("last", _INT64, [1], struct.pack("<q", 2)),
        _tensor("tokens", _INT64, [1], struct.pack("<q", 1)),
    ]
    inputs = dict.fromkeys(("input_ids", "attention_mask", counted))
    body = b"".join(_field(1, one) for one in nodes) + _field(2, "tiny")
    body += b"".join(_field(5, one) for one in constants)
    body += b"".join(_field(11, _value(name, _INT64, "n", "s")) for name in inputs)
    body += _field(12, _value("logits", _FLOAT, "n", "labels"))
    return _field(1, 8) + _field(7, body) + _field(8, _field(2, 13))


def constant(value: float) -> bytes:
    """A model that gives one value, whatever the batch."""
    body = _field(1, _node("Identity", ["value"], "logits")) + _field(
        5, _tensor("value", _FLOAT, [1], struct.pack("<f", value))
    )
    body += _field(2, "constant") + _field(11, _value("input_ids", _INT64, "pairs", "tokens"))
    body += _field(12, _value("logits", _FLOAT, "one"))
    return _field(1, 8) + _field(7, body) + _field(8, _field(2, 13))


ONE_VALUE = constant(1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a cross-encoder's folder."""

    def write(model: bytes, *, at: str = "model.onnx", **config: int) -> Path:
        tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        (tmp_path / at).parent.mkdir(exist_ok=True)
        (tmp_path / at).write_bytes(model)
        return tmp_path

    return write


@asynccontextmanager
async def opened(name: str) -> AsyncIterator[Reranker]:
    reranker = open_reranker(Settings(reranker=name))
    assert reranker is not None
    yield reranker
    await reranker.aclose()


async def judged(
    name: str | Path, *texts: str, question: str = "tea", title: str = "", heading: str = ""
) -> list[float]:
    pool = [
        FusedHit(id, 0.5, 0.5, {}, {}, Chunk(id, title, text, heading=heading))
        for id, text in ((ChunkId("t", "c", str(n), 0), text) for n, text in enumerate(texts))
    ]
    async with opened(name if isinstance(name, str) else f"onnx:{name}") as reranker:
        return await reranker.rerank(question, "en", pool, deadline=time.monotonic() + 60)


def probability(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


async def test_one_logit_per_pair_becomes_a_probability_in_the_order_of_the_passages(folder):
    found = await judged(folder(graph([GOOD])), "good", "bad bad tea", "tea", "good good good")
    assert found == pytest.approx([probability(1), probability(-2), 0.5, probability(3)])


async def test_of_two_logits_the_second_speaks_for_the_passage(folder):
    model = graph([{"bad": 1.0}, {"good": 1.0}])
    assert await judged(folder(model, at="onnx/model.onnx"), "good good", "bad", "good bad") == pytest.approx(
        [probability(2), probability(-1), 0.5]
    )


async def test_a_model_without_token_types_reads_question_and_passage_alike(folder):
    model = graph([GOOD], counted="attention_mask")
    assert await judged(folder(model), "good", "bad", question="good") == pytest.approx([probability(2), 0.5])


async def test_the_title_and_the_headings_are_read_with_the_passage(folder):
    found = await judged(folder(graph([GOOD])), "tea", title="good good", heading="good > tea")
    assert found == pytest.approx([probability(3)])


async def test_a_passage_is_cut_to_the_models_length_in_tokens(folder):
    # [CLS] tea [SEP] and the last [SEP] leave three of seven.
    path = folder(graph([GOOD]), model_max_length=7)
    assert await judged(path, "bad bad bad good good good good", "tea tea good") == pytest.approx(
        [probability(-3), probability(1)]
    )


async def test_a_question_longer_than_the_model_leaves_room_for_the_passage(folder):
    path = folder(graph([GOOD]), model_max_length=9)
    assert await judged(path, "good", "bad", question="tea " * 600) == pytest.approx([probability(1), probability(-1)])


async def test_passages_of_every_length_come_out_in_their_own_places(folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx, "_BATCH_TOKENS", 16)
    counts = [3, 1, 9, 2, 30, 5, 1, 7]
    found = await judged(folder(graph([GOOD])), *("good " * count for count in counts))
    assert found == pytest.approx([probability(count) for count in counts])


async def test_a_run_that_nobody_waits_for_any_more_ends_at_the_deadline(folder):
    async with opened(f"onnx:{folder(graph([GOOD]))}") as reranker:
        id = ChunkId("t", "c", "a", 0)
        pool = [FusedHit(id, 0.5, 0.5, {}, {}, Chunk(id, "", "good"))]
        with pytest.raises(Unavailable, match="it took too long"):
            await reranker.rerank("tea", "en", pool, deadline=time.monotonic() - 1)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (graph([GOOD] * 3), "its model returns 3 values per pair; a cross-encoder returns 1 or 2"),
        (graph([GOOD], counted="special_ids"), "its model cannot be run"),
        (b"no graph", "cannot load"),
        (ONE_VALUE, "its model cannot be run"),
    ],
)
async def test_a_model_that_is_no_cross_encoder_is_said_so(folder, model: bytes, reason: str):
    with pytest.raises(Unavailable, match=reason) as raised:
        await judged(folder(model), "good", "bad")
    assert "\n" not in str(raised.value)


async def test_a_logit_that_is_no_number_is_none_as_a_score_either(folder):
    assert math.isnan((await judged(folder(graph([{"good": math.inf, "bad": -math.inf}])), "good bad"))[0])


async def test_a_folder_without_a_model_says_what_it_needs(tmp_path: Path):
    with pytest.raises(Unavailable, match=r"needs tokenizer\.json and model.onnx"):
        await judged(tmp_path, "good")


def test_a_folder_that_is_none_is_a_bad_setting(tmp_path: Path):
    with pytest.raises(BadSetting, match="is not a folder"):
        open_reranker(Settings(reranker=f"onnx:{tmp_path / 'nowhere'}"))


# fastembed


class Encoder:
    """Stands in for fastembed's class: the number of words is the logit."""

    def __init__(self, model_name: str) -> None:
        if model_name != "some/model":
            raise ValueError(f"Model {model_name} is not supported\nin TextCrossEncoder.")

    def rerank(self, question: str, texts: list[str]) -> list[float]:
        if question == "broken":
            raise RuntimeError("from within")
        return [float(len(text.split())) for text in texts]


@pytest.fixture
def fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "fastembed.rerank.cross_encoder", SimpleNamespace(TextCrossEncoder=Encoder)
    )  # what importlib.import_module then finds
    monkeypatch.setitem(sys.modules, "fastembed", SimpleNamespace())


async def test_fastembeds_logits_become_probabilities(fastembed: None):
    assert await judged("fastembed:some/model", "one", "one two three") == pytest.approx(
        [probability(1), probability(3)]
    )


async def test_what_fastembed_cannot_do_is_said_in_one_line(fastembed: None):
    with pytest.raises(
        Unavailable, match=r"Model other/model is not supported in .*; without a network, give a folder"
    ):
        await judged("fastembed:other/model", "one")
    with pytest.raises(Unavailable, match=r"it cannot score these passages \(RuntimeError\)"):
        await judged("fastembed:some/model", "one", question="broken")


async def test_without_the_package_the_way_to_install_it_is_given(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(Unavailable, match=r"pip install '\.\[local\]'"):
        await judged("fastembed:some/model", "one")


async def test_who_leaves_while_a_model_is_loaded_leaves_the_queue_too(
    fastembed: None, monkeypatch: pytest.MonkeyPatch
):
    loaded: list[str] = []
    left = threading.Event()

    class Slow(Encoder):
        def __init__(self, model_name: str) -> None:
            assert left.wait(60)
            super().__init__(model_name)

        def rerank(self, question: str, texts: list[str]) -> list[float]:
            loaded.append(question)
            return super().rerank(question, texts)

    monkeypatch.setattr(sys.modules["fastembed.rerank.cross_encoder"], "TextCrossEncoder", Slow)
    id = ChunkId("t", "c", "a", 0)
    pool = [FusedHit(id, 0.5, 0.5, {}, {}, Chunk(id, "", "one"))]
    async with opened("fastembed:some/model") as reranker:
        asked = {
            question: asyncio.ensure_future(reranker.rerank(question, "en", pool, deadline=0))
            for question in ("first", "left", "last")
        }
        await asyncio.sleep(0)
        asked["left"].cancel()
        await asyncio.wait({asked["left"]})
        left.set()
        assert await asked["last"] == pytest.approx([probability(1)])
    assert loaded == ["first", "last"]
