"""Checks that over the programs in the folders, in this order, memory never decreases and the predicted step never grows."""
import json, pathlib, sys

plans = [json.loads((pathlib.Path(folder) / "plan.json").read_text()) for folder in sys.argv[1:]]
for before, after in zip(plans, plans[1:]):
    assert before["memory"]["total_bytes"] <= after["memory"]["total_bytes"], (before["memory"], after["memory"])
    assert before["predicted_step_us"] >= after["predicted_step_us"], (before["predicted_step_us"], after["predicted_step_us"])
assert plans[0]["memory"]["total_bytes"] < plans[-1]["memory"]["total_bytes"]
