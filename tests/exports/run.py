#!/usr/bin/env python3
"""Checks fsdpc against one export of this folder, as expected.json specifies.

    run.py NAME [--fsdpc build/fsdpc] [--world_size 2] [--variant file|train] [--as EXPECTED]

EXPECTED: `accepted`: it trains what PyTorch trains (../accept.py), and its plan has exactly PyTorch's parameters by name.
`refused: TEXT`: the compile exits with 1 and a message that has TEXT. `not yet`: nothing is expected; shows the result.
Ends with a line `export: ok` or `export: FAILED: why`; exits 0 or 1.
"""
import argparse, json, pathlib, shutil, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import accept

EXPECTED = HERE / "expected.json"


def expected():
    """The expected outcome by name."""
    return json.loads(EXPECTED.read_text())


def names_differ(plan, meta):
    """Why the trained parameters of a plan differ from PyTorch's, or nothing. A tied parameter may have any of its names."""
    ours = {p["name"] for p in plan["parameters"] if p.get("trainable", True)}
    wanted = {row["fqn"]: {row["fqn"], *row["found_as"]} for row in meta["parameters"]}
    lost = sorted(fqn for fqn, names in wanted.items() if not names & ours)
    more = sorted(ours - set().union(*wanted.values()))
    return "; ".join(filter(None, (lost and "not in the plan: " + ", ".join(lost), more and "trained, but no parameter of PyTorch's: " + ", ".join(more))))


def check_accepted(folder, a):
    work = pathlib.Path(tempfile.mkdtemp(prefix="fsdpc-export-"))
    meta = json.loads((folder / "meta.json").read_text())
    command = ["/usr/bin/python3", HERE.parent / "accept.py", folder, "--fsdpc", a.fsdpc, "--world_size", a.world_size, "--variant", a.variant, "--keep", work,
               "--", *meta["options"]]
    ended = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(ended.stdout.rstrip())
    plan = work / "out/plan.json"
    why = names_differ(json.loads(plan.read_text()), meta) if plan.exists() else ""
    shutil.rmtree(work, ignore_errors=True)
    return "; ".join(filter(None, (why, ended.returncode and ended.stdout.rstrip().splitlines()[-1])))


def check_refused(folder, a, text):
    meta = json.loads((folder / "meta.json").read_text())
    request = argparse.Namespace(target="cpu", strategy="full_shard", world_size=a.world_size, variant=a.variant)
    options = accept.compile_options(meta, meta["dims"]["batch"], request, False)
    with tempfile.TemporaryDirectory(prefix="fsdpc-export-") as work:
        command = [a.fsdpc, folder / "model.onnx", *options, *meta["options"], "--emit", "src", "-o", work + "/out"]
        ended = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(ended.stdout.rstrip())
    if ended.returncode != 1:
        return f"exit {ended.returncode}, it has to be refused"
    return "" if text in ended.stdout else f"the message does not say '{text}'"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name")
    p.add_argument("--fsdpc", default="build/fsdpc")
    p.add_argument("--world_size", type=int, default=2)
    p.add_argument("--variant", choices=["file", "train"], default="file")
    p.add_argument("--as", dest="wanted")
    a = p.parse_args()
    wanted = a.wanted or expected()[a.name]
    kind, _, text = wanted.partition(": ")
    folder = HERE / a.name
    why = check_refused(folder, a, text) if kind == "refused" else check_accepted(folder, a)
    print(f"export: FAILED: {why[:600]}" if why else "export: ok")
    return 1 if why and kind != "not yet" else 0


if __name__ == "__main__":
    sys.exit(main())
