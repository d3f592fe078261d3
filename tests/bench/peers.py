#!/usr/bin/env python3
"""The four workloads of a folder of peers, trained in turn by fsdpc and by others: times of a step and their ratios.

    peers.py PEERS --python PY [--jax_python PY] [--mkl_shim FILE] [--workloads W1,W2,W3,W4] [--rounds 2] [--modes fsdpc,floor,fsdp2]

PEERS has spec.py, export_onnx.py, torch_peer.py, jax_peer.py and gemm_floor.py (its README says what they measure); PY has torch, onnx,
onnxruntime, safetensors. Modes: fsdpc; floor (the products of linear layers by oneDNN and of attention, alone, two processes at
once: `attention_floor` below); modes of torch_peer.py, with "+512" under the library FILE; jax_dp, jax_fsdp. Two ranks of one thread,
rank r on core r. Nothing else should run. Prints a line per measurement, then the medians over the rounds.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build/bench/peers"
OPTIONS = {
    "W1": ["--loss", "nll", "--optimizer", "adadelta", "--lr", "1", "--rho", "0.9", "--eps", "1e-6"],
    "W2": ["--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "3e-4", "--weight_decay", "0.01"],
}
OPTIONS["W3"] = OPTIONS["W4"] = OPTIONS["W2"]
BATCH_OF_RANK = {"W1": "64", "W2": "8", "W3": "1", "W4": "2"}
STEPS = {"W1": 40, "W2": 8, "W3": 5, "W4": 8}  # timed ones, after three, as the peers'
BATCH = """
import numpy, safetensors.numpy, spec, sys
x, y = (numpy.concatenate(part) for part in zip(*(spec.batch(sys.argv[1], rank) for rank in range(spec.WORLD))))
safetensors.numpy.save_file({"x": x, "labels": y.astype("int64")}, sys.argv[2])
"""
# What torch_peer.py and jax_peer.py import: the memory of a process, and an end with the parent's.
PROBE = '''
import ctypes, re, resource, signal
def die_with_parent(): ctypes.CDLL(None).prctl(1, signal.SIGKILL)
def peak_rss_mib(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def reset_peak(): open("/proc/self/clear_refs", "w").write("5")
def status_mib(field): return int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
'''
# Products of attention, forward and backward: 2 and 4 per head, half of each where it is causal, as one batched product of half the keys.
ATTENTION_FLOOR = '''
import json, multiprocessing, os, statistics, sys, time
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
def measure(core, workload, gate, out):
    os.sched_setaffinity(0, {core})
    import torch
    from spec import CFG
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    c = CFG[workload]
    heads, length, depth = c["batch"] * c["heads"], c["seq"], c["width"] // c["heads"]
    keys = length // 2 if workload in ("W2", "W3") else length
    q, k, p = torch.randn(heads, length, depth), torch.randn(heads, keys, depth), torch.randn(heads, length, keys)
    scores, rows, columns = torch.empty(heads, length, keys), torch.empty(heads, length, depth), torch.empty(heads, keys, depth)
    times = []
    for step in range(8):
        gate.wait()
        start = time.perf_counter()
        for layer in range(c["layers"]):
            for _ in range(2): torch.bmm(q, k.transpose(1, 2), out=scores)
            for _ in range(2): torch.bmm(p, k, out=rows)
            for _ in range(2): torch.bmm(p.transpose(1, 2), q, out=columns)
        times.append(time.perf_counter() - start)
    out.put(times[3:])
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    gate, out = context.Barrier(2), context.Queue()
    ranks = [context.Process(target=measure, args=(rank, sys.argv[1], gate, out)) for rank in range(2)]
    [rank.start() for rank in ranks]
    slowest = [max(pair) for pair in zip(*(out.get() for _ in ranks))]
    [rank.join() for rank in ranks]
    print(json.dumps(dict(median_s=statistics.median(slowest))))
'''


def environment(arguments, **more):
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{WORK}:{arguments.peers}", "TORCHINDUCTOR_CACHE_DIR": str(WORK / "inductor"), **more}


def prepare(arguments, workload):
    """The exported model, its batch and the compiled program."""
    if not (WORK / f"{workload}.onnx").exists():
        subprocess.run([arguments.python, arguments.peers / "export_onnx.py", WORK, workload], check=True, cwd=arguments.peers,
                       env=environment(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([arguments.python, "-c", BATCH, workload, WORK / f"{workload}.safetensors"], check=True, env=environment(arguments))
    subprocess.run([ROOT / "build/fsdpc", WORK / f"{workload}.onnx", "--world_size", "2", "--threads", "1", "-o", WORK / workload,
                    "--micro_batch_size", BATCH_OF_RANK[workload], *OPTIONS[workload], *arguments.options.split()], check=True, stdout=subprocess.DEVNULL)


def trained(arguments, workload, steps):
    """Median step of the program, with what it waits for and its memory."""
    log = WORK / f"{workload}.jsonl"
    log.unlink(missing_ok=True)
    subprocess.run(["mpirun", "-n", "2", "--bind-to", "core", WORK / workload / "train", "--batch", WORK / f"{workload}.safetensors",
                    "--steps", str(steps + 3), "--threads", "1", "--log", log, "--log_freq", "1", "--progress", "none"], check=True,
                   env=environment(arguments), stdout=subprocess.DEVNULL)
    lines = [line for line in map(json.loads, open(log)) if "step_ms" in line][3:]
    plan = json.load(open(WORK / workload / "plan.json"))
    return dict(ms=statistics.median(line["step_ms"] for line in lines), loss=lines[-1]["loss"],
                exposed_ms=statistics.median(line["comm_exposed_ms"] for line in lines),
                skew_ms=statistics.median(line["comm_skew_ms"] for line in lines), mib=plan["memory"]["total_bytes"] / 2**20)


def measured(arguments, command, **more):
    result = subprocess.run(command, cwd=arguments.peers, env=environment(arguments, **more), text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    if not rows:  # a process that aborts at its exit has printed its results
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr[-2000:]}")
    return rows[-1]


def measure(arguments, workload, mode, steps):
    if mode == "fsdpc":
        return trained(arguments, workload, steps)
    if mode == "floor":
        linear = measured(arguments, [arguments.python, "gemm_floor.py", workload, "--backend", "onednn", "--procs", "2"])
        attention = measured(arguments, [arguments.python, WORK / "attention_floor.py", workload],
                             **({"LD_PRELOAD": str(arguments.mkl_shim)} if arguments.mkl_shim else {}))
        return dict(ms=1000 * (linear["median_s"] + attention["median_s"]), linear_ms=1000 * linear["median_s"])
    shim = {"LD_PRELOAD": str(arguments.mkl_shim)} if mode.endswith("+512") else {}
    python, script = (arguments.jax_python, "jax_peer.py") if mode.startswith("jax") else (arguments.python, "torch_peer.py")
    row = measured(arguments, ["taskset", "-c", "0,1", python, script, workload, mode.removesuffix("+512")], **shim)
    return dict(ms=1000 * row["median_s"], loss=row["losses"][-1], mib=row["peak_over_start_mib"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--jax_python")
    parser.add_argument("--mkl_shim", type=pathlib.Path)
    parser.add_argument("--workloads", default="W1,W2,W3,W4")
    parser.add_argument("--modes", default="fsdpc,floor,fsdp2")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--options", default="", help="more options of fsdpc")
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "probe.py").write_text(PROBE)
    (WORK / "attention_floor.py").write_text(ATTENTION_FLOOR)
    for workload in arguments.workloads.split(","):
        prepare(arguments, workload)
        modes = [mode for mode in arguments.modes.split(",") if workload != "W1" or mode != "floor"]
        rows = {mode: [] for mode in modes}
        for _ in range(arguments.rounds):
            for mode in modes:
                rows[mode].append(measure(arguments, workload, mode, STEPS[workload]))
                print(workload, mode, json.dumps({key: round(value, 4) for key, value in rows[mode][-1].items()}), flush=True)
        own = statistics.median(row["ms"] for row in rows["fsdpc"]) if "fsdpc" in rows else None
        for mode in modes:
            median = statistics.median(row["ms"] for row in rows[mode])
            print(f"{workload} {mode:16} {median:8.1f} ms" + (f", fsdpc is {own / median:.2f} of it" if own and mode != "fsdpc" else ""),
                  flush=True)


if __name__ == "__main__":
    main()
