#!/usr/bin/env python3
"""Writes a model that adds a table of 64 x 32 numbers and multiplies, its table as bytes, a batch, and the loss of that batch.

    large_constants.py FOLDER     graph.onnxtxt, table.bin, batch.safetensors, loss.txt
"""
import json, pathlib, struct, sys
import numpy

folder = pathlib.Path(sys.argv[1])
random = numpy.random.default_rng(1)
table = random.standard_normal((64, 32)).astype(numpy.float32)
weight = random.standard_normal((32, 4)).astype(numpy.float32)


def numbers(values):
    return "{" + ", ".join(repr(float(value)) for value in values.ravel()) + "}"


(folder / "graph.onnxtxt").write_text(f"""<ir_version: 8, opset_import: ["" : 17]>
main (float[N,64,32] x) => (float[N,64,4] y) <float[32,4] weight = {numbers(weight)}> {{
  table = Constant <value = float[64,32] {numbers(table)}> ()
  moved = Add (x, table)
  y = MatMul (moved, weight)
}}
""")
(folder / "table.bin").write_bytes(table.tobytes())
x = random.standard_normal((2, 64, 32)).astype(numpy.float32)
labels = random.standard_normal((2, 64, 4)).astype(numpy.float32)
header, body = {}, b""
for name, values in (("x", x), ("labels", labels)):
    header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(body), len(body) + values.nbytes]}
    body += values.tobytes()
text = json.dumps(header).encode()
(folder / "batch.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
result = (x.astype(numpy.float64) + table) @ weight
(folder / "loss.txt").write_text(f"{numpy.mean((result - labels) ** 2):.4f}\n")
