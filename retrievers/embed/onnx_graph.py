"""A text model stored as ONNX files in a folder: tokenizes texts and runs the graph (the model) on the CPU."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrievers.core import process_memory

_LONGEST_TOKENS = 512
_TOKENIZED_AT_ONCE = 64
"""Number of texts that the tokenizer gets at once. What it returns takes 400 bytes a token, cut tokens included."""
_MOST_SHRINKS = 2
"""Maximum number of attempts to release memory while other runs begin. What remains is released after a later run."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenized text, or pair of texts: the number of each token, and of the text of the pair that it is from."""

    ids: NDArray[np.int32]
    type_ids: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.ids)


class OnnxGraph:
    """The model in the files `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json` of a folder. Thread-safe.

    Each run uses one thread. Several runs at once use several cores, and do not wait for each other's threads.

    Attributes:
        outputs: names of the graph's outputs.
    Raises:
        FileNotFoundError: a file is missing.
        Exception: the runtime or the tokenizer cannot read a file; each raises types of its own.
    """

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        graph = next((path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.exists()), None)
        if graph is None or not (folder / "tokenizer.json").exists():
            raise FileNotFoundError("it needs tokenizer.json and model.onnx")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_max_tokens(folder))
        self._tokenizer.no_padding()
        self._pad = self._tokenizer.token_to_id("[PAD]") or self._tokenizer.token_to_id("<pad>") or 0
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._giving_back = onnxruntime.RunOptions()
        self._giving_back.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}
        self.outputs = [value.name for value in self._session.get_outputs()]
        self._lock = Lock()
        self._running = self._begun = 0
        self._owes_memory = False

    def tokenize(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Tokens]:
        """Tokenize texts or pairs of texts, cut to the model's length. The longer text of a pair is cut."""
        found = []
        for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
            for one in self._tokenizer.encode_batch_fast(texts[start : start + _TOKENIZED_AT_ONCE]):
                found.append(Tokens(np.array(one.ids, np.int32), np.array(one.type_ids, np.int8)))
        return found

    def run(self, batch: Sequence[Tokens], output: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Run the graph on tokenized texts.

        Returns:
            The graph's output named `output`, with one row per text; and an array with 1 for each token of a text and 0
            for padding, shape (texts, tokens).
        """
        return self._run(batch, output)

    def release_memory(self, output: str) -> None:
        """Release the hundreds of megabytes that the runtime keeps for later batches.

        If runs are in progress, the memory is released when the last of them ends.

        Args:
            output: name of one of the graph's outputs.
        """
        with self._lock:
            self._owes_memory, idle = True, not self._running
        if idle:
            self._shrink(output)

    def _shrink(self, output: str) -> None:
        feed, _ = self._feed(self.tokenize(["a"]))
        for _ in range(_MOST_SHRINKS):
            with self._lock:
                self._owes_memory, begun = False, self._begun
            self._session.run([output], feed, self._giving_back)
            process_memory.trim_heap()
            with self._lock:
                self._owes_memory |= self._begun != begun  # a run that began meanwhile may keep a block allocated
                if not self._owes_memory or self._running:
                    return

    def _run(self, batch: Sequence[Tokens], output: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        feed, mask = self._feed(batch)
        with self._lock:
            self._running += 1
            self._begun += 1
        try:
            values = self._session.run([output], feed)[0]
        finally:
            with self._lock:
                self._running -= 1
                is_last = self._owes_memory and not self._running
        if is_last:
            values = np.array(values)  # a copy outside the runtime's memory, which `_shrink` releases
            self._shrink(output)
        return np.asarray(values, dtype=np.float32), mask

    def _feed(self, batch: Sequence[Tokens]) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
        """Return the inputs of the graph for tokenized texts, by name, and the mask of tokens as in `run`."""
        longest = max(len(tokens) for tokens in batch)
        ids = np.full((len(batch), longest), self._pad, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            length = len(tokens)
            ids[row, :length], types[row, :length], mask[row, :length] = tokens.ids, tokens.type_ids, 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return {name: feed[name] for name in self._inputs if name in feed}, mask


def batch_by_length(encoded: Sequence[Tokens], most_tokens: int) -> list[list[int]]:
    """Group tokenized texts of similar length into batches, to minimise padding.

    Returns a list per batch: the indexes in `encoded` of its texts.

    Args:
        most_tokens: maximum number of tokens of a batch, including padding. A longer text is a batch of its own.
    """
    order = sorted(range(len(encoded)), key=lambda n: -len(encoded[n]))
    found = []
    start = 0
    while start < len(order):
        size = max(1, most_tokens // max(len(encoded[order[start]]), 1))
        found.append(order[start : start + size])
        start += size
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file is missing or contains another value."""
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return data if isinstance(data, dict) else {}


def _max_tokens(folder: Path) -> int:
    stated = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    stated = stated or read_json(folder / "tokenizer_config.json").get("model_max_length")
    return min(int(stated), _LONGEST_TOKENS) if isinstance(stated, int | float) else _LONGEST_TOKENS
