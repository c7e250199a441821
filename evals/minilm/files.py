"""Read the upstream files and write the tokenizer and settings beside the model."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


MAX_TOKENS = 256


def verify_weights(folder: Path) -> Path:
    """Return the path of the weights, after comparing their sha256 with the known one."""
    path = folder / "model.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise SystemExit(f"{path.name}: sha256 {digest}, expected {WEIGHTS_SHA256}")
    return path


def write_tokenizer(folder: Path, out: Path) -> Path:
    """Copy tokenizer.json without truncation and padding settings, which the loading program sets; return its path."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["truncation"] = None
    content["padding"] = None
    path = out / "tokenizer.json"
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    return path


def write_settings(out: Path) -> None:
    """Write the maximum number of tokens to the file where sentence-transformers and compatible loaders look for it."""
    content = json.dumps({"max_seq_length": MAX_TOKENS, "do_lower_case": False}, indent=2)
    (out / "sentence_bert_config.json").write_text(content + "\n", encoding="utf-8")


def make_batch(tokenizer_path: Path, texts: tuple[str, ...]) -> dict[str, Any]:
    """Tokenise texts into the padded arrays that the model takes."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    encoded = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([item.ids for item in encoded], dtype=np.int64),
        "attention_mask": np.array([item.attention_mask for item in encoded], dtype=np.int64),
    }
