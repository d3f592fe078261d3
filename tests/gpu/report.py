#!/usr/bin/env python3
"""The table of bench.sh: fsdpc compared with PyTorch, from the output of their runs in WORK.

    report.py MODEL PROGRAM WORK
"""
import json, pathlib, statistics, sys

import models

WARM_UP = 5   # steps
# Dense peaks in TFLOP/s, by device name: (bf16 on tensor cores, float32 without tf32).
PEAKS = {"H200": (989, 67), "H100": (989, 67), "A100": (312, 19.5), "B200": (2250, 80)}


def device():
    import subprocess
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], text=True, stdout=subprocess.PIPE).stdout.splitlines()[0]
    except (OSError, IndexError):
        return "unknown device"


def steps_of(log):
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if "step_ms" in line][WARM_UP:]


def main():
    name, program, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    if not (work / "log.jsonl").exists():
        print("report: the program left no log")
        return 1
    plan, options = (json.loads((program / file).read_text()) for file in ("plan.json", "options.json"))
    steps = steps_of(work / "log.jsonl")
    a = models.sizes(name)
    is_low = options.get("mixed_precision", "no") != "no"
    peak = next((p[0 if is_low else 1] for key, p in PEAKS.items() if key in device()), None)
    flops = models.flops_per_token(name, plan)

    def row(label, rate, memory_bytes):
        share = f"{100 * rate * flops / (peak * 1e12):5.1f} %" if peak else "peak unknown"
        print(f"  {label:<13} {rate:12,.0f} tokens/s   MFU {share}   {memory_bytes / 2**30:7.2f} GiB")

    def tokens_per_second(steps):
        return a.batch * a.seq / (statistics.median(s["step_ms"] for s in steps) / 1e3)

    ours = tokens_per_second(steps)
    planned, mapped = plan["memory"]["total_bytes"], max(s["memory_peak_bytes"] for s in steps)
    print(f"{name} on {device()}, {'bf16' if is_low else 'float32, no tf32'}, {models.parameters(plan):,} parameters, batch {a.batch} x {a.seq}")
    row("fsdpc", ours, mapped)
    with_cudnn = steps_of(work / "cudnn.jsonl") if (work / "cudnn.jsonl").exists() else []
    if with_cudnn:
        row("fsdpc, cuDNN", tokens_per_second(with_cudnn), max(s["memory_peak_bytes"] for s in with_cudnn))
    print(f"  planned {planned} bytes, mapped {mapped}: {'equal' if planned == mapped else 'NOT EQUAL'}")
    held = [int(line) for line in (work / "memory.mib").read_text().split()] if (work / "memory.mib").exists() else []
    if held:
        print(f"  the device held at most {max(held)} MiB, {min(held)} before the start")
    if (work / "torch.json").exists():
        torch = json.loads((work / "torch.json").read_text())
        row("PyTorch", torch["tokens_per_s"], torch["memory_bytes"])
        print(f"  tokens/s {ours / torch['tokens_per_s']:.2f} x PyTorch's, memory {mapped / torch['memory_bytes']:.2f} x (torch {torch['torch']}, "
              f"{torch['compiled']})")
    return 0 if planned == mapped else 1


if __name__ == "__main__":
    sys.exit(main())
