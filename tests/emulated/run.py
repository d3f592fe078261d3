#!/usr/bin/env python3
"""Programs of the cuda target on the emulated device, which runs streams in an order that a seed chooses.

    run.py accept FIXTURE [-n N] [--seeds K] [-- more fsdpc options]
        accept.py at seed 0; then every other seed must give bitwise identical losses, gradients, parameters and evaluation;
        every second one also as a graph
    run.py events FIXTURE [-n N] [--seeds K]
        deletes every statement that orders streams (record, await, wait) in turn: some seed must show each deletion
    run.py start FIXTURE [-n N]
        builds the program with nvcc and starts it with all devices hidden: requires exit 10 and a one-line message

Prints what it did and a last line that ends with `ok` or `FAILED`; exits 0 or 1. Also: --fsdpc build/fsdpc, --keep DIR.
"""
import argparse, collections, os, pathlib, re, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import accept  # noqa: E402  its compile options and reader are this script's too
import json

# A program that lacks an edge may also hang. The limit suits a busy machine and still lets the test continue.
RUN_SECONDS, HANG_SECONDS = 600, 10
# For programs with a deleted statement: the first step is tapped, and the last is evaluated.
EVENT_STEPS = 4


class Case:
    """One fixture at one world size, and the options that fit it."""

    def __init__(self, arguments):
        self.fixture, self.ranks, self.fsdpc, self.extra = arguments.fixture.resolve(), arguments.n, arguments.fsdpc, arguments.extra
        self.meta = json.loads((self.fixture / "meta.json").read_text())
        self.batch = self.fixture / "batch.safetensors"
        self.rows = len(next(iter(accept.load_safetensors(self.batch).values())))

    def options(self):
        a = argparse.Namespace(target="cuda", strategy="full_shard", world_size=self.ranks, variant="file")
        return [str(o) for o in accept.compile_options(self.meta, self.rows, a, False)]

    def compile(self, out, *more):
        command = [self.fsdpc, self.fixture / "model.onnx", *self.options(), "-o", out, *self.extra, *more]
        return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def train(self, program, work, graph="off", steps=3, timeout=RUN_SECONDS, log_every=1, evaluates=True, **environment):
        """The bytes of the run's output files, or why it left none. `graph`: on, or off, where an edge orders every step.
        The host waits for all of a step that it logs; between other steps, streams may lag behind."""
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        command = [program, "--cuda_graph", graph, "--batch", self.batch, "--progress", "none", "--steps", steps, "--log", work / "log.jsonl",
                   "--log_freq", log_every, "--save_gradients", work / "gradients.safetensors", "--save_model", work / "final.safetensors",
                   "--data_format", "safetensors", "--lr", 1e-4]  # so slow that stale values also show in the evaluation
        if evaluates:
            command += ["--val_data", self.batch, "--eval_every", steps]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_COMM")} | environment
        try:
            ended = subprocess.run([str(c) for c in command], env=environment, text=True, errors="replace", timeout=timeout, cwd=work,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            return "no end"
        if ended.returncode:
            return f"exit {ended.returncode}: {ended.stdout[-400:]}"
        figures = [{k: v for k, v in json.loads(line).items() if k in ("step", "loss", "val_loss", "val_correct", "val_total")}
                   for line in (work / "log.jsonl").read_text().splitlines() if '"loss"' in line or '"val_loss"' in line]
        return (figures, (work / "gradients.safetensors").read_bytes(), (work / "final.safetensors").read_bytes())


def check_accept(case, work, seeds):
    command = ["/usr/bin/python3", ROOT / "tests/accept.py", case.fixture, "--fsdpc", case.fsdpc, "--target", "cuda", "--world_size", case.ranks,
               "--keep", work, "--", "--test_build", *case.extra]
    ended = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(ended.stdout.rstrip())
    if ended.returncode or seeds < 2:
        return ended.returncode == 0
    program = work / "out/train"
    first = case.train(program, work / "run", FSDPC_EMULATED_SEED="0")
    modes = ("off",) if "emulated_loopback" in case.extra else ("off", "on")      # its ranks cannot be captured separately
    runs = [(seed, graph) for seed in range(1, seeds) for graph in modes if graph == "off" or seed % 2]
    for seed, graph in runs:
        other = case.train(program, work / "run", graph, FSDPC_EMULATED_SEED=str(seed))
        if isinstance(first, str) or other != first:
            print(f"seed {seed}, graph {graph}, differs from seed 0: {other if isinstance(other, str) else other[0]}; "
                  f"{first if isinstance(first, str) else first[0]}")
            return False
    print(f"{seeds} seeds, {sum(graph == 'on' for _, graph in runs)} as a graph too, the same bits")
    return True


STATEMENT = re.compile(r"^(\s+)((?:record|await|wait)\(c, .*?(?:events|tickets|copies)\[([^\]]+)\]\);)", re.M)


def guarded(text):
    """The program with a test before every statement that orders streams."""
    sites = []

    def guard(match):
        sites.append(match[2])
        return f"{match[1]}if (emulated::isKept({len(sites) - 1}, {match[3]})) {match[2]}"

    return STATEMENT.sub(guard, text), sites


def build_guarded(case, work):
    out = work / "out"
    # The test build poisons freed memory. Stale bytes of an earlier function may otherwise equal the ones that are read too early.
    ended = case.compile(out, "--emit", "src", "--test_build")
    if ended.returncode:
        print(ended.stdout)
        return None, []
    text, sites = guarded((out / "program.cu").read_text())
    (out / "program.cu").write_text('#include "tests/emulated/kept.h"\n' + text)
    flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-DFSDPC_RANKS_ARE_THREADS", f"-I{ROOT / 'tests/emulated/include'}", f"-I{out}", f"-I{ROOT}"]
    command = ["g++", *flags, "-o", out / "train", "-x", "c++", out / "program.cu", out / "program_info.cpp", "-x", "none",
               case.fsdpc.resolve().parent / "tests/libfsdpc_runtime_cuda_emulated.a", "-lboost_context", "-lgomp", "-lpthread"]
    ended = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode:
        print(ended.stdout)
        return None, []
    return out / "train", sites


def check_events(case, work, seeds):
    program, sites = build_guarded(case, work)
    if not program:
        return False
    list_file = work / "list"
    # After an evaluation, the export of the weights finds reloaded parameters where it reloads them to.
    expected = {evaluates: case.train(program, work / "run", log_every=EVENT_STEPS, steps=EVENT_STEPS, evaluates=evaluates, FSDPC_LIST=str(list_file))
                for evaluates in (False, True)}
    for found in expected.values():
        if isinstance(found, str):
            print(f"the program as it is: {found}")
            return False
    statements = sorted(list_file.read_text().split(), key=lambda s: [int(n) for n in s.split(":")])
    seen = collections.Counter()
    for statement in statements:
        how = how_it_is_seen(case, program, work, seeds, statement, expected)
        seen[how] += 1
        if how == "not seen":
            site, value = statement.split(":")
            print(f"not missed: {sites[int(site)]} for {value}")
    print(f"{len(statements) - seen['not seen']} of {len(statements)} deleted statements seen under {seeds} seeds: "
          + ", ".join(f"{many} by {how}" for how, many in sorted(seen.items()) if how != "not seen"))
    return bool(statements) and not seen["not seen"]


def how_it_is_seen(case, program, work, seeds, statement, expected):
    """The first symptom of a run without the statement: other numbers, an error, or a hang. Seeds under which copies from the host
    arrive last (device.h) come early, because only they show a missing wait for a copy that goes to where the same bytes still lie."""
    for seed in sorted(range(seeds), key=lambda seed: seed // 8 if seed % 8 == 1 else seed):
        for evaluates in (True, False):
            found = case.train(program, work / "run", timeout=HANG_SECONDS, log_every=EVENT_STEPS, steps=EVENT_STEPS, evaluates=evaluates,
                               FSDPC_EMULATED_SEED=str(seed), FSDPC_DELETED=statement)
            if found != expected[evaluates]:
                return "other numbers" if isinstance(found, tuple) else "no end" if found == "no end" else "an error"
    return "not seen"


def check_start(case, work, _):
    ended = case.compile(work / "out")
    if ended.returncode:
        print(ended.stdout)
        return False
    run = subprocess.run([work / "out/train", "--batch", str(case.batch), "--steps", "1"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})                # hide devices, on any machine
    lines = run.stdout.strip().splitlines()
    print(f"exit {run.returncode}: " + " | ".join(lines))
    # Each rank prints it, since ranks are threads.
    last = {line for line in lines if line.startswith("fsdpc: exit=10 rank=")}
    said = len(lines) == 2 * len(last) and "CUDA" in lines[0] and any("rank=0" in line for line in last)
    return run.returncode == 10 and said


def main():
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["accept", "events", "start"])
    p.add_argument("fixture", type=pathlib.Path)
    p.add_argument("-n", type=int, default=2)
    p.add_argument("--seeds", type=int, default=2)
    p.add_argument("--fsdpc", type=pathlib.Path, default=ROOT / "build/fsdpc")
    p.add_argument("--keep", type=pathlib.Path)
    a = p.parse_args(argv, argparse.Namespace(extra=extra))
    work = (a.keep or pathlib.Path(tempfile.mkdtemp(prefix="fsdpc-emulated-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    ok = {"accept": check_accept, "events": check_events, "start": check_start}[a.what](Case(a), work, a.seeds)
    if not a.keep:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{a.what} {a.fixture.name} N={a.n}: {'ok' if ok else 'FAILED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
