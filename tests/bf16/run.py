#!/usr/bin/env python3
"""Tests programs in bf16 (README.md).

    run.py rounding FIXTURE [--target cpu|cuda] [-- more fsdpc options]
        checks every node of the fixture's program on one rank against the evaluator on the program's operands; also checks
        that a small error in every node is detected
    run.py random SEED [--target cpu|cuda]
        the same for a program of random graphs (tests/random), for the ops that no fixture has
    run.py trajectory FIXTURE [--target cpu|cuda] [-- more fsdpc options]
        the losses of a training run on two ranks, against PyTorch's f32 run: no further away than another bf16 run of PyTorch

cuda is the emulated device. Prints what it compared and a last line that ends with `ok` or `FAILED`; exits 0 or 1. Also:
--build build, --keep DIR.
"""
import argparse, json, math, os, pathlib, shutil, statistics, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import accept  # noqa: E402  its compile options and reader are this script's too
import fixture_sets  # noqa: E402
from compare import worst  # noqa: E402  found through accept

TARGETS = {"cpu": [], "cuda": ["--test_build"]}
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_mpi_yield_when_idle": "1"}
# Two steps: optimizer state is not zero in the second.
ROUNDING_STEPS = 2
# The emulated device needs more than a second for a step of a transformer.
TRAJECTORY_STEPS = {"cpu": 21, "cuda": 9}
MEASURES = {"maximum": lambda apart: worst(map(abs, apart)), "root mean square": lambda apart: math.sqrt(sum(d * d for d in apart) / len(apart))}
GRAPHS_PER_PROGRAM = 3
# Student's t, one-sided, by degrees of freedom: one run in a thousand is further away.
ONE_IN_A_THOUSAND = {7: 4.785}


def run(*command, **environment):
    ended = subprocess.run([str(c) for c in command], env={**os.environ, **MPI, **environment}, text=True, errors="replace",
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode:
        print(" ".join(map(str, command)) + "\n" + ended.stdout[-3000:])
    return ended.returncode == 0, ended.stdout


class Random:
    """All graphs of a seed together, on one rank whatever their rank count, in one micro-step and without copies to the host,
    which compute nothing. A step takes the first rows of the data."""

    def __init__(self, a, work):
        self.seed, self.target, self.build, self.folder = a.subject, a.target, a.build.resolve(), work / "graphs"

    def compile(self, out, ranks, *more):
        self.folder.mkdir()
        if not run(self.build / "tests/fsdpc_random", "write", self.seed, GRAPHS_PER_PROGRAM, self.folder)[0]:
            return False
        options = (self.folder / "options.txt").read_text().split("\n")[:-1]
        options = [option for option in options if not option.startswith("--offload_") and option != "--keep_low_precision_grads"]
        if "--reduce_dtype" in options:  # one rank sends nothing
            at = options.index("--reduce_dtype")
            del options[at:at + 2]
        for name, value in (("--world_size", ranks), ("--gradient_accumulation_steps", 1)):
            options[options.index(name) + 1] = str(value)
        if "--mixed_precision" not in options:
            options += ["--mixed_precision", "bf16"]
        return run(self.build / "fsdpc", self.folder / "graph.fsir", *options, "--target", self.target, *more, "-o", out)[0]

    def data(self):
        batch = self.folder / "batch.safetensors"
        return ["--train_data", batch, "--data_format", "safetensors", "--val_data", batch, "--load_model", self.folder / "weights.safetensors"]


class Case:
    def __init__(self, a, work):
        self.fixture, self.target, self.build, self.extra = pathlib.Path(a.subject).resolve(), a.target, a.build.resolve(), a.extra
        self.meta = json.loads((self.fixture / "meta.json").read_text())
        self.batch = self.fixture / "batch.safetensors"
        self.rows = len(next(iter(accept.load_safetensors(self.batch).values())))

    def compile(self, out, ranks, *more):
        a = argparse.Namespace(target=self.target, strategy="full_shard", world_size=ranks, variant="file")
        options = accept.compile_options(self.meta, self.rows, a, False)
        return run(self.build / "fsdpc", self.fixture / "model.onnx", *options, "--mixed_precision", "bf16", *more, *self.extra, "-o", out)[0]


    def data(self):
        return ["--batch", self.batch, "--val_data", self.batch, "--data_format", "safetensors"]


def link(case, out):
    """Builds the program from fsdpc's source, with the recorder in it, against the kernels that programs use here."""
    if case.target == "cuda":
        flags = ["-O2", "-DFSDPC_RANKS_ARE_THREADS", f"-I{ROOT / 'tests/emulated/include'}", "-x", "c++"]
        libraries = ["tests/libfsdpc_runtime_cuda_emulated.a"]
        links = ["-lboost_context", "-lpthread"]
    else:
        flags = ["-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fopenmp"]
        libraries, links = ["libfsdpc_kernels_v4.a", "libfsdpc_runtime_cpu.a"], ["-fopenmp", "-lmpi_cxx", "-lmpi", "-ldnnl", "-lpthread"]
    sources = [*out.glob("*.cu"), *out.glob("*.cpp")]
    return run("g++", "-std=c++20", "-ffp-contract=off", f"-I{out}", f"-I{ROOT}", *flags, *sources, "-x", "none",
               *(case.build / library for library in libraries if (case.build / library).exists()), *links, "-o", out / "train")[0]


def check_rounding(case, work):
    out, tool = work / "out", case.build / "tests/fsdpc_rounding"
    ready = case.compile(out, 1, "--emit", "src") and run(tool, "instrument", out, case.target)[0] and link(case, out)
    if not ready:
        return False
    graph = ["--cuda_graph", "off"] if case.target == "cuda" else []
    ran, _ = run(out / "train", *graph, "--log", work / "log.jsonl", *case.data(), "--steps", ROUNDING_STEPS, "--progress", "none", "--eval_every", ROUNDING_STEPS,
                 FSDPC_REGIONS=str(out / "regions.txt"), FSDPC_RECORD=str(work / "record"))
    if not ran:
        return False
    settings = next(line["settings"] for line in map(json.loads, open(work / "log.jsonl")) if "settings" in line)
    statuses = []
    for question in ("checkOutcome", "spoil"):
        judged = subprocess.run([tool, question, out, case.target, work / "record", settings.get("cpu_level", "")], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(judged.stdout.rstrip())
        statuses.append(judged.returncode)
    return not any(statuses)


def one_more(distances):
    """The limit for one more run: the upper end of the prediction interval of a normal distribution (Whitmore 1986)."""
    spread = statistics.stdev(distances) * math.sqrt(1 + 1 / len(distances))
    return statistics.mean(distances) + ONE_IN_A_THOUSAND[len(distances) - 1] * spread


def check_trajectory(case, work):
    """The maximum and the root mean square of the distances between the losses. Ours is one run: whether it is the furthest of
    nine is chance, and another processor's order of sums draws again."""
    torch = json.loads((HERE / "torch_bf16.json").read_text())["fixtures"][case.fixture.name]
    steps = min(TRAJECTORY_STEPS[case.target], len(torch["f32_losses"]))
    if not case.compile(work / "out", 2, *TARGETS[case.target]):
        return False
    ran, _ = run("mpirun", "-n", 2, work / "out/train", "--batch", case.batch, "--steps", steps, "--progress", "none",
                 "--log", work / "log.jsonl", "--log_freq", 1)
    if not ran:
        return False
    lines = [json.loads(line) for line in (work / "log.jsonl").read_text().splitlines() if line.startswith("{")]
    losses = [line["loss"] for line in lines if "step" in line and "loss" in line]
    if len(losses) != steps:
        print(f"{len(losses)} losses of {steps} steps")
        return False
    apart, runs = [ours - theirs for ours, theirs in zip(losses, torch["f32_losses"])], [run[:steps] for run in torch["bf16_minus_f32"]]
    isWithin, times = True, fixture_sets.BF16_FURTHER.get(case.fixture.name, 1)
    for name, measure in MEASURES.items():
        ours, theirs = measure(apart), [measure(run) for run in runs]
        limit = times * one_more(theirs)
        print(f"{name} of {steps} losses: {ours:.2e} from PyTorch's f32 run, its own bf16 runs up to {max(theirs):.2e}; limit {limit:.2e}")
        isWithin = isWithin and ours <= limit
    return isWithin


def main():
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["rounding", "random", "trajectory"])
    p.add_argument("subject", metavar="FIXTURE or SEED")
    p.add_argument("--target", choices=TARGETS, default="cpu")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--keep", type=pathlib.Path)
    a = p.parse_args(argv, argparse.Namespace(extra=extra))
    work = (a.keep or pathlib.Path(tempfile.mkdtemp(prefix="fsdpc-bf16-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    case = (Random if a.what == "random" else Case)(a, work)
    ok = (check_trajectory if a.what == "trajectory" else check_rounding)(case, work)
    if not a.keep:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{a.what} {pathlib.Path(a.subject).name} {a.target}: {'ok' if ok else 'FAILED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
