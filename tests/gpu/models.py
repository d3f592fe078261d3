#!/usr/bin/env python3
"""The models of bench.sh: their sizes, their ONNX files (weights all zeros, without storage), random weights for them, a batch.

    models.py describe MODEL                                  exit 2 if there is none of that name
    models.py onnx MODEL --out FOLDER                         FOLDER/model.onnxtxt
    models.py inputs MODEL --plan plan.json --out FOLDER      FOLDER/weights.safetensors and FOLDER/batch.safetensors
"""
import argparse, json, pathlib, subprocess, sys, tempfile
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/bench"))
import gpt_model  # noqa: E402

# batch: samples of one micro-step. Vocabularies are padded to a multiple of 128, in PyTorch too.
MODELS = {
    "gpt2_124m": dict(kind="gpt", layers=12, width=768, heads=12, seq=1024, vocab=50304, batch=16),
    "gpt2_350m": dict(kind="gpt", layers=24, width=1024, heads=16, seq=1024, vocab=50304, batch=8),
    "llama_1b": dict(kind="llama", layers=22, width=2048, heads=32, key_heads=4, hidden=5632, seq=2048, vocab=32000, batch=4),
    "gpt2_smoke": dict(kind="gpt", layers=2, width=64, heads=2, seq=32, vocab=256, batch=2),
    "llama_smoke": dict(kind="llama", layers=2, width=64, heads=4, key_heads=2, hidden=128, seq=32, vocab=256, batch=2),
}


def sizes(name):
    return argparse.Namespace(**MODELS[name], ranks=1)


def parameters(plan):
    return sum(int(np.prod(p["shape"])) for p in plan["parameters"])


def flops_per_token(name, plan):
    """Forward and backward FLOPs as in PaLM: 6 per parameter used in a matmul, 12 x layers x width x sequence for attention."""
    a = sizes(name)
    looked_up = {"gpt": a.seq * a.width, "llama": a.vocab * a.width}[a.kind]   # the head of gpt is its embedding
    return 6 * (parameters(plan) - looked_up) + 12 * a.layers * a.width * a.seq


def compile_options(name, model, fsdpc):
    """Mixed precision if this fsdpc supports it for this model, which the first compilation shows."""
    options = ["--micro_batch_size", str(MODELS[name]["batch"]), "--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "3e-4"]
    low = [*options, "--mixed_precision", "bf16"]
    with tempfile.TemporaryDirectory() as folder:
        command = [str(fsdpc), str(model), "--target", "cuda", *low, "--emit", "src", "-o", f"{folder}/out"]
        tried = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return low if tried.returncode == 0 else options


def projection(m, scope, x, inputs, outputs):
    w = m.weight(f"{scope}.weight", (outputs, inputs))
    return m.op(scope, "MatMul", [x, m.op(scope, "Transpose", [w], " <perm = [1, 0]>")])


def rms_norm(m, scope, x, width):
    return m.op(scope, "RMSNormalization", [x, m.weight(f"{scope}.weight", (width,))], " <axis = -1, epsilon = 1e-5>")


def llama_attention(m, s, x, a):
    keys = a.width // a.heads * a.key_heads
    q, k, v = (projection(m, f"{s}.{n}", x, a.width, w) for n, w in (("q", a.width), ("k", keys), ("v", keys)))
    q = m.op(s, "RotaryEmbedding", [q, "cosines", "sines", "positions"], f" <num_heads = {a.heads}>")
    k = m.op(s, "RotaryEmbedding", [k, "cosines", "sines", "positions"], f" <num_heads = {a.key_heads}>")
    mixed = m.op(s, "Attention", [q, k, v], f" <is_causal = 1, q_num_heads = {a.heads}, kv_num_heads = {a.key_heads}>")
    return projection(m, f"{s}.o", mixed, a.width, a.width)


def llama_mlp(m, s, x, a):
    gate, up = (projection(m, f"{s}.{n}", x, a.width, a.hidden) for n in ("gate", "up"))
    gate = m.op(s, "Mul", [gate, m.op(s, "Sigmoid", [gate])])
    return projection(m, f"{s}.down", m.op(s, "Mul", [gate, up]), a.hidden, a.width)


def write_llama(a, out):
    m = gpt_model.Model(out, None)
    half = a.width // a.heads // 2
    angles = np.outer(np.arange(a.seq), 10000.0 ** (-np.arange(half) / half))
    for name, table in (("cosines", np.cos(angles)), ("sines", np.sin(angles))):
        m.initializers.append(f"float[{a.seq},{half}] {name} = {{{', '.join(repr(float(v)) for v in table.ravel())}}}")
    positions = ", ".join(str(i) for _ in range(a.batch) for i in range(a.seq))
    m.initializers.append(f"int64[{a.batch},{a.seq}] positions = {{{positions}}}")
    x = m.op("embed", "Gather", [m.weight("embed.weight", (a.vocab, a.width)), "x"], " <axis = 0>")
    for i in range(a.layers):
        s = f"layers.{i}"
        x = m.op(s, "Add", [x, llama_attention(m, f"{s}.attention", rms_norm(m, f"{s}.attention_norm", x, a.width), a)])
        x = m.op(s, "Add", [x, llama_mlp(m, f"{s}.mlp", rms_norm(m, f"{s}.mlp_norm", x, a.width), a)])
    w = m.weight("head.weight", (a.vocab, a.width))
    m.op("head", "MatMul", [rms_norm(m, "norm", x, a.width), m.op("head", "Transpose", [w], " <perm = [1, 0]>")], outputs=["logits"])
    m.weights.close()
    text = f'<ir_version: 11, opset_import: ["" : 23]>\nllama (int64[{a.batch},{a.seq}] x) => (float[{a.batch},{a.seq},{a.vocab}] logits)\n'
    text += "<\n  " + ",\n  ".join(m.initializers) + "\n>\n{\n  " + "\n  ".join(m.nodes) + "\n}\n"
    (out / "model.onnxtxt").write_text(text)


def write_onnx(name, out):
    out.mkdir(parents=True, exist_ok=True)
    a = sizes(name)
    write_llama(a, out) if a.kind == "llama" else gpt_model.build(a, out, None)


def write_weights(plan, path):
    """Weights as they are initialised: random matrices with 0.02, gains one, others zero. All zeros would save the device work."""
    block = (np.random.default_rng(0).standard_normal(1 << 22) * 0.02).astype("<f4")
    header, offset = {}, 0
    for p in plan["parameters"]:
        length = 4 * int(np.prod(p["shape"]))
        header[p["name"]] = {"dtype": "F32", "shape": p["shape"], "data_offsets": [offset, offset + length]}
        offset += length
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for p in plan["parameters"]:
            left = int(np.prod(p["shape"]))
            if len(p["shape"]) < 2:
                f.write(np.full(left, float(p["name"].endswith("weight")), "<f4").tobytes())
                continue
            while left > 0:
                f.write(block[:min(left, block.size)].tobytes())
                left -= min(left, block.size)


def write_batch(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    gpt_model.write_batch(sizes(name), folder)
    return folder / "batch.safetensors"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["describe", "onnx", "inputs"])
    p.add_argument("model")
    p.add_argument("--plan", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    if a.model not in MODELS:
        print(f"no model {a.model!r}; there are: {' '.join(MODELS)}")
        return 2
    if a.what == "describe":
        print(f"{a.model}: " + ", ".join(f"{k} {v}" for k, v in MODELS[a.model].items()))
        return 0
    if a.what == "onnx":
        write_onnx(a.model, a.out)
        return 0
    write_weights(json.loads(a.plan.read_text()), a.out / "weights.safetensors")
    write_batch(a.model, a.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
