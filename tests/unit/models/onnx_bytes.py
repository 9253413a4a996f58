#!/usr/bin/env python3
"""Prints the bytes that onnx_test expects, as the package `onnx` writes that model.

    build/release/venv/bin/python tests/unit/models/onnx_bytes.py    # that Python is of onnx_runtime_test
"""
import textwrap

import onnx
from onnx import TensorProto, helper

weight = TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[3, 2000], data_location=TensorProto.EXTERNAL)
small = TensorProto(name="b", data_type=TensorProto.BFLOAT16, dims=[3], data_location=TensorProto.EXTERNAL)
for tensor, offset, length in ((small, 0, 6), (weight, 4096, 12000)):
    for key, value in (("location", "m.data"), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
scale = TensorProto(name="s", data_type=TensorProto.FLOAT, raw_data=b"\0\0\xc0\x3f")
graph = helper.make_graph(
    [helper.make_node("Gemm", ["x", "w", ""], ["y"], name="n/Gemm.0", transB=1),
     helper.make_node("LayerNormalization", ["y", "s"], ["z"], name="n/LN.1", axis=-1, epsilon=1.5),
     helper.make_node("Transpose", ["z"], ["logits"], name="n/T.2", perm=[1, 300])],
    "trireme",
    [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch", 2000])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
    [small, weight, scale])
model = helper.make_model(graph, producer_name="trireme", opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
model.opset_import[0].ClearField("domain")  # empty means the same
helper.set_model_props(model, {"model.family": "gpt"})
print("\n".join(f'    "{line}"' for line in textwrap.wrap(model.SerializeToString(deterministic=True).hex(), 90)))
