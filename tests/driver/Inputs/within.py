"""The program's memory is at most so many bytes."""
import json, pathlib, sys

total = json.loads((pathlib.Path(sys.argv[1]) / "plan.json").read_text())["memory"]["total_bytes"]
assert total <= int(sys.argv[2]), total
