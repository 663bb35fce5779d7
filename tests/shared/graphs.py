"""A small ONNX graph in place of a gaze network of another project."""

from pathlib import Path

import numpy as np
import onnx
import yaml
from onnx import helper

SMALL = {"focal_length_px": 500.0, "distance_mm": 600.0, "width_px": 32, "height_px": 24}


def write_graph(path: Path, columns: int = 2) -> None:
    """Write a graph whose output is a product of the mean of each color, and its interface."""
    weight = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], np.float32)[:, :columns]
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["means"]),
        helper.make_node("MatMul", ["means", "weight"], ["gaze"]),
    ]
    given = helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["n", 3, 24, 32])
    found = helper.make_tensor_value_info("gaze", onnx.TensorProto.FLOAT, ["n", columns])
    graph = helper.make_graph(nodes, "graph", [given], [found], [onnx.numpy_helper.from_array(weight, "weight")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    path.with_suffix(".yaml").write_text(yaml.safe_dump({"camera": SMALL}))
