#!/usr/bin/env python3
"""The verdicts of a zoo run as a table: table.py RES [SUFFIX], RES being the folder of the harness's *.json.

SUFFIX picks the runs of one kind: `dynamo` (default), `dynamo.raw` (optimize=False), `ts`, `dynamo.train`.
"""
import collections, json, pathlib, re, sys

# A model that PyTorch's exporter or PyTorch itself does not get through says nothing of the compiler.
NOT_OURS = ("export-failed", "build-failed", "torch-failed", "harness-error", "harness-killed")


def cause(run):
    """A few words why a model is not right."""
    why = run.get("why") or ""
    if run["verdict"] == "parameters":
        lost = [name for name in run.get("lost_real", [])]
        return "BatchNorm folded by the exporter, with a warning" if run.get("bn_modules") and not run.get("bn_nodes") else "lost: " + ", ".join(lost[:2])
    for pattern, words in (("whose values are all equal", "expanded or gathered, all values equal"), ("was computed", "computed into a constant by the exporter"),
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
    counts = collections.Counter(run["verdict"] for run in runs)
    exported = [run for run in runs if run["verdict"] not in NOT_OURS]
    judged = [run for run in exported if run["verdict"] != "bn-folded"]
    print("| verdict | models |\n|---|---|")
    for verdict, count in counts.most_common():
        print(f"| {verdict} | {count} |")
    right = counts["ok"]
    print(f"\n{right} of {len(judged)} that export are right ({100 * right / max(1, len(judged)):.0f} %), `bn-folded` left out of both.\n")
    print("| model | verdict | why |\n|---|---|---|")
    for run in sorted(exported, key=lambda run: (run["verdict"], cause(run), run["name"])):
        if run["verdict"] not in ("ok", "exported"):
            print(f"| {run['name']} | {run['verdict']} | {cause(run)} |")


if __name__ == "__main__":
    main()
