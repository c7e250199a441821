"""Quantise the weights of a float32 ONNX model to int8."""

from typing import Any

import numpy as np
import onnx

from evals.minilm.encoder import HIDDEN, LAYERS, OPSET, VOCABULARY


def quantise_columns(weight: Any) -> tuple[Any, Any]:
    """Quantise a matrix [inputs, outputs] to int8 with one scale per column; return (int8 matrix, scales).

    Processors without a dot-product instruction for int8 add the products of two neighbouring rows in 16 bits, which
    must not overflow: 255 * (a + b) fits if a + b is at most 128, so the scale also bounds such sums.
    """
    pairs = np.abs(weight[0::2] + weight[1::2])
    scale = (np.maximum(np.abs(weight).max(axis=0), pairs.max(axis=0)) / 127).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def quantise_rows(table: Any) -> tuple[Any, Any]:
    """Quantise an embedding table to int8 with one scale per row; return (int8 table, scales)."""
    scale = (np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-9) / 127).astype(np.float32)
    return np.rint(table / scale).astype(np.int8), scale


class Quantiser:
    """Rewrite a float32 graph: products by constants and the word table become int8."""

    def __init__(self, model: Any) -> None:
        self.helper, self.numpy_helper, self.types = onnx.helper, onnx.numpy_helper, onnx.TensorProto
        self.model = model
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes: list[Any] = []
        self.prefix = ""

    def constant(self, name: str, value: Any) -> str:
        """Add a constant to the graph; return its name."""
        self.constants[name] = self.numpy_helper.from_array(value, name)
        return name

    def take(self, name: str) -> Any:
        """Remove a constant from the graph; return its value."""
        return self.numpy_helper.to_array(self.constants.pop(name))

    def emit(self, operator: str, inputs: list[str], result: str, **attributes: Any) -> str:
        """Add a node with one result; return the name of the result, which the node has, too."""
        self.nodes.append(self.helper.make_node(operator, inputs, [result], name=result, **attributes))
        return result

    def gather(self, node: Any) -> None:
        """Replace the look-up of words by one in an int8 table with scales."""
        table, indices = node.input
        values, scales = quantise_rows(self.take(table))
        prefix = node.output[0]
        codes = self.emit("Gather", [self.constant(f"{table}_int8", values), indices], f"{prefix}_codes")
        scale = self.emit("Gather", [self.constant(f"{table}_scale", scales), indices], f"{prefix}_scale")
        self.emit("Mul", [self.emit("Cast", [codes], f"{prefix}_float", to=self.types.FLOAT), scale], prefix)

    def product(self, node: Any) -> None:
        """Replace a product: quantise each input row by its largest value, multiply, scale back, add the bias."""
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
