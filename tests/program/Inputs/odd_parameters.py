#!/usr/bin/env python3
"""Writes model.onnxtxt for the fixture mlp's batch, with parameters of every kind that a unit may hold.

    odd_parameters.py FOLDER

Three blocks of one width. Tied: the first block's matrix is used again after the last block and in the second. Frozen:
by --frozen '.*frozen.*'. Unused: spare.weight reaches no output; late.weight reaches one that is not the loss. Integer: a
permutation of features. 0-d: a gate per block. Mixed dtypes: a float64 bias.
"""
import pathlib, sys
import numpy as np
from dropout import write_model

WIDTH = 32
BODY = """
  start = MatMul(x, "blocks.0.shared.weight")
  t0 = Tanh(start)
"""
BLOCK = """
  p{i} = Gather<axis = 1>({x}, order)
  m{i} = MatMul(p{i}, "blocks.{i}.fc.weight")
  z{i} = MatMul(m{i}, "blocks.{i}.fc.frozen_weight")
  k{i} = Cast<to = 11>(z{i})
  b{i} = Add(k{i}, "blocks.{i}.fc.bias")
  f{i} = Cast<to = 1>(b{i})
  g{i} = Mul(f{i}, "blocks.{i}.gate")
  t{j} = Add({x}, g{i})
"""
END = """
  again = MatMul(t3, "blocks.0.shared.weight")
  both = Add(again, again_inside)
  logits = MatMul(both, "head.weight")
  late = MatMul(both, "late.weight")
  lost = MatMul(both, "spare.weight")
"""


def main():
    folder = pathlib.Path(sys.argv[1])
    weights = [("blocks.0.shared.weight", (WIDTH, WIDTH), 0.2), ("head.weight", (WIDTH, 10), 0.3),
               ("late.weight", (WIDTH, 2), 0.3), ("spare.weight", (WIDTH, 3), 0.3)]
    body = BODY
    for i in range(3):
        weights += [(f"blocks.{i}.fc.weight", (WIDTH, WIDTH), 0.2), (f"blocks.{i}.fc.frozen_weight", (WIDTH, WIDTH), 0.2),
                    (f"blocks.{i}.gate", (), 1.0)]
        body += BLOCK.format(i=i, j=i + 1, x=f"t{i}")
        if i == 1:
            body += '  again_inside = MatMul(t2, "blocks.0.shared.weight")\n'
    write_model(folder, "odd (float[B,32] x) => (float[B,10] logits, float[B,2] late)", weights, body + END)
    text = (folder / "model.onnxtxt").read_text()
    for name, shape, _ in weights:
        dims = ",".join(map(str, shape))
        text = text.replace(f"float[{dims}] {name} =", f'float{f"[{dims}]" if dims else ""} "{name}" =')
    order = ", ".join(str(i) for i in np.random.default_rng(1).permutation(WIDTH))
    others = f"int64[{WIDTH}] order = {{{order}}},\n " + "".join(
        f'double[{WIDTH}] "blocks.{i}.fc.bias" = {{{", ".join(["0.125"] * (WIDTH - 1) + [str(i)])}}},\n ' for i in range(3))
    (folder / "model.onnxtxt").write_text(text.replace("\n<", "\n<" + others, 1))


main()
