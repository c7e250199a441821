"""Build the packaged sentence-embedding model: all-MiniLM-L6-v2 as one int8 ONNX file.

Run as ``python -m retrievers.embed.export_minilm --weights DIR --out DIR``, where the weights folder holds the upstream
``config.json``, ``model.safetensors`` and ``tokenizer.json``. Needs torch, onnx, onnxscript, onnxruntime, safetensors,
tokenizers and transformers; none of them but onnxruntime and tokenizers is needed to use the result.

The graph takes ``input_ids`` and ``attention_mask`` (int64, [batch, sequence]) and gives ``sentence_embedding``
(float32, [batch, 384]): mean pooling over the mask and L2 normalisation are inside it. Steps:

1. the encoder is written out in torch with Q, K and V as one product and the tokens of a batch as rows of one matrix;
2. inputs of the products that have outlying channels are rescaled per channel by powers of two, the weights inversely
   (exact in float32, and it makes the rows easier to quantise);
3. torch's dynamo exporter turns it into ONNX;
4. weights become int8 with one scale per output channel (per row for the word table), and activations are quantised
   while running with one scale per token. A scale per token, where onnxruntime's own dynamic quantisation has one per
   tensor, keeps a text's vector independent of what else is in its batch, and is nearer to float32;
5. the result is compared with the float32 reference of transformers, and refused if it is too far from it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HIDDEN, HEADS, LAYERS, VOCABULARY, POSITIONS = 384, 12, 6, 30522, 512
LAYER_NORM_EPS = 1e-12
MAX_TOKENS = 256
OPSET = 20
MASKED = -10000.0  # added to the attention scores of padding
SMOOTHING = 0.5  # how much of the outliers moves from activations (1.0: all of it) to weights
MIN_FLOAT_COSINE = 0.99999  # float32 export against the reference, and a text alone against it in a padded batch
MIN_INT8_COSINE = 0.99  # packaged model against the reference, worst text
MIN_INT8_MEAN = 0.995  # packaged model against the reference, mean
MIN_BATCH_COSINE = 0.9999  # packaged model, a text alone against it in a padded batch

CALIBRATION_TEXTS = (
    "How do I retry a failed request with exponential backoff?",
    "where is the connection pool configured",
    "hello",
    "The scheduler keeps a heap of pending jobs ordered by their next run time. A worker takes the first job whose "
    "time has come, marks it as running, and puts it back with a new time once it has finished; a job that fails is "
    "tried again after a delay that doubles each time, up to one hour.",
    'def read_config(path: str) -> dict[str, object]:\n    """Return the parsed settings, or the defaults."""\n'
    '    try:\n        with open(path, encoding="utf-8") as handle:\n            return json.load(handle)\n'
    "    except FileNotFoundError:\n        return dict(DEFAULTS)\n",
    "Traceback (most recent call last):\n  File 'server.py', line 210, in handle\n    rows = cursor.fetchmany(64)\n"
    "OperationalError: database is locked (timeout after 5.0 s, 3 retries)",
    "# Installation\n\nInstall the package with `pip install example`, then run `example init` in the project folder. "
    "Requires Python 3.11 or newer. License: Apache-2.0. Classifier: Development Status :: 4 - Beta",
    "Paris is the capital and largest city of France, with an estimated population of about two million residents in "
    "an area of more than 105 square kilometres; since the 17th century it has been one of the world's major centres "
    "of finance, diplomacy, commerce, culture, fashion, and gastronomy.",
    "2024-03-18T09:41:07Z WARN cache: evicted 1284 entries (oldest 3600 s), hit ratio 0.87, memory 512 MiB of 640 MiB",
    "SELECT u.id, count(*) AS n FROM users AS u JOIN orders AS o ON o.user_id = u.id WHERE o.total > 100 GROUP BY u.id "
    "HAVING count(*) >= 3 ORDER BY n DESC LIMIT 20;",
    "Thanks for the review! I have split the change in two: the first part only renames the field, the second one adds "
    "the migration. Tests pass locally, but the nightly build still fails on Windows because of the path separator.",
    '{"name": "example", "version": "1.2.0", "dependencies": {"left": "^2.0.1", "right": "~0.9"}, "private": true}',
    "Water boils at a lower temperature on a mountain, since the air pressure is lower there; that is why pasta takes "
    "longer to cook, and why recipes for high places ask for more time or for a pressure cooker.",
    "The garbage collector runs when the number of allocations minus the number of deallocations exceeds a threshold. "
    "Objects that survive a collection move to an older generation, which is examined less often.",
    "tokens, embeddings, cosine similarity, approximate nearest neighbours, inverted index, BM25, reranking",
    "Der Zug nach München fährt heute von Gleis 7. Le train pour Paris partira à 8 h 30. 東京は日本の首都です。",
)
_PROSE = (
    "An index maps each term to the list of documents that contain it. At query time the lists of the query's terms "
    "are merged, each document receives a score from the frequency and the rarity of the terms, and the best ones are "
    "kept in a small heap. A vector index answers another question: which documents lie near the query in a space "
    "learnt from pairs of similar sentences, whether or not they share a word with it. "
)
CHECK_TEXTS = (
    "hi",
    "what does the cache evict first",
    "rate limit retry with backoff",
    "Why is the sky blue?",
    _PROSE,
    "for row in reader:\n    total[row['country']] += float(row['amount'] or 0)\nprint(sorted(total.items()))",
    "The pump must be switched off and cooled for ten minutes before the filter is opened; rinse it in clear water, "
    "let it dry, and write the date in the log book. " + _PROSE,
    _PROSE * 6,
)


def _module(name: str) -> Any:
    """Import a library only needed while exporting."""
    return importlib.import_module(name)


def verify_weights(folder: Path) -> Path:
    """Return the path of the weights, after comparing their sha256 with the known one."""
    path = folder / "model.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise SystemExit(f"{path.name}: sha256 {digest}, expected {WEIGHTS_SHA256}")
    return path


def write_tokenizer(folder: Path, out: Path) -> Path:
    """Copy tokenizer.json without its truncation and padding settings, which are the loader's to choose."""
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
    np = _module("numpy")
    tokenizer = _module("tokenizers").Tokenizer.from_file(str(tokenizer_path))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    encoded = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([item.ids for item in encoded], dtype=np.int64),
        "attention_mask": np.array([item.attention_mask for item in encoded], dtype=np.int64),
    }


def build_encoder(weights_path: Path) -> Any:
    """Return the torch module of the encoder with pooling and normalisation, with the upstream weights."""
    torch = _module("torch")
    nn = torch.nn
    Module: Any = nn.Module
    state = _module("safetensors.torch").load_file(str(weights_path))

    def parameters(prefix: str) -> dict[str, Any]:
        return {name: state[f"{prefix}.{name}"] for name in ("weight", "bias")}

    def linear(part: dict[str, Any]) -> Any:
        rows, columns = part["weight"].shape
        result = nn.Linear(columns, rows)
        result.load_state_dict(part)
        return result

    def layer_norm(prefix: str) -> Any:
        result = nn.LayerNorm(HIDDEN, eps=LAYER_NORM_EPS)
        result.load_state_dict(parameters(prefix))
        return result

    def joined_qkv(prefix: str) -> dict[str, Any]:
        """Q, K and V as one matrix, with the scale of the scores folded into Q."""
        scale = (HIDDEN // HEADS) ** -0.5
        query, key, value = (parameters(f"{prefix}.{name}") for name in ("query", "key", "value"))
        return {name: torch.cat([query[name] * scale, key[name], value[name]]) for name in ("weight", "bias")}

    class Layer(Module):  # type: ignore[misc]
        """One transformer layer over the tokens of the whole batch as rows."""

        def __init__(self, index: int) -> None:
            super().__init__()
            prefix = f"encoder.layer.{index}"
            self.qkv = linear(joined_qkv(f"{prefix}.attention.self"))
            self.out = linear(parameters(f"{prefix}.attention.output.dense"))
            self.up = linear(parameters(f"{prefix}.intermediate.dense"))
            self.down = linear(parameters(f"{prefix}.output.dense"))
            self.attention_norm = layer_norm(f"{prefix}.attention.output.LayerNorm")
            self.output_norm = layer_norm(f"{prefix}.output.LayerNorm")
            self.register_buffer("qkv_scale", torch.ones(HIDDEN))
            self.register_buffer("up_scale", torch.ones(HIDDEN))

        def forward(self, rows: Any, mask: Any, batch: Any, length: Any) -> Any:
            parts = self.qkv(rows * self.qkv_scale).split(HIDDEN, dim=1)
            query, key, value = (p.reshape(batch, length, HEADS, HIDDEN // HEADS).transpose(1, 2) for p in parts)
            attention = torch.softmax(query @ key.transpose(2, 3) + mask, dim=-1)
            context = (attention @ value).transpose(1, 2).reshape(batch * length, HIDDEN)
            rows = self.attention_norm(self.out(context) + rows)
            inner = nn.functional.gelu(self.up(rows * self.up_scale))
            return self.output_norm(self.down(inner) + rows)

    class Encoder(Module):  # type: ignore[misc]
        """Embeddings, layers, mean pooling over the mask, L2 normalisation."""

        def __init__(self) -> None:
            super().__init__()
            self.word = nn.Embedding.from_pretrained(state["embeddings.word_embeddings.weight"])
            token_type = state["embeddings.token_type_embeddings.weight"][0]
            self.position = nn.Parameter(state["embeddings.position_embeddings.weight"] + token_type)
            self.norm = layer_norm("embeddings.LayerNorm")
            self.layers = nn.ModuleList(Layer(index) for index in range(LAYERS))

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            batch, length = input_ids.shape
            weight = attention_mask.to(torch.float32)
            mask = ((1.0 - weight) * MASKED).reshape(batch, 1, 1, length)
            rows = self.norm(self.word(input_ids) + self.position[:length]).reshape(batch * length, HIDDEN)
            for layer in self.layers:
                rows = layer(rows, mask, batch, length)
            # The mean differs from this sum by a factor, which the normalisation removes.
            total = (rows.reshape(batch, length, HIDDEN) * weight.unsqueeze(-1)).sum(dim=1)
            return total / torch.linalg.vector_norm(total, dim=1, keepdim=True).clamp(min=1e-12)

    return Encoder().eval()


def smooth(encoder: Any, tokenizer_path: Path) -> None:
    """Rescale the channels that enter the products after a layer norm, and the weights inversely.

    A few channels are far larger than the others and would take the int8 range of a whole token for themselves. The
    factors are powers of two, so that float32 results do not change and rounding noise cannot change the file.
    """
    torch = _module("torch")
    largest: dict[tuple[int, str], Any] = {}

    def recorder(key: tuple[int, str]) -> Any:
        def record(_module: Any, inputs: tuple[Any, ...]) -> None:
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
    torch, onnx = _module("torch"), _module("onnx")
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


def quantise_columns(weight: Any) -> tuple[Any, Any]:
    """Quantise a matrix [inputs, outputs] to int8 with one scale per column; return both.

    Processors without a dot-product instruction for int8 add the products of two neighbouring rows in 16 bits, which
    must not overflow: 255 * (a + b) fits if a + b is at most 128, so the scale also bounds such sums.
    """
    np = _module("numpy")
    pairs = np.abs(weight[0::2] + weight[1::2])
    scale = (np.maximum(np.abs(weight).max(axis=0), pairs.max(axis=0)) / 127).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def quantise_rows(table: Any) -> tuple[Any, Any]:
    """Quantise an embedding table to int8 with one scale per row; return both."""
    np = _module("numpy")
    scale = (np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-9) / 127).astype(np.float32)
    return np.rint(table / scale).astype(np.int8), scale


class Quantiser:
    """Rewrite a float32 graph: products by constants and the word table become int8."""

    def __init__(self, model: Any) -> None:
        onnx = _module("onnx")
        self.np = _module("numpy")
        self.helper, self.numpy_helper, self.types = onnx.helper, onnx.numpy_helper, onnx.TensorProto
        self.model = model
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes: list[Any] = []
        self.prefix = ""

    def constant(self, name: str, value: Any) -> str:
        """Add a constant to the graph."""
        self.constants[name] = self.numpy_helper.from_array(value, name)
        return name

    def take(self, name: str) -> Any:
        """Take a constant out of the graph."""
        return self.numpy_helper.to_array(self.constants.pop(name))

    def emit(self, operator: str, inputs: list[str], result: str, **attributes: Any) -> str:
        """Add a node, named after its result."""
        self.nodes.append(self.helper.make_node(operator, inputs, [result], name=result, **attributes))
        return result

    def gather(self, node: Any) -> None:
        """Look words up in the int8 table and its scales."""
        table, indices = node.input
        values, scales = quantise_rows(self.take(table))
        prefix = node.output[0]
        codes = self.emit("Gather", [self.constant(f"{table}_int8", values), indices], f"{prefix}_codes")
        scale = self.emit("Gather", [self.constant(f"{table}_scale", scales), indices], f"{prefix}_scale")
        self.emit("Mul", [self.emit("Cast", [codes], f"{prefix}_float", to=self.types.FLOAT), scale], prefix)

    def product(self, node: Any) -> None:
        """Quantise each row of the input by its largest value, multiply in int8, scale back, add the bias."""
        rows, weight, bias = node.input
        values, scales = quantise_columns(self.take(weight).T)
        prefix = node.output[0]
        peak = self.emit("ReduceMax", [self.emit("Abs", [rows], f"{prefix}_abs"), "axis_1"], f"{prefix}_peak")
        scale = self.emit("Mul", [peak, "inverse_127"], f"{prefix}_raw_scale")
        scale = self.emit("Max", [scale, "smallest_scale"], f"{prefix}_scale")
        flat = self.emit("Squeeze", [scale, "axis_1"], f"{prefix}_flat_scale")
        if all(made.name != "row_zero_points" for made in self.nodes):
            self.emit("Expand", ["zero_point", self.emit("Shape", [flat], "row_count")], "row_zero_points")
        codes = self.emit("QuantizeLinear", [rows, flat, "row_zero_points"], f"{prefix}_codes", axis=0)
        inputs = [codes, self.constant(f"{weight}_int8", values), "one", self.constant(f"{weight}_scale", scales)]
        inputs.append("zero_point")
        result = self.emit("MatMulIntegerToFloat", inputs, f"{prefix}_product", domain="com.microsoft")
        self.emit("Add", [self.emit("Mul", [result, scale], f"{prefix}_scaled"), bias], prefix)

    def run(self) -> Any:
        """Rewrite the graph and return the model."""
        np = self.np
        self.constant("axis_1", np.array([1], dtype=np.int64))
        self.constant("inverse_127", np.float32(1 / 127))
        self.constant("smallest_scale", np.float32(1e-9))
        self.constant("one", np.float32(1))
        self.constant("zero_point", np.uint8(128))
        counts = {"Gather": 0, "Gemm": 0}
        for node in self.model.graph.node:
            if node.op_type == "Gather" and list(self.constants[node.input[0]].dims) == [VOCABULARY, HIDDEN]:
                self.gather(node)
                counts["Gather"] += 1
            elif node.op_type == "Gemm":
                self.product(node)
                counts["Gemm"] += 1
            else:
                self.nodes.append(node)
        if counts != {"Gather": 1, "Gemm": 4 * LAYERS}:
            raise SystemExit(f"the exporter gave another graph than expected: {counts}")
        graph = self.helper.make_graph(
            self.nodes, "minilm", self.model.graph.input, self.model.graph.output, list(self.constants.values())
        )
        opsets = [self.helper.make_opsetid("", OPSET), self.helper.make_opsetid("com.microsoft", 1)]
        return self.helper.make_model(graph, opset_imports=opsets, ir_version=self.model.ir_version)


def strip(model: Any) -> Any:
    """Remove documentation and metadata, which vary from one run or version to the next."""
    graph = model.graph
    model.producer_name = model.producer_version = model.doc_string = graph.doc_string = ""
    for item in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del item.metadata_props[:]
        item.doc_string = ""
    del graph.value_info[:]
    return model


def run_onnx(model: bytes, batch: dict[str, Any]) -> Any:
    """Run a serialised model on one batch."""
    runtime = _module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 2
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(["sentence_embedding"], batch)[0]


def reference_vectors(weights: Path, tokenizer_path: Path, texts: tuple[str, ...]) -> Any:
    """Embed texts one at a time with transformers in float32."""
    np, torch, transformers = _module("numpy"), _module("torch"), _module("transformers")
    model = transformers.BertModel.from_pretrained(str(weights), local_files_only=True).eval()
    vectors = []
    with torch.no_grad():
        for text in texts:
            batch = {name: torch.from_numpy(array) for name, array in make_batch(tokenizer_path, (text,)).items()}
            mean = model(**batch).last_hidden_state[0].mean(dim=0)
            vectors.append((mean / mean.norm()).numpy())
    return np.stack(vectors)


def check(float_model: bytes, int8_model: bytes, weights: Path, tokenizer_path: Path) -> bool:
    """Compare both models with the reference, alone and in a padded batch. Print figures; return whether all pass."""
    np = _module("numpy")
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
    _module("torch").manual_seed(0)
    encoder = build_encoder(weights_path)
    smooth(encoder, tokenizer_path)
    float_model = export_float(encoder)
    float_bytes = float_model.SerializeToString()
    int8_model = strip(Quantiser(float_model).run())
    _module("onnx").checker.check_model(int8_model)
    int8_bytes: bytes = int8_model.SerializeToString(deterministic=True)
    if not check(float_bytes, int8_bytes, options.weights, tokenizer_path):
        print("the model is too far from the reference: not written", file=sys.stderr)
        return 1
    (options.out / "model.onnx").write_bytes(int8_bytes)
    print(f"model.onnx: {len(int8_bytes)} bytes, sha256 {hashlib.sha256(int8_bytes).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
