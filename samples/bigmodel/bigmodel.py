#!/usr/bin/python3
"""Writes an encoder as PyTorch exports one, as ONNX text without its weights, and made-up data to train it on:

    bigmodel.py MODEL.onnxtxt [--layers 48 --width 2048 --ffn 8192 --vocab 50000 --heads 16 --seq 512 --pre_norm] [--data F.safetensors]

The data are samples of a made-up language in which most tokens tell the next one, so a small network learns it in a few dozen steps.
"""
import argparse
import json
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from onnx_text import Model, layer_norm, linear


def attention(m, scope, x, a):
    """torch.nn.MultiheadAttention of [S, B, width], its default: one product for q, k and v, heads beside the batch."""
    head = a.width // a.heads
    qkv = linear(m, scope, x, a.width, 3 * a.width, "in_proj_weight", "in_proj_bias")
    qkv = m.op(scope, "Split", qkv, attributes="<axis = -1, num_outputs = 3> ", out=", ".join(f"v{len(m.nodes)}_{i}" for i in "qkv"))
    q, k, v = (m.op(scope, "Reshape", part, "split_heads") for part in qkv.split(", "))
    q = m.op(scope, "Mul", m.op(scope, "Transpose", q, attributes="<perm = [1, 2, 0, 3]> "), "scale")
    k = m.op(scope, "Transpose", k, attributes="<perm = [1, 2, 3, 0]> ")
    v = m.op(scope, "Transpose", v, attributes="<perm = [1, 2, 0, 3]> ")
    mixed = m.op(scope, "MatMul", m.op(scope, "Softmax", m.op(scope, "MatMul", q, k), attributes="<axis = -1> "), v)
    joined = m.op(scope, "Reshape", m.op(scope, "Transpose", mixed, attributes="<perm = [2, 0, 1, 3]> "), "join_heads")
    return linear(m, f"{scope}.out_proj", joined, a.width, a.width)


def mlp(m, scope, x, a):
    return linear(m, f"{scope}.linear2", m.op(scope, "Relu", linear(m, f"{scope}.linear1", x, a.width, a.ffn)), a.ffn, a.width)


def block(m, scope, x, a):
    for norm, part in (("norm1", lambda y: attention(m, f"{scope}.attn", y, a)), ("norm2", lambda y: mlp(m, scope, y, a))):
        if a.pre_norm:
            x = m.op(scope, "Add", x, part(layer_norm(m, f"{scope}.{norm}", x, a.width)))
        else:
            x = layer_norm(m, f"{scope}.{norm}", m.op(scope, "Add", x, part(x)), a.width)
    return x


def build(a):
    m = Model()
    head = a.width // a.heads
    m.constant(f"int64[4] split_heads = {{{a.seq}, -1, {a.heads}, {head}}}")
    m.constant(f"int64[3] join_heads = {{{a.seq}, -1, {a.width}}}")
    m.constant(f"float scale = {{{head ** -0.5!r}}}")
    x = m.op("embedding", "Gather", m.weight("embedding.weight", a.vocab, a.width), "tokens", attributes="<axis = 0> ")
    x = m.op("positions", "Add", x, m.weight("positions.weight", a.seq, a.width))
    x = m.op("layers", "Transpose", x, attributes="<perm = [1, 0, 2]> ")
    for i in range(a.layers):
        x = block(m, f"layers.{i}", x, a)
    x = m.op("layers", "Transpose", x, attributes="<perm = [1, 0, 2]> ")
    if a.pre_norm:
        x = layer_norm(m, "norm", x, a.width)
    logits = linear(m, "output", x, a.width, a.vocab)
    m.op("output", "Identity", logits, out="logits")
    return m


def save_data(path, a):
    """`samples` runs of a chain in which nine of ten tokens follow from the one before; labels are the next tokens."""
    dice = random.Random(0)
    successor = list(range(a.vocab))
    dice.shuffle(successor)
    tokens, labels = [], []
    for _ in range(a.samples):
        run = [dice.randrange(a.vocab)]
        while len(run) <= a.seq:
            run.append(successor[run[-1]] if dice.random() < 0.9 else dice.randrange(a.vocab))
        tokens += run[:-1]
        labels += run[1:]
    size = 8 * len(tokens)
    header = json.dumps({name: {"dtype": "I64", "shape": [a.samples, a.seq], "data_offsets": [at, at + size]}
                         for name, at in (("tokens", 0), ("labels", size))}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{2 * len(tokens)}q", *tokens, *labels))
    print(f"{path}: {a.samples} samples")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    for name, value in dict(layers=48, width=2048, ffn=8192, vocab=50000, heads=16, seq=512, samples=256).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--pre_norm", action="store_true", help="norms before attention and MLP, and one behind the last layer")
    p.add_argument("--data", type=pathlib.Path, help="also write --samples samples")
    a = p.parse_args()
    if a.width % a.heads:
        p.error(f"--heads {a.heads} does not divide --width {a.width}")
    build(a).save(a.out, f"bigmodel (int64[batch,{a.seq}] tokens) => (float[batch,{a.seq},{a.vocab}] logits)")
    if a.data:
        save_data(a.data, a)


if __name__ == "__main__":
    main()
