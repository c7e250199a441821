"""The encoder in torch, with the upstream weights, and its export to ONNX in float32."""

from pathlib import Path
from typing import Any

import onnx
import torch
from safetensors.torch import load_file
from torch import nn

from evals.minilm.files import make_batch
from evals.minilm.texts import CALIBRATION_TEXTS

HIDDEN, HEADS, LAYERS, VOCABULARY, POSITIONS = 384, 12, 6, 30522, 512
LAYER_NORM_EPS = 1e-12
OPSET = 20
MASKED = -10000.0  # added to the attention scores of padding
SMOOTHING = 0.5  # exponent by which the size of outliers moves from activations to weights; 1.0 moves all of it


class UpstreamWeights:
    """The upstream weights, as layers of torch."""

    def __init__(self, path: Path) -> None:
        self.state = load_file(str(path))

    def parameters(self, prefix: str) -> dict[str, Any]:
        """Return the weight and the bias of one upstream layer."""
        return {name: self.state[f"{prefix}.{name}"] for name in ("weight", "bias")}

    def linear(self, part: dict[str, Any]) -> Any:
        """Return a linear layer with this weight and bias."""
        rows, columns = part["weight"].shape
        result = nn.Linear(columns, rows)
        result.load_state_dict(part)
        return result

    def layer_norm(self, prefix: str) -> Any:
        """Return one upstream layer norm."""
        result = nn.LayerNorm(HIDDEN, eps=LAYER_NORM_EPS)
        result.load_state_dict(self.parameters(prefix))
        return result

    def joined_qkv(self, prefix: str) -> dict[str, Any]:
        """Return Q, K and V as one matrix, with the scale of the scores folded into Q."""
        scale = (HIDDEN // HEADS) ** -0.5
        query, key, value = (self.parameters(f"{prefix}.{name}") for name in ("query", "key", "value"))
        return {name: torch.cat([query[name] * scale, key[name], value[name]]) for name in ("weight", "bias")}


class TransformerLayer(nn.Module):  # type: ignore[misc]
    """One transformer layer over the tokens of the whole batch as rows."""

    def __init__(self, weights: UpstreamWeights, index: int) -> None:
        super().__init__()
        prefix = f"encoder.layer.{index}"
        self.qkv = weights.linear(weights.joined_qkv(f"{prefix}.attention.self"))
        self.out = weights.linear(weights.parameters(f"{prefix}.attention.output.dense"))
        self.up = weights.linear(weights.parameters(f"{prefix}.intermediate.dense"))
        self.down = weights.linear(weights.parameters(f"{prefix}.output.dense"))
        self.attention_norm = weights.layer_norm(f"{prefix}.attention.output.LayerNorm")
        self.output_norm = weights.layer_norm(f"{prefix}.output.LayerNorm")
        self.register_buffer("qkv_scale", torch.ones(HIDDEN))
        self.register_buffer("up_scale", torch.ones(HIDDEN))

    def forward(self, rows: Any, mask: Any, batch: Any, length: Any) -> Any:
        """Return the rows after this layer, [batch * length, 384]."""
        parts = self.qkv(rows * self.qkv_scale).split(HIDDEN, dim=1)
        query, key, value = (p.reshape(batch, length, HEADS, HIDDEN // HEADS).transpose(1, 2) for p in parts)
        attention = torch.softmax(query @ key.transpose(2, 3) + mask, dim=-1)
        context = (attention @ value).transpose(1, 2).reshape(batch * length, HIDDEN)
        rows = self.attention_norm(self.out(context) + rows)
        inner = nn.functional.gelu(self.up(rows * self.up_scale))
        return self.output_norm(self.down(inner) + rows)


class SentenceEncoder(nn.Module):  # type: ignore[misc]
    """Embeddings, layers, mean pooling over the mask, L2 normalisation."""

    def __init__(self, weights: UpstreamWeights) -> None:
        super().__init__()
        state = weights.state
        self.word = nn.Embedding.from_pretrained(state["embeddings.word_embeddings.weight"])
        token_type = state["embeddings.token_type_embeddings.weight"][0]
        self.position = nn.Parameter(state["embeddings.position_embeddings.weight"] + token_type)
        self.norm = weights.layer_norm("embeddings.LayerNorm")
        self.layers = nn.ModuleList(TransformerLayer(weights, index) for index in range(LAYERS))

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return the sentence embeddings, [batch, 384]."""
        batch, length = input_ids.shape
        weight = attention_mask.to(torch.float32)
        mask = ((1.0 - weight) * MASKED).reshape(batch, 1, 1, length)
        rows = self.norm(self.word(input_ids) + self.position[:length]).reshape(batch * length, HIDDEN)
        for layer in self.layers:
            rows = layer(rows, mask, batch, length)
        # The mean differs from this sum by a factor, which the normalisation removes.
        total = (rows.reshape(batch, length, HIDDEN) * weight.unsqueeze(-1)).sum(dim=1)
        return total / torch.linalg.vector_norm(total, dim=1, keepdim=True).clamp(min=1e-12)


def build_encoder(weights_path: Path) -> Any:
    """Return the torch module of the encoder with pooling and normalisation, with the upstream weights."""
    return SentenceEncoder(UpstreamWeights(weights_path)).eval()


def smooth(encoder: Any, tokenizer_path: Path) -> None:
    """Rescale the channels that enter the products after a layer norm, and the weights inversely.

    A few channels are far larger than the others and would take the int8 range of a whole token for themselves. The
    factors are powers of two, so that float32 results do not change and rounding noise cannot change the file.
    """
    largest: dict[tuple[int, str], Any] = {}

    def recorder(key: tuple[int, str]) -> Any:
        def record(_layer: Any, inputs: tuple[Any, ...]) -> None:
            peak = inputs[0].abs().amax(dim=0)
            largest[key] = torch.maximum(largest[key], peak) if key in largest else peak

        return record

    handles = []
    for index, layer in enumerate(encoder.layers):
        for name in ("qkv", "up"):
            handles.append(getattr(layer, name).register_forward_pre_hook(recorder((index, name))))
    with torch.no_grad():
        for text in CALIBRATION_TEXTS:
            encoder(*(torch.from_numpy(array) for array in make_batch(tokenizer_path, (text,)).values()))
        for handle in handles:
            handle.remove()
        for (index, name), peak in largest.items():
            layer = encoder.layers[index]
            weight = getattr(layer, name).weight
            ratio = peak.clamp(min=1e-3) ** SMOOTHING / weight.abs().amax(dim=0).clamp(min=1e-3) ** (1 - SMOOTHING)
            factor = torch.exp2(torch.round(torch.log2(ratio)))
            getattr(layer, f"{name}_scale").copy_(1.0 / factor)
            weight.mul_(factor)


def export_float(encoder: Any) -> Any:
    """Export the encoder with torch's dynamo exporter, and return the ONNX model."""
    input_ids = torch.arange(1000, 1000 + 3 * 17).reshape(3, 17)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 9:] = 0
    axes = {0: torch.export.Dim("batch", min=1, max=1024), 1: torch.export.Dim("sequence", min=2, max=POSITIONS)}
    program = torch.onnx.export(
        encoder,
        (input_ids, attention_mask),
        dynamo=True,
        input_names=["input_ids", "attention_mask"],
        output_names=["sentence_embedding"],
        dynamic_shapes={"input_ids": axes, "attention_mask": axes},
        opset_version=OPSET,
        external_data=False,
        verbose=False,
    )
    return onnx.load_model_from_string(program.model_proto.SerializeToString())
