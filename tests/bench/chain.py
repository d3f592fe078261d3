#!/usr/bin/python3
"""Writes a chain of alternating Add and Mul as ONNX text: chain.py FILE.onnxtxt [NODES]. Nothing in it can be folded."""
import sys

path, nodes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100000
with open(path, "w") as f:
    f.write('<ir_version: 10, opset_import: ["" : 20]>\nchain (float[batch,4] x) => (float[batch,4] y)\n')
    f.write("<float[4] w = {0.5, 1.5, 2.5, 3.5}>\n{\n  v0 = Mul (x, w)\n")
    for i in range(1, nodes):
        f.write(f"  {'y' if i == nodes - 1 else f'v{i}'} = {'Add' if i % 2 else 'Mul'} (v{i - 1}, x)\n")
    f.write("}\n")
