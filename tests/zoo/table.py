#!/usr/bin/env python3
"""The verdicts of a zoo run as a table: table.py RES [SUFFIX], RES being the folder of the harness's *.json.

SUFFIX picks the runs of one kind: `dynamo` (default), `dynamo.raw` (optimize=False), `ts`, `dynamo.train`.
"""
import collections, json, pathlib, re, sys

# A model that fails in PyTorch or in its exporter does not test the compiler.
NOT_OURS = ("export-failed", "build-failed", "torch-failed", "harness-error", "harness-killed")


def verdict(run):
    """The harness's verdict, or `bn-folded` if only parameters of BatchNorms are lost and the compiler warns about it."""
    lost = run.get("lost_real") or []
    isFolded = run["verdict"] == "parameters" and run.get("bn_modules") and not run.get("extra") and any(
        "folded BatchNorm" in remark for remark in run.get("compile_remarks", []))
    return "bn-folded" if isFolded and lost else run["verdict"]


def cause(run):
    """A short reason why a model is not right."""
    why = run.get("why") or ""
    if verdict(run) == "bn-folded":
        return "BatchNorm folded by the exporter, with a warning"
    if run["verdict"] == "parameters":
        names = (run.get("lost_real") or []) + [one[0] for one in run.get("extra") or []]
        return "without or beside PyTorch's: " + ", ".join(names[:2])
    for pattern, words in (("whose values are all equal", "expanded or gathered, all values equal"), ("was computed", "computed into a constant by the exporter"),
                           ("stood under torch.no_grad", "no_grad or autocast, which the file does not tell apart"),
                           ("torch.autograd.Function", "a derivative of the author's own"),
                           ("detaches", "a value that the model detaches"),
                           ("merged|has no node left", "merged with equal parameters, and nothing tells who reads which"),
                           ("unsupported nodes|cannot translate", "an op that is not supported")):
        if re.search(pattern, why):
            return words
    return (why.strip().splitlines() or [""])[0][:100]


def main():
    folder, suffix = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "dynamo"
    runs = []
    for file in sorted(folder.glob(f"*.{suffix}.json")):
        runs.append(json.loads(file.read_text()))
    counts = collections.Counter(verdict(run) for run in runs)
    exported = [run for run in runs if run["verdict"] not in NOT_OURS]
    judged = [run for run in exported if verdict(run) not in ("bn-folded", "exported")]
    print("| verdict | models |\n|---|---|")
    for kind, count in counts.most_common():
        print(f"| {kind} | {count} |")
    right = counts["ok"]
    print(f"\n{right} of {len(judged)} that export are right ({100 * right / max(1, len(judged)):.0f} %), `bn-folded` left out of both.\n")
    print("| model | verdict | why |\n|---|---|---|")
    for run in sorted(exported, key=lambda run: (verdict(run), cause(run), run["name"])):
        if run["verdict"] not in ("ok", "exported"):
            print(f"| {run['name']} | {verdict(run)} | {cause(run)} |")


if __name__ == "__main__":
    main()
