"""Checks that the program's memory is at most the given number of bytes."""
import json, pathlib, sys

total = json.loads((pathlib.Path(sys.argv[1]) / "plan.json").read_text())["memory"]["total_bytes"]
assert total <= int(sys.argv[2]), total
