#!/usr/bin/python3
"""report.py LOG.jsonl PLAN.json: medians over the steps after the first three, and the ratios that compare across machines."""
import json
import statistics
import sys

lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if "step_ms" in line][3:]
memory = next((line["memory_report"] for line in lines if "memory_report" in line), {})
plan = json.load(open(sys.argv[2]))
median = lambda key: statistics.median(line[key] for line in steps)
step, products = median("step_ms"), median("matmul_ms")
print(f"steps                    {len(steps)}")
print(f"tokens/s                 {median('tokens_per_s'):.0f}")
print(f"step                     {step:.1f} ms (fastest {min(line['step_ms'] for line in steps):.1f})")
print(f"its matmuls alone        {products:.1f} ms, {100 * products / step:.1f} % of the step (same primitives, same run, after each step)")
print(f"exposed communication    {median('comm_exposed_ms'):.2f} ms, predicted {steps[0]['predicted_comm_exposed_ms']:.2f} ms; "
      f"ranks waiting for each other {median('comm_skew_ms'):.2f} ms")
print(f"everything else          {step - products - median('comm_exposed_ms') - median('comm_skew_ms'):.1f} ms")
print(f"memory of a rank         planned {plan['memory']['total_bytes']} bytes, mapped {steps[0]['memory_peak_bytes']}, "
      f"theoretical minimum {plan['memory']['theoretical_min_bytes']}")
if memory.get("pss_growth_bytes"):
    print(f"resident growth          {memory['pss_growth_bytes']} bytes over {memory['world_size']} ranks, planned "
          f"{memory['world_size'] * memory['planned_bytes']}")
