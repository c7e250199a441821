"""Compare an exported model with the float32 reference of transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers

from evals.minilm.files import make_batch
from evals.minilm.texts import CHECK_TEXTS

MIN_FLOAT_COSINE = 0.99999  # float32 export: text to reference, and text alone to the same text in a padded batch
MIN_INT8_COSINE = 0.99  # packaged model: text to reference, the worst text
MIN_INT8_MEAN = 0.995  # packaged model: text to reference, mean over the texts
MIN_BATCH_COSINE = 0.9999  # packaged model: text alone to the same text in a padded batch


def run_onnx(model: bytes, batch: dict[str, Any]) -> Any:
    """Return the sentence embeddings that a serialised ONNX model computes for one batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(["sentence_embedding"], batch)[0]


def reference_vectors(weights: Path, tokenizer_path: Path, texts: tuple[str, ...]) -> Any:
    """Return the vectors of texts, each of length 1, computed one at a time with transformers in float32."""
    model = transformers.BertModel.from_pretrained(str(weights), local_files_only=True).eval()
    vectors = []
    with torch.no_grad():
        for text in texts:
            batch = {name: torch.from_numpy(array) for name, array in make_batch(tokenizer_path, (text,)).items()}
            mean = model(**batch).last_hidden_state[0].mean(dim=0)
            vectors.append((mean / mean.norm()).numpy())
    return np.stack(vectors)


def check(float_model: bytes, int8_model: bytes, weights: Path, tokenizer_path: Path) -> bool:
    """Compare both models with the reference, and each text alone with itself in a padded batch.

    Print the figures; return whether all pass.
    """
    reference = reference_vectors(weights, tokenizer_path, CHECK_TEXTS)
    together = make_batch(tokenizer_path, CHECK_TEXTS)
    one_by_one = [make_batch(tokenizer_path, (text,)) for text in CHECK_TEXTS]
    passed = True

    def judge(label: str, value: float, least: float) -> None:
        nonlocal passed
        good = value >= least
        passed = passed and good
        print(f"{label:44s} {value:.6f}  {'ok' if good else f'BELOW {least}'}")

    for label, model, worst, mean, same in (
        ("float32", float_model, MIN_FLOAT_COSINE, MIN_FLOAT_COSINE, MIN_FLOAT_COSINE),
        ("int8", int8_model, MIN_INT8_COSINE, MIN_INT8_MEAN, MIN_BATCH_COSINE),
    ):
        batched = run_onnx(model, together)
        alone = np.concatenate([run_onnx(model, batch) for batch in one_by_one])
        judge(f"{label}: worst cosine to the reference", float((alone * reference).sum(axis=1).min()), worst)
        judge(f"{label}: mean cosine to the reference", float((alone * reference).sum(axis=1).mean()), mean)
        judge(f"{label}: worst cosine, alone to padded batch", float((alone * batched).sum(axis=1).min()), same)
    return passed
