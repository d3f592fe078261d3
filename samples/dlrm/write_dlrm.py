#!/usr/bin/env python3
"""Writes a recommender (DLRM) as ONNX text without its weights, and made-up data to train it on:

    write_dlrm.py MODEL.onnxtxt [--tables 4 --rows 1000000 --width 64 --dense 13 --hidden 64] [--data F.safetensors --samples 4096]

Each sample has dense features and a row of every table. The label depends on one dense feature and on the rows. Standard library only."""
import argparse
import array
import json
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from onnx_text import Model, linear


def build(a):
    m = Model()
    bottom = m.op("bottom", "Relu", linear(m, "bottom.0", "dense", a.dense, a.width))
    rows = [m.op(f"tables.{i}", "Gather", m.weight(f"tables.{i}.weight", a.rows, a.width), f"ids{i}") for i in range(a.tables)]
    both = m.op("top", "Concat", bottom, *rows, attributes="<axis = 1> ")
    top = m.op("top", "Relu", linear(m, "top.0", both, a.width * (a.tables + 1), a.hidden))
    m.op("top", "Identity", linear(m, "top.2", top, a.hidden, 1), out="logits")
    return m


def save_data(path, a):
    dice = random.Random(0)
    dense = array.array("f", (dice.gauss(0, 1) for _ in range(a.samples * a.dense)))
    ids = [array.array("q", (dice.randrange(a.rows) for _ in range(a.samples))) for _ in range(a.tables)]
    labels = array.array("f", (float(dense[s * a.dense] + sum(own[s] % 2 for own in ids) > a.tables / 2) for s in range(a.samples)))
    tensors = [("dense", "F32", [a.samples, a.dense], dense), *((f"ids{i}", "I64", [a.samples], own) for i, own in enumerate(ids)),
               ("labels", "F32", [a.samples, 1], labels)]
    header, at = {}, 0
    for name, dtype, shape, values in tensors:
        size = len(values) * values.itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for _, _, _, values in tensors))
    print(f"{path}: {a.samples} samples")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    for name, value in dict(tables=4, rows=1000000, width=64, dense=13, hidden=64, samples=4096).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--data", type=pathlib.Path, help="also write --samples samples")
    a = p.parse_args()
    inputs = ", ".join([f"float[batch,{a.dense}] dense", *(f"int64[batch] ids{i}" for i in range(a.tables))])
    build(a).save(a.out, f"dlrm ({inputs}) => (float[batch,1] logits)")
    if a.data:
        save_data(a.data, a)


if __name__ == "__main__":
    main()
