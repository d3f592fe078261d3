#!/usr/bin/python3
"""Writes a GPT-2-shaped model as ONNX text with external random weights, and one global batch.

    gpt_model.py OUTDIR [--layers 6 --width 384 --heads 6 --seq 256 --vocab 512 --batch 8 --ranks 2]

Writes OUTDIR/model.onnxtxt, OUTDIR/weights.bin, OUTDIR/batch.safetensors. Learned positions, pre-LayerNorm, tanh GELU, causal
attention in small ops as exporters write it, head tied to the embedding, no dropout. The defaults are workload W2 of the peers.
"""
import argparse
import json
import pathlib
import numpy as np


class Model:
    """`random` None: the file of weights is all zeros and uses no disk space."""

    def __init__(self, out, random):
        self.nodes, self.initializers, self.offset, self.random = [], [], 0, random
        self.weights = open(out / "weights.bin", "wb")

    def weight(self, name, shape, std=None, fill=0.0):
        length = 4 * int(np.prod(shape))
        if self.random:
            data = self.random.standard_normal(shape).astype("<f4") * std if std else np.full(shape, fill, "<f4")
            self.weights.write(data.tobytes())
        else:
            self.weights.truncate(self.offset + length)
        dims = ",".join(map(str, shape))
        self.initializers.append(f'float[{dims}] {self.quoted(name)} = ["location": "weights.bin", '
                                 f'"offset": "{self.offset}", "length": "{length}"]')
        self.offset += length
        return name

    @staticmethod
    def quoted(name):
        return '"' + name + '"' if not name.replace("_", "a").isalnum() else name

    def ints(self, name, values):
        self.initializers.append(f"int64[{len(values)}] {name} = {{{', '.join(map(str, values))}}}")
        return name

    def op(self, scope, op, inputs, attributes="", outputs=None):
        outputs = outputs or [f"v{len(self.nodes)}"]
        arguments = ", ".join(self.quoted(i) for i in inputs)
        path = "/".join(scope.split(".")) if scope else "model"
        self.nodes.append(f'["/{path}/{op}_{len(self.nodes)}"] {", ".join(outputs)} = {op}{attributes} ({arguments})')
        return outputs[0] if len(outputs) == 1 else outputs


def linear(m, scope, x, inputs, outputs):
    w = m.weight(f"{scope}.weight", (outputs, inputs), std=0.02)
    b = m.weight(f"{scope}.bias", (outputs,))
    return m.op(scope, "Add", [m.op(scope, "MatMul", [x, m.op(scope, "Transpose", [w], " <perm = [1, 0]>")]), b])


def layer_norm(m, scope, x, width):
    return m.op(scope, "LayerNormalization",
                [x, m.weight(f"{scope}.weight", (width,), fill=1.0), m.weight(f"{scope}.bias", (width,))],
                " <axis = -1, epsilon = 1e-5>")


def attention(m, scope, x, a):
    head = a.width // a.heads
    qkv = m.op(scope, "Reshape", [linear(m, f"{scope}.qkv", x, a.width, 3 * a.width), "split_heads"])
    qkv = m.op(scope, "Transpose", [qkv], " <perm = [2, 0, 3, 1, 4]>")
    parts = [m.op(scope, "Gather", [qkv, f"index{i}"], " <axis = 0>") for i in range(3)]
    scores = m.op(scope, "MatMul", [parts[0], m.op(scope, "Transpose", [parts[1]], " <perm = [0, 1, 3, 2]>")])
    scores = m.op(scope, "Add", [m.op(scope, "Mul", [scores, "scale"]), "mask"])
    mixed = m.op(scope, "MatMul", [m.op(scope, "Softmax", [scores], " <axis = -1>"), parts[2]])
    joined = m.op(scope, "Reshape", [m.op(scope, "Transpose", [mixed], " <perm = [0, 2, 1, 3]>"), "join_heads"])
    return linear(m, f"{scope}.proj", joined, a.width, a.width)


def mlp(m, scope, x, a):
    up = linear(m, f"{scope}.up", x, a.width, 4 * a.width)
    return linear(m, f"{scope}.down", m.op(scope, "Gelu", [up], ' <approximate = "tanh">'), 4 * a.width, a.width)


def build(a, out, random):
    m = Model(out, random)
    wte, wpe = m.weight("wte.weight", (a.vocab, a.width), std=0.02), m.weight("wpe.weight", (a.seq, a.width), std=0.02)
    head = a.width // a.heads
    m.ints("split_heads", [0, a.seq, 3, a.heads, head])
    m.ints("join_heads", [0, a.seq, a.width])
    for i in range(3):
        m.initializers.append(f"int64 index{i} = {{{i}}}")
    m.initializers.append(f"float scale = {{{head ** -0.5!r}}}")
    mask = ", ".join("0" if j <= i else "-1e9" for i in range(a.seq) for j in range(a.seq))
    m.initializers.append(f"float[{a.seq},{a.seq}] mask = {{{mask}}}")
    x = m.op("wte", "Add", [m.op("wte", "Gather", [wte, "x"], " <axis = 0>"), wpe])
    for i in range(a.layers):
        s = f"layers.{i}"
        x = m.op(s, "Add", [x, attention(m, s, layer_norm(m, f"{s}.ln1", x, a.width), a)])
        x = m.op(s, "Add", [x, mlp(m, s, layer_norm(m, f"{s}.ln2", x, a.width), a)])
    x = layer_norm(m, "ln_f", x, a.width)
    m.op("", "MatMul", [x, m.op("", "Transpose", [wte], " <perm = [1, 0]>")], outputs=["logits"])
    m.weights.close()
    text = f'<ir_version: 10, opset_import: ["" : 20]>\ngpt (int64[batch,{a.seq}] x) => (float[batch,{a.seq},{a.vocab}] logits)\n'
    text += "<\n  " + ",\n  ".join(m.initializers) + "\n>\n{\n  " + "\n  ".join(m.nodes) + "\n}\n"
    (out / "model.onnxtxt").write_text(text)


def write_batch(a, out):
    ids = np.random.default_rng(1).integers(0, a.vocab, (a.batch * a.ranks, a.seq + 1))
    tensors = {"x": np.ascontiguousarray(ids[:, :-1]), "labels": np.ascontiguousarray(ids[:, 1:])}
    header, offset = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "I64", "shape": list(t.shape), "data_offsets": [offset, offset + t.nbytes]}
        offset += t.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(out / "batch.safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for t in tensors.values():
            f.write(t.astype("<i8").tobytes())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    for name, value in dict(layers=6, width=384, heads=6, seq=256, vocab=512, batch=8, ranks=2).items():
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    build(a, a.out, np.random.default_rng(0))
    write_batch(a, a.out)


if __name__ == "__main__":
    main()
