#!/usr/bin/env python3
"""Predictions beside published figures: FSDP or plain data parallelism in bf16, without float8 or tensor parallelism.

    published.py [--fsdpc build/fsdpc] [ROW...]

For each row a model of the published size is written (weights absent), planned and simulated with the built-in table of that
hardware. Prints a Markdown table: tokens per second of one GPU and GiB of one GPU, predicted and published, with the source.
The programs behind the published figures are other programs; a **prediction** is of ours. The fractions that the tables of
passes/cost/hardware.cpp reach were fitted to the rows marked so; the others were not used.
"""
import argparse, pathlib, re, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
import gpt_model  # noqa: E402

LLAMA_8B = dict(kind="llama", layers=32, width=4096, heads=32, key_heads=8, hidden=14336, vocab=128256)
LLAMA_7B = dict(kind="llama", layers=32, width=4096, heads=32, key_heads=32, hidden=11008, vocab=32000)
MPT_1B = dict(kind="gpt", layers=24, width=2048, heads=16, vocab=50432)
MPT_7B = dict(kind="gpt", layers=32, width=4096, heads=32, vocab=50432)
MPT_70B = dict(kind="gpt", layers=80, width=8192, heads=64, vocab=50432)
GPT2_124M = dict(kind="gpt", layers=12, width=768, heads=12, vocab=50304)
GPT2_774M = dict(kind="gpt", layers=36, width=1280, heads=20, vocab=50304)
GPT2_1558M = dict(kind="gpt", layers=48, width=1600, heads=25, vocab=50304)

TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
FOUNDRY = "llm-foundry, scripts/train/benchmarking/README.md"
# name: model, tokens of a sample, samples of a micro-step, micro-steps, GPUs, table, recomputation, strategy, published tokens/s
# of a GPU, published GiB, source. MPT's micro-batches are assumed; 70B's tokens/s are its MFU times 989 TFLOP/s over 6 x parameters
# + 12 x layers x width x tokens.
ROWS = {
    "8b_8": (LLAMA_8B, 8192, 2, 1, 8, "h100_8", "selective", "full_shard", 6667, 77.0, TITAN + " (compiled; 5762 eager)"),
    "8b_128": (LLAMA_8B, 8192, 2, 1, 128, "h100_8", "selective", "full_shard", 6514, 62.0, TITAN + " (compiled; 5605 eager)"),
    "7b_none": (LLAMA_7B, 2048, 8, 1, 8, "h100_8", "none", "full_shard", 9200, None, "torchtitan, pull 165 (compiled, 9100-9300)"),
    "7b_selective": (LLAMA_7B, 2048, 8, 1, 8, "h100_8", "selective", "full_shard", 8250, None, "torchtitan, pull 165 (8100-8400)"),
    "7b_full": (LLAMA_7B, 2048, 8, 1, 8, "h100_8", "full", "full_shard", 7350, None, "torchtitan, pull 165 (7200-7500)"),
    "mpt_1b_8": (MPT_1B, 2048, 16, 1, 8, "h100_8", "none", "full_shard", 45455, None, FOUNDRY),
    "mpt_1b_128": (MPT_1B, 2048, 16, 1, 128, "h100_8", "none", "full_shard", 44123, None, FOUNDRY),
    "mpt_7b_8": (MPT_7B, 2048, 8, 1, 8, "h100_8", "none", "full_shard", 10643, None, FOUNDRY),
    "mpt_7b_128": (MPT_7B, 2048, 8, 1, 128, "h100_8", "none", "full_shard", 10475, None, FOUNDRY),
    "mpt_70b_64": (MPT_70B, 2048, 8, 1, 64, "h100_8", "full", "full_shard", 978, None, FOUNDRY + " (MFU 42.6 %)"),
    "124m": (GPT2_124M, 1024, 64, 1, 8, "a100_8", "none", "shard_optimizer", 218000, None, "llm.c, scripts/run_gpt2_124M.sh"),
    "774m": (GPT2_774M, 1024, 32, 2, 8, "a100_8", "none", "shard_optimizer", 38550, None, "llm.c, scripts/run_gpt2_774M.sh"),
    "1558m": (GPT2_1558M, 1024, 16, 8, 8, "h100_8", "none", "shard_optimizer", 46800, None, "llm.c, scripts/run_gpt2_1558M.sh"),
}
FITTED = {"8b_8", "7b_selective", "mpt_1b_8", "mpt_7b_8", "1558m", "124m"}


def write_model(model, tokens, folder):
    """The arguments of fsdpc that name the model. The file of its weights is absent."""
    path = folder / "model.onnxtxt"
    if model["kind"] == "gpt":
        gpt_model.build(argparse.Namespace(**model, seq=tokens), folder, None)
        (folder / "weights.bin").unlink()
        return [path]
    sizes = [str(item) for key, value in model.items() if key != "kind" for item in (f"--{key}", value)]
    subprocess.run([sys.executable, ROOT / "samples/llama/write_llama.py", path, *sizes], check=True, stdout=subprocess.DEVNULL)
    return [path, "--dim", f"tokens={tokens}"]


def predict(fsdpc, row, folder):
    model, tokens, samples, micro_steps, gpus, table, recomputation, strategy = row[:8]
    command = [fsdpc, "estimate", *write_model(model, tokens, folder), "--loss", "cross_entropy", "--mixed_precision", "bf16",
               "--target", "cuda", "--hardware", table, "--world_size", gpus, "--micro_batch_size", samples,
               "--gradient_accumulation_steps", micro_steps, "--activation_checkpointing", recomputation, "--init", "random"]
    text = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    line = next(line.split() for line in text.splitlines() if line.split()[:1] == [strategy])
    names = re.split(r"\s{2,}", next(line for line in text.splitlines() if line.startswith("strategy")).strip())
    values = dict(zip(names, line))
    return tokens * samples * micro_steps / (float(values["step ms"]) / 1e3), float(values["total"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fsdpc", type=pathlib.Path, default=ROOT / "build/fsdpc")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    options = parser.parse_args()
    print("| row | GPUs | tokens/s of a GPU, predicted | published | ratio | GiB, planned | published | fitted | source |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.rows or ROWS:
        row = ROWS[name]
        with tempfile.TemporaryDirectory(prefix="fsdpc-published-") as folder:
            rate, memory = predict(options.fsdpc.resolve(), row, pathlib.Path(folder))
        published, published_memory, source = row[8:]
        print(f"| {name} | {row[4]} | {rate:,.0f} | {published:,} | {rate / published:.2f} | {memory:.1f} | "
              f"{published_memory or ''} | {'yes' if name in FITTED else ''} | {source} |", flush=True)


if __name__ == "__main__":
    main()
