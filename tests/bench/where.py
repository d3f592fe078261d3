#!/usr/bin/env python3
"""Where the time of a step goes: samples of `perf record` on 2 ranks of one thread, by what the sampled function computes.

    where.py FOLDER [--steps 20] [-- OPTIONS OF FSDPC]

FOLDER has model.onnxtxt or model.onnx and batch.safetensors (gpt_model.py writes such). Start-up is in the samples, so take many
steps. Prints a row of percentages of all samples of rank 0, and the functions that no class has.
"""
import argparse, os, pathlib, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The first that matches a "library|function" names the class. oneDNN generates its kernels, which have no names.
CLASSES = [
    ("matmul, convolution", r"^\[JIT\]|^\[unknown\]|^//anon|libdnnl|packColumns|packRows|Matmul|smallGemm|panel"),
    ("attention", r"[aA]ttention|forwardHead|backwardHead|Scores|softmaxOfRow|tile<|tileGemm|TileGemm"),
    ("norm, softmax, loss", r"[nN]orm|[sS]oftmax|[cC]rossEntropy|argMax|chunked"),
    ("sums, pooling", r"reduce|sumBlock|columnSum|sumLongRuns|Pool"),
    ("elementwise", r"libmvec|libm\.|unit\d+|microStep|evalStep|prologuePart"),
    ("optimizer", r"adam|sgd|adadelta|adagrad|updatePart|::update"),
    ("communication, waits", r"[cC]ollective|[cC]ommunicator|[bB]arrier|sched|futex|[wW]indow|treeSum|libmpi|libopen|task_switch|ucp|uct"),
    ("moves", r"copy|transpose|gather|scatter|concat|slice|memmove|memcpy|memset|fill"),
    ("first touch", r"clear_page|page_fault|clear_huge|alloc_pages"),
]


def classOf(library, function):
    for name, pattern in CLASSES:
        if re.search(pattern, f"{library}|{function}"):
            return name
    return "other"


def samples(data):
    """(library, function, per cent) of a recording."""
    report = subprocess.run(["perf", "report", "-i", data, "--stdio", "-q", "--sort", "dso,symbol", "-t", "|"], check=True, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) >= 3 and fields[0].endswith("%"):
            yield fields[1], fields[2].partition("] ")[2] or fields[2], float(fields[0].rstrip("%"))


def record(folder, steps, options):
    work = ROOT / "build/bench/where"
    work.mkdir(parents=True, exist_ok=True)
    model = next(path for path in (folder / "model.onnxtxt", folder / "model.onnx") if path.exists())
    subprocess.run([ROOT / "build/fsdpc", model, "--world_size", "2", "--threads", "1", "-o", work / "out", *options], check=True,
                   stdout=subprocess.DEVNULL)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    script = 'exec perf record -q -e cpu-clock -F 499 -o "$0.$OMPI_COMM_WORLD_RANK" "$@"'
    subprocess.run(["mpirun", "-n", "2", "bash", "-c", script, work / "samples", work / "out/train", "--batch", folder / "batch.safetensors",
                    "--steps", str(steps), "--threads", "1", "--progress", "none"], check=True, env=environment, stdout=subprocess.DEVNULL)
    return f"{work}/samples.0"


def main():
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args(own.split())
    total, others = {}, []
    for library, function, share in samples(record(arguments.folder.resolve(), arguments.steps, options.split())):
        name = classOf(library, function)
        total[name] = total.get(name, 0) + share
        if name == "other":
            others.append((share, library, function))
    for name, share in sorted(total.items(), key=lambda item: -item[1]):
        print(f"{share:5.1f} %  {name}")
    for share, library, function in sorted(others, reverse=True)[:8]:
        print(f"         {share:.1f} %  {library} {function[:100]}")


if __name__ == "__main__":
    main()
