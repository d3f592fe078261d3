#!/usr/bin/env python3
"""Random programs: the properties of README.md on many graphs, in the evaluator and as emitted programs.

    run.py [--build build] [--graphs 500] [--placements N] [--programs 10] [--graphs_per_program 6] [--first_seed 1] [--jobs 2] [--keep DIR]
           [--target cpu|cuda]

A graph that violates a property is reduced with `fsdpc reduce` and printed with its seed. Ends with `random: N passed, N failed`
and exits 0 or 1.
"""
import argparse, concurrent.futures, pathlib, re, sys, tempfile, time
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
import accept
from compare import relative_error  # found through accept
from steps import run, seed as seed_of_tree

CHUNK = 25                      # graphs per process
MOST_REDUCED = 3                # violations that are reduced: one bug shows in many graphs
REDUCTION_SECONDS = 240
PROGRAM_REDUCTION_SECONDS = 1200    # every check compiles a program
ENOUGH_FOR_ALL_OPS = 400
NOT_CRASHED = "/usr/lib/llvm-19/bin/not"

# Ops that no graph reaches in any stage, and why. Anything else that is missing is a failure.
UNREACHED = {
    "lion": "where a gradient is nothing but rounding its step is as large as any: tests/exports/lion holds it to its author's",
}

# Ops that a graph can hold and that no production draws, and why.
DERIVATIVE = "no import writes it: differentiate does, and the ops it is the derivative of are drawn"
UNDRAWN = {name: DERIVATIVE for name in (
    "gelu_grad", "gelu_tanh_grad", "silu_grad", "convolution_grad_weight", "max_pool_grad", "average_pool_grad", "softmax_grad",
    "log_softmax_grad", "layer_norm_grad", "rms_norm_grad", "attention_grad", "cross_entropy_grad", "nll_grad",
    "linear_cross_entropy_grad")}

# Limits as a share of all gradients: those compared at a redrawn point, and those that could not be compared at any point.
MOST_REDRAWN, MOST_AT_KINKS = 0.02, 0.002
# Limit as a share of all graphs: those with synced norms and a random number that all samples of a rank share (reference.cpp).
MOST_WITHOUT_REFERENCE = 0.01
COUNTS = ("slopes", "redrawn", "kinks", "not_rebatched")


class Evaluated:
    """Graphs whose properties are checked in the evaluator."""

    def __init__(self, build, folder, placements=None):
        self.program, self.fsdpc, self.folder = build / "tests/fsdpc_random", build / "fsdpc", folder
        self.placements = [] if placements is None else [placements]
        self.checked, self.violations, self.ops, self.drawn = 0, [], set(), set()
        self.counts = dict.fromkeys(COUNTS, 0)

    def check(self, first, count):
        """A crash ends the process at its seed. Another process checks the remaining seeds."""
        end = first + count
        while first < end:
            status, output = run([self.program, "check", first, end - first, self.folder, *self.placements])
            self.violations += [(int(seed), name, text) for seed, name, text in re.findall(r"^violation (\d+) (\w+): (.*)", output, re.M)]
            for line in re.findall(r"^ops (.*)", output, re.M):
                self.ops |= set(line.split())
            for line in re.findall(r"^drawn (.*)", output, re.M):
                self.drawn |= set(line.split())
            for line in re.findall(r"^slopes .*", output, re.M):
                for name, count in zip(line.split()[::2], line.split()[1::2]):
                    self.counts[name] += int(count)
            seeds = [int(seed) for seed in re.findall(r"^seed (\d+)", output, re.M)]
            if status in (0, 1):
                self.checked += len(seeds)
                return
            if not seeds:
                self.violations.append((first, "start", output.strip() or f"status {status}"))
                return
            self.checked += len(seeds)
            self.violations.append((seeds[-1], "crash" if status is not None else "hang", "\n".join(output.splitlines()[-5:])))
            first = seeds[-1] + 1

    def reduced(self, seed, name):
        """The text of the smallest module that violates the same property."""
        file, small = self.folder / f"{seed}.fsir", self.folder / f"{seed}.reduced.fsir"
        fails = [self.program, "fails", name, seed]
        if name == "crash":
            fails = [NOT_CRASHED, "--crash", *fails]
        status, output = run([self.fsdpc, "reduce", file, "-o", small, "--", *fails], timeout=REDUCTION_SECONDS)
        if status == 0:
            return f"reduced: {output.splitlines()[-1]}\n{small.read_text()}"
        return f"not reduced (status {status}): {output[-500:]}\n{file.read_text() if file.exists() else ''}"

    def report(self):
        """How many graphs failed; prints them."""
        for index, (seed, name, text) in enumerate(sorted(self.violations)):
            print(f"graph of seed {seed} violates {name}: {text}", flush=True)
            if index < MOST_REDUCED and name not in ("start", "hang"):
                print(self.reduced(seed, name), flush=True)
        faults = [*self.missing_ops(), *self.slopes()] if self.checked >= ENOUGH_FOR_ALL_OPS else []
        for fault in faults:
            print(fault)
        print("{slopes} gradients against differences of the graph as generated; {redrawn} at another point, {kinks} at kinks only; "
              "{not_rebatched} graphs without a reference".format(**self.counts))
        return len(self.violations) + len(faults)

    def missing_ops(self):
        _, text = run([self.program, "ops"])
        for what, missing in (("no graph reached", all_ops() - self.ops - set(UNREACHED)),
                              ("no production draws", set(text.split()) - self.drawn - set(UNDRAWN)),
                              ("drawn, but listed as not", set(UNDRAWN) & self.drawn)):
            if missing:
                yield f"{what}: {' '.join(sorted(missing))}"

    def slopes(self):
        """Fails if too many gradients or graphs were not compared with the reference."""
        all_slopes = self.counts["slopes"] + self.counts["kinks"]
        for name, most in (("redrawn", MOST_REDRAWN), ("kinks", MOST_AT_KINKS)):
            if not self.counts[name] <= most * all_slopes:
                yield f"{name}: {self.counts[name]} of {all_slopes} gradients, at most {most:.1%} may be"
        if not self.counts["not_rebatched"] <= MOST_WITHOUT_REFERENCE * self.checked:
            yield f"{self.counts['not_rebatched']} of {self.checked} graphs have no reference"


def all_ops():
    text = (TESTS.parent / "ir/ops.def").read_text()
    return set(re.findall(r'^OP\(\w+, "([^"]+)"', text, re.M))


def differences(folder, log):
    """Compares the program's results with those of the evaluator, tensor by tensor."""
    reference = accept.load_safetensors(folder / "reference.safetensors")
    losses = re.findall(r'"loss": *([-+.\w]+)', log.read_text())
    ours = {"loss": np.array(float(losses[0]) if losses else np.nan)}
    for prefix, file in (("grad.", "gradients.safetensors"), ("final.", "model.safetensors")):
        for name, value in accept.load_safetensors(folder / file).items():
            ours[name if name.startswith(prefix) else prefix + name] = value
    for name in reference:
        if name.startswith(("limit.", "scale.")):
            continue
        scale = float(reference["scale." + name]) or 1.0
        error = relative_error(ours.get(name), reference[name], scale)
        limit = float(reference["limit." + name])
        if not error <= limit:
            yield name, error, limit


# Placements of programs, by the number of ranks that the seed chooses.
PLACEMENTS = {
    1: [["full_shard"], ["full_shard", "--deterministic"]],
    2: [["full_shard"], ["no_shard"], ["shard_grad_op"], ["shard_optimizer"], ["full_shard", "--reshard_after_forward", "never"],
        ["full_shard", "--reduce_communicator", "own"], ["shard_grad_op", "--deterministic"]],
    3: [["full_shard"], ["no_shard"], ["shard_grad_op"], ["full_shard", "--deterministic"]],
    4: [["hybrid_shard", "--data_parallel_shard_degree", 2], ["full_shard", "--reshard_after_forward", 2],
        ["hybrid_shard_zero2", "--data_parallel_shard_degree", 2], ["full_shard"], ["hybrid_shard", "--data_parallel_shard_degree", 2, "--deterministic"]],
}
# Accumulation modes of several micro-steps, where no other option determines them.
ACCUMULATION = ["reduce", "keep_gradients", "keep_parameters", "keep_both"]
PREFETCH = {"--backward_prefetch": 2, "--max_inflight_all_gathers": 2, "--forward_prefetch": 1, "--no_forward_prefetch": 1}


def without(removed, options):
    """Without the options that `removed` names, each with its number of words."""
    kept, i = [], 0
    while i < len(options):
        skipped = removed.get(options[i], 0)
        kept += options[i:i + 1] if not skipped else []
        i += max(skipped, 1)
    return kept


def build_options(target, seed):
    """On the cpu every second program as users build it, the others in the test build, which compiles in half of the time; on the
    emulated device."""
    return ["--target", target, *(["--test_build"] if target == "cuda" or seed % 2 else [])]


def emitted(build, target, folder, seed, graphs, file=None):
    """(placement, errors) of one program of several graphs, or of the module in `file`. An error is (kind, text)."""
    folder.mkdir(parents=True)
    status, output = run([build / "tests/fsdpc_random", "write", seed, graphs, folder, *([file] if file else [])])
    if status != 0:
        return "", [("write", f"status {status}: {output[-1000:]}")]
    options = (folder / "options.txt").read_text().split("\n")[:-1]
    ranks = int(options[options.index("--world_size") + 1])
    placement = PLACEMENTS[ranks][seed % len(PLACEMENTS[ranks])]
    if placement[0] not in ("full_shard", "hybrid_shard") or "never" in placement or ranks == 1:
        options = without(PREFETCH, options) # rejected where forward and backward do not gather unit by unit
    if "--reduce_dtype" in options and "hybrid_shard" in placement: # both sums over ranks round
        placement = [option for option in placement if option != "--deterministic"]
    micro_steps = int(options[options.index("--gradient_accumulation_steps") + 1])
    if micro_steps > 1 and placement == ["full_shard"] and ranks > 1:
        placement = [*placement, "--accumulation", ACCUMULATION[seed % len(ACCUMULATION)]]
    keeps = any(word in ACCUMULATION[1:] for word in placement)
    if placement[0] in ("no_shard", "shard_optimizer") or keeps or ranks == 1: # no table is split and gathered in the step
        options = without({"--rows": 2}, options)
    name = " ".join(map(str, placement)) + f" on {ranks} ranks, {micro_steps} micro-steps, {target}"
    status, output = run([build / "fsdpc", folder / "graph.fsir", *options, "--strategy", *placement, *build_options(target, seed), "-o", folder / "out"])
    if status != 0:
        return name, [("compile", f"status {status}: {output[-2000:]}")]
    status, output = run(["mpirun", "-n", ranks, folder / "out/train", "--batch", folder / "batch.safetensors", "--load_model",
                          folder / "weights.safetensors", "--steps", 1, "--log", folder / "log.jsonl", "--log_freq", 1, "--progress",
                          "none", "--save_gradients", folder / "gradients.safetensors", "--save_model", folder / "model.safetensors"])
    if status != 0:
        return name, [("train", f"status {status}: {output[-2000:]}")]
    return name, [("values", f"{tensor} is off by {error:.1e}, limit {limit:.1e}")
                  for tensor, error, limit in differences(folder, folder / "log.jsonl")]


def program_fails(build, target, seed, graphs, kind, file):
    """The check for `fsdpc reduce`: 0 while the module's program has an error of this kind."""
    with tempfile.TemporaryDirectory(prefix="fsdpc-random-") as folder:
        _, faults = emitted(build, target, pathlib.Path(folder, "program"), seed, graphs, file)
        return 0 if any(kind == known for known, _ in faults) else 1


def reduced_program(build, target, folder, seed, graphs, kind):
    small = folder / "reduced.fsir"
    check = ["/usr/bin/python3", __file__, "--build", build, "--target", target, "--first_seed", seed, "--graphs_per_program", graphs, "--program_fails", kind]
    status, output = run([build / "fsdpc", "reduce", folder / "graph.fsir", "-o", small, "--", *check], timeout=PROGRAM_REDUCTION_SECONDS)
    return f"reduced:\n{small.read_text()}" if status == 0 else f"not reduced (status {status}): {output[-500:]}"



def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TESTS.parent / "build")
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--placements", type=int, help="besides full_shard, for each graph; without it all")
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--graphs_per_program", type=int, default=6)
    parser.add_argument("--first_seed", type=int, default=int(seed_of_tree()), help="without it the tree's")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--program_fails", metavar="KIND", help="check FILE's program: exit 0 if it has a fault of this kind")
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    a = parser.parse_args()
    if a.program_fails:
        return program_fails(a.build.resolve(), a.target, a.first_seed, a.graphs_per_program, a.program_fails, a.file)
    with tempfile.TemporaryDirectory(prefix="fsdpc-random-") as temporary, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        folder = (a.keep or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        graphs = Evaluated(a.build.resolve(), folder, a.placements)
        end = a.first_seed + a.graphs
        list(pool.map(lambda first: graphs.check(first, min(CHUNK, end - first)), range(a.first_seed, end, CHUNK)))
        failed = graphs.report()
        print(f"{graphs.checked} graphs, seeds {a.first_seed} to {end - 1}, in the evaluator: {failed} failed "
              f"({time.monotonic() - started:.0f} s)", flush=True)
        started, reduced_one = time.monotonic(), False
        seeds = range(a.first_seed, a.first_seed + a.programs)
        run_one = lambda seed: emitted(a.build.resolve(), a.target, folder / f"program{seed}", seed, a.graphs_per_program)
        for seed, (name, faults) in zip(seeds, pool.map(run_one, seeds)):
            print(f"  {'FAIL' if faults else 'ok  '} program of seed {seed}: {name}", flush=True)
            for kind, text in faults[:5]:
                print(f"       {kind}: {text}", flush=True)
            if faults and not reduced_one:
                print(reduced_program(a.build.resolve(), a.target, folder / f"program{seed}", seed, a.graphs_per_program, faults[0][0]), flush=True)
                reduced_one = True
            failed += bool(faults)
        print(f"{a.programs} programs of {a.graphs_per_program} graphs each, emitted and run ({time.monotonic() - started:.0f} s)")
    passed = graphs.checked + a.programs - failed
    print(f"random: {passed} passed, {failed} failed")
    return 1 if failed or graphs.checked != a.graphs else 0


if __name__ == "__main__":
    sys.exit(main())
