#!/usr/bin/python3
"""Compares the memory of a training run with PyTorch FSDP2's, on the same model, sizes and machine: workloads W2
(GPT-2-shaped, 6 x 384) and W3 (GPT-2 124M) of the peers on 2 ranks of one thread. Reports the maximum growth of the
proportional set size since start, summed over the ranks. Both are sampled continuously from outside, so a peak is compared
with a peak.

    tests/bench/memory.py --torch_python PYTHON [W2 W3] [--steps 5]

PyTorch's ranks count from after import and process group, fsdpc's from before their arenas are mapped (pss_before_bytes of
its log). "in all" includes libraries, MPI and communication. "at the end" is the value that the log has for the last step.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build/bench/memory"
SIZES = {"W2": dict(layers=6, width=384, heads=6, seq=256, vocab=512, batch=8),
         "W3": dict(layers=12, width=768, heads=12, seq=256, vocab=50304, batch=1)}
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def arguments(sizes):
    return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def proportional_bytes(pid):
    """As memory_report of a program: without pages of files, whose share depends on other processes."""
    try:
        sizes = dict(line.split()[:2] for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        return 1024 * (int(sizes["Pss:"]) - int(sizes.get("Pss_File:", 0)))
    except (OSError, KeyError):
        return 0


class Sampler(threading.Thread):
    """The maximum sum over the processes that `pids` returns, sampled continuously."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.peak, self.ends = pids, 0, False

    def run(self):
        while not self.ends:
            self.peak = max(self.peak, sum(map(proportional_bytes, self.pids())))
            time.sleep(0.002)

    def finish(self):
        self.ends = True
        self.join()
        return self.peak


def children_running(name):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe") == str(name):
                found.append(entry.name)
        except OSError:
            pass
    return found


def run_fsdpc(workload, steps, options):
    folder, sizes = WORK / workload, SIZES[workload]
    program = folder / ("out" + "".join(options).replace("-", "_"))
    subprocess.run([ROOT / "build/fsdpc", folder / "model/model.onnxtxt", "--target", "cpu", "--world_size", "2", "--micro_batch_size", str(sizes["batch"]),
                    "--threads", "1", "--loss", "cross_entropy", "--lr", "3e-4", *options, "-o", program], check=True,
                   stdout=subprocess.DEVNULL)
    memory = json.loads((program / "plan.json").read_text())["memory"]
    pids = []

    def ranks():
        if len(pids) < 2:
            pids[:] = children_running(program / "train")
        return pids

    sampler = Sampler(ranks)
    sampler.start()
    subprocess.run(["mpirun", "-n", "2", program / "train", "--batch", folder / "model/batch.safetensors", "--steps", str(steps),
                    "--threads", "1", "--progress", "none", "--memory_report", "--log", folder / "log.jsonl"], check=True,
                   env={**os.environ, **MPI}, stdout=subprocess.DEVNULL)
    peak = sampler.finish()
    reports = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines() if "pss_growth_bytes" in line]
    report = reports[-1].get("memory_report", reports[-1])
    return peak - report["pss_before_bytes"], report["pss_growth_bytes"], peak, memory


def run_fsdp2(python, workload, steps, options):
    folder, ranks = WORK / workload, []
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
               "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks.append(subprocess.Popen([python, ROOT / "tests/bench/fsdp2_peer.py", folder / f"start.{rank}", "--steps", str(steps),
                                       *arguments(SIZES[workload]), *options], env=env))
    sampler = Sampler(lambda: [rank.pid for rank in ranks])
    sampler.start()
    if any(rank.wait() for rank in ranks):
        raise SystemExit("FSDP2 failed")
    peak = sampler.finish()
    return peak - sum(int((folder / f"start.{rank}").read_text()) for rank in range(2))


def measure(python, workload, steps):
    folder = WORK / workload
    subprocess.run(["/usr/bin/python3", ROOT / "tests/bench/gpt_model.py", folder / "model", *arguments(SIZES[workload])], check=True)
    plain = run_fsdp2(python, workload, steps, [])
    checkpointed = run_fsdp2(python, workload, steps, ["--checkpoint"])
    mib = 2**20
    print(f"{workload}: FSDP2 {plain / mib:.0f} MiB, with every block checkpointed {checkpointed / mib:.0f} MiB", flush=True)
    for mode in ("none", "selective", "full"):
        growth, at_end, peak, memory = run_fsdpc(workload, steps, ["--activation_checkpointing", mode])
        total, least = memory["total_bytes"], memory["theoretical_min_bytes"]
        print(f"{workload} fsdpc {mode:9}: {growth / mib:.0f} MiB, {growth / plain:.2f} of FSDP2, {growth / checkpointed:.2f} of it "
              f"checkpointed; at the end {at_end / mib:.0f} MiB; in all {peak / mib:.0f} MiB; planned {2 * total / mib:.0f} MiB, {total / least:.3f} of the theoretical minimum", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", default=list(SIZES))
    p.add_argument("--torch_python", required=True)
    p.add_argument("--steps", type=int, default=5)
    a = p.parse_args()
    for workload in a.workloads:
        measure(a.torch_python, workload, a.steps)


main()
