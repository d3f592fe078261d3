#!/usr/bin/python3
"""Writes a Llama of any size as ONNX text. Its weights are external and their file does not exist: planning looks at shapes only,
and a training program starts such weights by itself.

    write_llama.py MODEL.onnxtxt [--layers 32 --width 4096 --heads 32 --key_heads 8 --hidden 14336 --vocab 128256]

The defaults are Llama 3.1 8B; the 70B has --layers 80 --width 8192 --heads 64 --hidden 28672. The sequence length is the symbolic
dim `tokens`: give `--dim tokens=8192`.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from onnx_text import Model  # noqa: E402


def projection(m, scope, x, inputs, outputs):
    weight = m.weight(f"{scope}.weight", outputs, inputs)
    return m.op(scope, "MatMul", x, m.op(scope, "Transpose", weight, attributes="<perm = [1, 0]> "))


def rms_norm(m, scope, x, width):
    return m.op(scope, "RMSNormalization", x, m.weight(f"{scope}.weight", width), attributes="<axis = -1, epsilon = 1e-5> ")


def angles(m, a):
    """positions, cosines, sines: made from ranges, so that the file does not grow with the sequence."""
    half = a.width // a.heads // 2
    frequencies = ", ".join(repr(500000.0 ** (-i / half)) for i in range(half))
    m.constant(f"float[1,{half}] frequencies = {{{frequencies}}}")
    for name, value in (("zero", 0), ("one", 1)):
        m.constant(f"int64 {name} = {{{value}}}")
    m.constant("int64[1] last_axis = {1}")
    shape = m.op("rope", "Shape", "x")
    positions = m.op("rope", "Range", "zero", m.op("rope", "Gather", shape, "one"), "one")
    column = m.op("rope", "Unsqueeze", m.op("rope", "Cast", positions, attributes="<to = 1> "), "last_axis")
    turns = m.op("rope", "Mul", column, "frequencies")
    return m.op("rope", "Expand", positions, shape), m.op("rope", "Cos", turns), m.op("rope", "Sin", turns)


def attention(m, s, x, a, tables):
    positions, cosines, sines = tables
    keys = a.width // a.heads * a.key_heads
    q, k, v = (projection(m, f"{s}.{name}", x, a.width, size) for name, size in (("q", a.width), ("k", keys), ("v", keys)))
    q, k = (m.op(s, "RotaryEmbedding", part, cosines, sines, positions, attributes=f"<num_heads = {heads}> ")
            for part, heads in ((q, a.heads), (k, a.key_heads)))
    mixed = m.op(s, "Attention", q, k, v,
                 attributes=f"<is_causal = 1, q_num_heads = {a.heads}, kv_num_heads = {a.key_heads}> ")
    return projection(m, f"{s}.o", mixed, a.width, a.width)


def mlp(m, s, x, a):
    gate, up = (projection(m, f"{s}.{name}", x, a.width, a.hidden) for name in ("gate", "up"))
    gate = m.op(s, "Mul", gate, m.op(s, "Sigmoid", gate))
    return projection(m, f"{s}.down", m.op(s, "Mul", gate, up), a.hidden, a.width)


def build(a):
    m = Model(opset=23)
    tables = angles(m, a)
    x = m.op("embed", "Gather", m.weight("embed.weight", a.vocab, a.width), "x", attributes="<axis = 0> ")
    for i in range(a.layers):
        s = f"layers.{i}"
        x = m.op(s, "Add", x, attention(m, f"{s}.attention", rms_norm(m, f"{s}.attention_norm", x, a.width), a, tables))
        x = m.op(s, "Add", x, mlp(m, f"{s}.mlp", rms_norm(m, f"{s}.mlp_norm", x, a.width), a))
    head = m.op("head", "Transpose", m.weight("head.weight", a.vocab, a.width), attributes="<perm = [1, 0]> ")
    m.op("head", "MatMul", rms_norm(m, "norm", x, a.width), head, out="logits")
    return m


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    for name, value in dict(layers=32, width=4096, heads=32, key_heads=8, hidden=14336, vocab=128256).items():
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    build(a).save(a.out, f"llama (int64[batch,tokens] x) => (float[batch,tokens,{a.vocab}] logits)")


if __name__ == "__main__":
    main()
