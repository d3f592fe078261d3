#!/usr/bin/env python3
"""Builds test programs that read freed values: every poisoning, one at a time, is also executed before the statement that
precedes it, as if the value had been freed too early.

    read_freed.py WORK FIXTURE N cpu|cuda [more fsdpc options]

With poison each of them must differ from the unmodified program or stop, except for unread results, which are counted in
planned.fsir. Without poison the results are bitwise identical. Prints the count and `read_freed: ok`.
"""
import json, os, pathlib, re, shutil, subprocess, sys, types

TESTS = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FSDPC_BUILD", TESTS.parent / "build"))
sys.path.insert(0, str(TESTS))
import accept

PICK = '''#include <cstdlib>
static bool isEarly(int site) {
  static const char *const wanted = std::getenv("FSDPC_EARLY");
  return wanted && std::atoi(wanted) == site;
}
'''
STATEMENT = re.compile(r"  (?!//|poison\(|record\(|const )\S")       # continuation lines are indented deeper
DECLARATION = re.compile(r"  [\w:]+ \*const t\d+ = ")
LIBRARIES = {"cpu": ["mpicxx", "-fopenmp"], "cuda": ["g++", "-DFSDPC_RANKS_ARE_THREADS", f"-I{TESTS}/emulated/include", "-x", "c++"]}
LINKED = {"cpu": [BUILD / "libfsdpc_runtime_cpu.a", "-ldnnl"], "cuda": [BUILD / "tests/libfsdpc_runtime_cuda_emulated.a", "-lboost_context", "-lgomp"]}


def with_early_poison(text):
    """The program, and the number of sites."""
    lines, before, last = text.splitlines(), {}, None
    sites = 0
    for number, line in enumerate(lines):
        freed = re.match(r"  // free: (t\d+)$", lines[number - 1])
        # If the statement does not name the value, another section used it.
        if line.startswith("  poison(") and freed and last is not None and re.search(rf"\b{freed[1]}\b", lines[last]):
            before.setdefault(last, []).append(f"  if (isEarly({sites})) {line.strip()}")
            sites += 1
        elif STATEMENT.match(line) and not DECLARATION.match(line):
            last = number
        elif line.startswith("}"):
            last = None
    return PICK + "\n".join(text for number, line in enumerate(lines) for text in [*before.get(number, []), line]) + "\n", sites


def unread_results(stage):
    """The number of values that a function computes and frees and uses nowhere else."""
    functions = re.split(r"^}$", stage, flags=re.M)
    return sum(len(re.findall(re.escape(name) + r"(?![\w.])", function)) == 2 for function in functions for name in re.findall(r"\bfree (%[\w.]+)", function))


def build(work, fixture, ranks, target, extra):
    meta = json.loads((fixture / "meta.json").read_text())
    request = types.SimpleNamespace(target=target, strategy="full_shard", world_size=ranks, variant="file")
    options = [str(option) for option in accept.compile_options(meta, meta["dim_params"]["batch"], request, False)]
    subprocess.run([BUILD / "fsdpc", fixture / "model.onnx", *options, *extra, "--test_build", "--emit", "src", "-o", work], check=True, stdout=subprocess.DEVNULL)
    program = next(work.glob("program.c[pu]*"))
    text, sites = with_early_poison(program.read_text())
    program.write_text(text)
    sources = [program, *work.glob("program_info.cpp"), *work.glob("constants.cpp")]
    subprocess.run([*LIBRARIES[target], "-std=c++20", "-O1", "-march=native", "-ffp-contract=off", f"-I{work}", *sources, "-x", "none", *LINKED[target], "-lpthread",
                    "-o", work / "train"], check=True)
    return sites


def train(work, fixture, ranks, **environment):
    """The outputs of a run, as bytes, or its exit code if it fails."""
    folder = work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    batch = fixture / "batch.safetensors"
    command = ["mpirun", "-n", ranks, work / "train", "--batch", batch, "--val_data", batch, "--data_format", "safetensors", "--steps", 2, "--progress", "none",
               "--streams", "inline", "--save_gradients", folder / "gradients", "--save_model", folder / "model", "--log", folder / "log", "--log_freq", 1]
    if (work / "program.cu").exists():
        command = [word for word in command if word not in ("--streams", "inline")]
    ended = subprocess.run([str(word) for word in command], env={**os.environ, **environment}, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        return ended.returncode, ended.stderr[-300:]
    losses = [{key: entry.get(key) for key in ("loss", "val_loss", "val_correct", "val_total")} for entry in map(json.loads, (folder / "log").read_text().splitlines()) if "step" in entry]
    return losses, (folder / "gradients").read_bytes(), (folder / "model").read_bytes()


def main():
    work, name, ranks, target, *extra = sys.argv[1:]
    work, fixture = pathlib.Path(work).resolve(), TESTS / "fixtures" / name
    sites = build(work, fixture, int(ranks), target, extra)
    expected = train(work, fixture, ranks)
    if not isinstance(expected[0], list):
        sys.exit(f"the program as it is: {expected}")
    unseen = [site for site in range(sites) if train(work, fixture, ranks, FSDPC_EARLY=str(site))[:3] == expected]
    print(f"{sites} values freed too early, {sites - len(unseen)} of them seen")
    if sites == 0 or len(unseen) > unread_results((work / "stages/planned.fsir").read_text()):
        sys.exit(f"not seen: {unseen}")
    if train(work, fixture, ranks, FSDPC_POISON="off") != expected:
        sys.exit("poison changes what the program computes")
    print("read_freed: ok")


if __name__ == "__main__":
    main()
