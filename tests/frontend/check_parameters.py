#!/usr/bin/python3
"""check_parameters.py META.json < output of `fsdpc inspect --json`: checks that exactly the fixture's parameters are found.

Each row of meta.json must be one parameter: under its PyTorch name even if the exporter renamed, transposed or merged it, with
the node inputs that read it (`uses`), in PyTorch's layout. Buffers and other initializers must not be parameters.
"""
import json, sys


def main():
    meta = json.load(open(sys.argv[1]))
    rows = json.load(sys.stdin)["parameters"]
    found = {r["name"]: {"shape": r["shape"], "trained": r["trainable"], "initializer": r["initializer"],
                         "uses": {tuple(u.rsplit(":", 1)) for u in r["uses"]}} for r in rows}
    by_use = {use: name for name, p in found.items() for use in p["uses"]}
    faults, seen = [], set()
    for row in meta["parameters"]:
        if row.get("damage") == "not in the file":
            continue
        names = {by_use.get((u["node"], str(u["input"]))) for u in row["uses"]}
        if len(names) != 1 or None in names:
            faults.append(f"{row['fqn']}: its uses belong to {sorted(map(str, names))}")
            continue
        name = names.pop()
        ours = found[name]
        if name in seen:
            faults.append(f"{row['fqn']}: shares {name} with another parameter")
        seen.add(name)
        if ours["uses"] != {(u["node"], str(u["input"])) for u in row["uses"]}:
            faults.append(f"{row['fqn']}: read by {sorted(ours['uses'])}")
        named = row.get("damage") in ("renamed", "transposed", "merged", "reshaped") or row["onnx_initializer"] is None
        if named and name != row["fqn"]:
            faults.append(f"{row['fqn']}: is called {name}")
        if row.get("damage") != "repacked" and ours["shape"] != row["shape"]:
            faults.append(f"{row['fqn']}: has shape {ours['shape']}")
        if not ours["trained"]:
            faults.append(f"{row['fqn']}: is not trained")
    faults += [f"{name}: is a parameter of ours only" for name in found if name not in seen]
    initializers = {p["initializer"] for p in found.values()}
    faults += [f"{name}: is trained" for name in meta["buffers"] + meta["other_initializers"] if name in initializers]
    print("\n".join(faults) or f"{len(seen)} parameters as in {meta['name']}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
