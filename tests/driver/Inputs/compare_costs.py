"""compare_costs.py BEFORE AFTER: for each kind of collective of two plan.json, whether its predicted time is the same, more or less."""
import json, sys

before, after = (json.load(open(path))["collectives"] for path in sys.argv[1:])
assert len(before) == len(after) > 0
seen = {}
for old, new in zip(before, after):
    kind = f"{old['op']} over {old['group']}"
    assert kind == f"{new['op']} over {new['group']}"
    grown = new["predicted_us"] - old["predicted_us"]  # both are differences of times in the step
    change = "the same" if abs(grown) <= 1e-6 * old["predicted_us"] else "more" if grown > 0 else "less"
    assert seen.setdefault(kind, change) == change, f"{kind}: {change}, others {seen[kind]}"
for kind, change in seen.items():
    print(f"{kind}: {change}")
