#!/usr/bin/python3
"""Trains the reduced BigModel under every strategy, in f32 and bf16, without and with recomputation and offload, and prints first and last
loss and the memory of a rank.

    train_all.py FOLDER [--fsdpc build/fsdpc] [--ranks 2 4] [--strategies NAME...] [--steps 40]

Standard library only. All 90 settings take minutes on two cores.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from common import parse, parser, print_figures, run, train

SIZE = "--layers 4 --width 64 --ffn 256 --heads 4 --vocab 128 --seq 32 --samples 512".split()
BATCH = 16
STRATEGIES = ("no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard_zero2", "hybrid_shard")


def settings(ranks, strategies):
    for strategy in strategies:
        degree = ("--data_parallel_shard_degree", "2") if strategy.startswith("hybrid") else ()
        if degree and ranks < 4:
            continue
        for recompute in ("none", "selective", "full"):
            for precision in ("no", "bf16"):
                yield ("--strategy", strategy, *degree, "--mixed_precision", precision, "--activation_checkpointing", recompute)
        for offload in ("params", "optimizer", "activations"):
            yield ("--strategy", strategy, *degree, "--mixed_precision", "bf16", "--offload_" + offload)


def train_one(a, ranks, options):
    """First and last loss, and the planned bytes of a rank."""
    out = a.folder / "out"
    run(a.fsdpc, a.folder / "small.onnxtxt", "--target", "cpu", "--loss", "cross_entropy", "--world_size", ranks,
        "--micro_batch_size", BATCH // ranks, "--lr", "0.003", *options, "-o", out, quiet=True)
    log = train(out, ranks, "--train_data", a.folder / "small.safetensors", "--steps", a.steps, "--threads", "1", "--progress", "none",
                "--log_freq", "1", quiet=True)
    return log.steps[0]["loss"], log.steps[-1]["loss"], log.steps[-1]["memory_planned_bytes"]


def main():
    p = parser(__doc__)
    p.add_argument("--ranks", type=int, nargs="*", default=[2, 4], choices=[2, 4])
    p.add_argument("--strategies", nargs="*", default=STRATEGIES, choices=STRATEGIES)
    p.add_argument("--steps", type=int, default=40)
    a = parse(p)
    run(sys.executable, HERE / "bigmodel.py", a.folder / "small.onnxtxt", *SIZE, "--data", a.folder / "small.safetensors")
    reached = {}
    for ranks in a.ranks:
        for options in settings(ranks, a.strategies):
            first, last, size = train_one(a, ranks, options)
            print(f"{ranks} ranks  loss {first:.3f} -> {last:.3f}  {size / 2**20:6.2f} MiB  {' '.join(options)}", flush=True)
            if not last < 0.8 * first:
                sys.exit("it does not learn")
            reached.setdefault(f"{'bf16' if 'bf16' in options else 'f32'}_on_{ranks}_ranks", []).append(last)
    for name, losses in reached.items():
        if len(set(losses)) > 1:
            sys.exit(f"{name}: the losses differ: {losses}")
    print_figures(settings=sum(map(len, reached.values())), **{name: losses[0] for name, losses in reached.items()})


if __name__ == "__main__":
    main()
