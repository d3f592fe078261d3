#!/usr/bin/python3
"""Writes a GPT-2-shaped transformer of a billion parameters as ONNX text. Its weights are external and their file does not exist:
enough for `fsdpc estimate` and `fsdpc --dry_run`, which look at shapes only.

    transformer_1b.py MODEL.onnxtxt [--layers 18 --width 2048 --heads 16 --seq 1024 --vocab 50304]
"""
import argparse
import pathlib

from onnx_text import Model, layer_norm, linear


def attention(m, scope, x, width):
    qkv = m.op(scope, "Reshape", linear(m, f"{scope}.qkv", x, width, 3 * width), "split_heads")
    qkv = m.op(scope, "Transpose", qkv, attributes="<perm = [2, 0, 3, 1, 4]> ")
    q, k, v = (m.op(scope, "Gather", qkv, f"index{i}", attributes="<axis = 0> ") for i in range(3))
    scores = m.op(scope, "MatMul", q, m.op(scope, "Transpose", k, attributes="<perm = [0, 1, 3, 2]> "))
    scores = m.op(scope, "Add", m.op(scope, "Mul", scores, "scale"), "mask")
    mixed = m.op(scope, "MatMul", m.op(scope, "Softmax", scores, attributes="<axis = -1> "), v)
    joined = m.op(scope, "Reshape", m.op(scope, "Transpose", mixed, attributes="<perm = [0, 2, 1, 3]> "), "join_heads")
    return linear(m, f"{scope}.proj", joined, width, width)


def mlp(m, scope, x, width):
    up = m.op(scope, "Gelu", linear(m, f"{scope}.up", x, width, 4 * width), attributes='<approximate = "tanh"> ')
    return linear(m, f"{scope}.down", up, 4 * width, width)


def build(a):
    m = Model()
    head = a.width // a.heads
    m.constant(f"int64[5] split_heads = {{0, {a.seq}, 3, {a.heads}, {head}}}")
    m.constant(f"int64[3] join_heads = {{0, {a.seq}, {a.width}}}")
    m.constant(f"int64[2] square = {{{a.seq}, {a.seq}}}")
    for i in range(3):
        m.constant(f"int64 index{i} = {{{i}}}")
    m.constant(f"float scale = {{{head ** -0.5!r}}}")
    m.constant("float one = {1}")
    m.constant("float hidden = {-1e9}")
    keep = m.op("mask", "Trilu", m.op("mask", "ConstantOfShape", "square", attributes="<value = float[1] {1}> "),
                attributes="<upper = 0> ")
    m.op("mask", "Mul", m.op("mask", "Sub", "one", keep), "hidden", out="mask")
    table = m.weight("wte.weight", a.vocab, a.width)
    x = m.op("wte", "Gather", table, "x", attributes="<axis = 0> ")
    x = m.op("wpe", "Add", x, m.weight("wpe.weight", a.seq, a.width))
    for i in range(a.layers):
        s = f"layers.{i}"
        x = m.op(s, "Add", x, attention(m, f"{s}.attn", layer_norm(m, f"{s}.ln1", x, a.width), a.width))
        x = m.op(s, "Add", x, mlp(m, f"{s}.mlp", layer_norm(m, f"{s}.ln2", x, a.width), a.width))
    x = layer_norm(m, "ln_f", x, a.width)
    m.op("head", "MatMul", x, m.op("head", "Transpose", table, attributes="<perm = [1, 0]> "), out="logits")
    return m


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    for name, value in dict(layers=18, width=2048, heads=16, seq=1024, vocab=50304).items():
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    m = build(a)
    m.save(a.out, f"transformer (int64[batch,{a.seq}] x) => (float[batch,{a.seq},{a.vocab}] logits)")


if __name__ == "__main__":
    main()
