"""Export, quantise, check and write the model; see `tools.minilm`."""

import argparse
import hashlib
import sys
from pathlib import Path

import onnx
import torch

from tools.minilm.check import check
from tools.minilm.encoder import build_encoder, export_float, smooth
from tools.minilm.files import verify_weights, write_settings, write_tokenizer
from tools.minilm.quantise import Quantiser, strip


def main(arguments: list[str] | None = None) -> int:
    """Export, quantise, check and write the model."""
    parser = argparse.ArgumentParser(description="Build the packaged int8 ONNX model of all-MiniLM-L6-v2.")
    parser.add_argument("--weights", type=Path, required=True, help="folder of the upstream model files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    options = parser.parse_args(arguments)

    weights_path = verify_weights(options.weights)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer_path = write_tokenizer(options.weights, options.out)
    write_settings(options.out)
    torch.manual_seed(0)
    encoder = build_encoder(weights_path)
    smooth(encoder, tokenizer_path)
    float_model = export_float(encoder)
    float_bytes = float_model.SerializeToString()
    int8_model = strip(Quantiser(float_model).run())
    onnx.checker.check_model(int8_model)
    int8_bytes: bytes = int8_model.SerializeToString(deterministic=True)
    if not check(float_bytes, int8_bytes, options.weights, tokenizer_path):
        print("the model is too far from the reference: not written", file=sys.stderr)
        return 1
    (options.out / "model.onnx").write_bytes(int8_bytes)
    print(f"model.onnx: {len(int8_bytes)} bytes, sha256 {hashlib.sha256(int8_bytes).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
