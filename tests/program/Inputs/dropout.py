#!/usr/bin/env python3
"""Models with Dropout, and checks of their programs.

    dropout.py layouts FOLDER            model.onnxtxt for the fixture mlp's batch: the batch on axis 0, on axis 1, merged with others
    dropout.py masks FOLDER              model.onnxtxt and batch.safetensors whose training shows every mask bit
    dropout.py check_masks SEED WEIGHTS  ... of that model after 0, 1, 2, ... steps: the bits are the documented ones and look random
    dropout.py nudge IN OUT BY           weights moved by BY along a direction that is the same in every run
    dropout.py slope GRADIENTS BY PLUS MINUS    the losses of two logs, 2 BY apart along it, agree with the gradients
"""
import pathlib, sys
import numpy as np
import check
from data import save_safetensors
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import accept
from compare import largest_error  # found through accept

SAMPLES, WIDTH, RATIO, RATE = 64, 256, 0.25, 0.01


def write_model(folder, signature, weights, body):
    """The weights are normally distributed, or ones if they must have no sign."""
    random, at, initializers = np.random.default_rng(0), 0, []
    with open(folder / "weights.bin", "wb") as file:
        for name, shape, scale in weights:
            data = (random.standard_normal(shape) * scale if scale else np.ones(shape)).astype("<f4")
            file.write(data.tobytes())
            dims = ",".join(map(str, shape))
            initializers.append(f'float[{dims}] {name} = ["location": "weights.bin", "offset": "{at}", "length": "{data.nbytes}"]')
            at += data.nbytes
    (folder / "model.onnxtxt").write_text('<ir_version: 10, opset_import: ["" : 20]>\n' + f"{signature}\n<" +
                                          ",\n ".join(initializers) + ">\n{\n" + body + "}\n")


def layouts(folder):
    weights = [("w1", (8, 8), 0.4), ("w2", (8, 8), 0.4), ("head", (32, 10), 0.3)]
    write_model(folder, "layouts (float[B,32] x) => (float[B,10] logits)", weights, """
  ratio = Constant<value = float {0.25}>()
  rows = Constant<value = int64[3] {-1, 4, 8}>()
  flat = Constant<value = int64[2] {-1, 8}>()
  heads = Constant<value = int64[3] {4, -1, 4}>()
  sequence = Constant<value = int64[3] {4, -1, 8}>()
  all = Constant<value = int64[2] {-1, 32}>()
  x3 = Reshape(x, rows)
  a = Dropout(x3, ratio)
  b0 = Transpose<perm = [1, 0, 2]>(a)
  b1 = MatMul(b0, w1)
  b = Dropout(b1, ratio)
  c0 = Reshape(b, flat)
  c1 = MatMul(c0, w2)
  c2 = Relu(c1)
  c = Dropout(c2, ratio)
  d0 = Reshape(c, heads)
  d1 = Transpose<perm = [1, 0, 2]>(d0)
  d2 = Transpose<perm = [1, 2, 0]>(d0)
  d3 = MatMul(d1, d2)
  d4 = Softmax(d3)
  d = Dropout(d4, ratio)
  e0 = MatMul(d, d1)
  e1 = Transpose<perm = [1, 0, 2]>(e0)
  e2 = Reshape(e1, sequence)
  e3 = Transpose<perm = [1, 0, 2]>(e2)
  e4 = Reshape(e3, all)
  e = Dropout(e4, ratio)
  logits = MatMul(e, head)
""")


def masks(folder):
    """y = first + 3 second: the gradient of sum(y^2) at w is 2 w scale^2 (keep1 + 3 keep2)^2, and every sample has its own row."""
    signature = f"masks (float[B,{SAMPLES}] x) => (float[B,{WIDTH}] y)"
    write_model(folder, signature, [("w", (SAMPLES, WIDTH), 0)], f"""
  ratio = Constant<value = float {{{RATIO}}}>()
  three = Constant<value = float {{3}}>()
  h = MatMul(x, w)
  first = Dropout(h, ratio)
  second = Dropout(h, ratio)
  more = Mul(second, three)
  y = Add(first, more)
""")
    save_safetensors(folder / "batch.safetensors", {"x": np.eye(SAMPLES, dtype="f4"),
                                                    "labels": np.zeros((SAMPLES, WIDTH), "f4")})


# ---- reimplements ir/ops/philox.h

U64 = 0xFFFFFFFFFFFFFFFF


def splitmix64(x):
    z = (x + 0x9E3779B97F4A7C15) & U64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & U64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & U64
    return z ^ (z >> 31)


def uniform(seed, step, instance):
    key = splitmix64(splitmix64(splitmix64(seed) ^ step) ^ instance)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    block = np.broadcast_to(np.arange(WIDTH // 4, dtype="u8"), (SAMPLES, WIDTH // 4))
    zero, low = np.zeros_like(block), np.uint64(0xFFFFFFFF)
    c = [block, zero, np.broadcast_to(np.arange(SAMPLES, dtype="u8")[:, None], block.shape), zero]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return (np.stack(c, -1).reshape(SAMPLES, WIDTH) >> np.uint64(8)).astype("f8") * 2.0 ** -24


def masks_between(before, after):
    """The elements kept by the first and by the second dropout."""
    factor = 2 * RATE / (1 - RATIO) ** 2
    squares = (1 - after.astype("f8") / before) / factor
    roots = np.rint(np.sqrt(np.maximum(squares, 0)))
    if largest_error(squares, roots ** 2) > 1e-2 or not np.isin(roots, (0, 1, 3, 4)).all():
        sys.exit(f"dropout.py: not a dropout scaled by 1 / (1 - {RATIO})")
    return np.isin(roots, (1, 4)), roots >= 3


def score(name, a, b, found):
    """The correlation of kept bits, in standard deviations."""
    keep = 1 - RATIO
    z = ((a - keep) * (b - keep)).mean() / (keep * RATIO) * np.sqrt(a.size)
    found.append((abs(z), name))


def check_masks(seed, files):
    weights = [accept.load_safetensors(file)["w"] for file in files]
    kept = {}
    for step in range(1, len(weights)):
        kept[step, 0], kept[step, 1] = masks_between(weights[step - 1], weights[step])
    found = []
    for (step, instance), bits in kept.items():
        if not np.array_equal(bits, uniform(seed, step, instance) >= RATIO):
            sys.exit(f"dropout.py: step {step}, instance {instance}: not the documented bits")
        name = f"step {step} instance {instance}"
        found.append((abs(bits.mean() - (1 - RATIO)) / np.sqrt(RATIO * (1 - RATIO) / bits.size), f"{name}: rate"))
        for lag in (1, 2, 3, 4, 5, 8, 16, 64):
            score(f"{name}: elements {lag} apart", bits[:, :-lag], bits[:, lag:], found)
        for lag in (1, 2, 32):
            score(f"{name}: samples {lag} apart", bits[:-lag], bits[lag:], found)
    pairs = [(a, b) for a in kept for b in kept if a < b]
    for a, b in pairs:
        score(f"{a} and {b}", kept[a], kept[b], found)
    if any(np.isnan(z) for z, _ in found):
        sys.exit("dropout.py: a score is not a number")
    worst = max(found)
    print(f"{len(found)} scores, worst {worst[0]:.2f} sigma ({worst[1]}), root mean square {np.sqrt(np.mean([z * z for z, _ in found])):.2f}")
    beyond = sum(z > 3 for z, _ in found)
    if beyond > 1 + 0.01 * len(found) or worst[0] > 4.5:
        sys.exit(f"dropout.py: {beyond} of {len(found)} beyond 3 sigma")


def direction(tensors):
    random = np.random.default_rng(5)
    return {name: random.standard_normal(tensors[name].shape) for name in sorted(tensors)}


def nudge(source, target, by):
    tensors = accept.load_safetensors(source)
    along = direction(tensors)
    save_safetensors(target, {name: (value + by * along[name]).astype("f4") for name, value in tensors.items()})


def slope(gradients, by, logs):
    tensors = accept.load_safetensors(gradients)
    tensors = {name.removeprefix("grad."): value for name, value in tensors.items()}
    along = direction(tensors)
    expected = sum(float((along[name] * value).sum()) for name, value in tensors.items())
    plus, minus = (check.losses_of(log)[0] for log in logs)
    measured = (plus - minus) / (2 * by)
    print(f"slope {measured:.6f}, by the gradients {expected:.6f}")
    if not abs(measured - expected) <= 1e-2 * abs(expected) + 1e-3:
        sys.exit("dropout.py: the gradients are not those of the loss")


def main():
    what, *rest = sys.argv[1:]
    if what in ("layouts", "masks"):
        globals()[what](pathlib.Path(rest[0]))
    elif what == "check_masks":
        check_masks(int(rest[0]), rest[1:])
    elif what == "nudge":
        nudge(rest[0], rest[1], float(rest[2]))
    else:
        slope(rest[0], float(rest[1]), rest[2:])


if __name__ == "__main__":
    main()
