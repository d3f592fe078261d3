#!/usr/bin/env python3
"""Compiles MODEL for 131,072 tokens to each stage, and fails if a value of any has tokens x tokens elements or more.

    long_context.py FSDPC MODEL FOLDER [fsdpc options]        prints one line for each kind of attention in the graph stage
"""
import pathlib, re, subprocess, sys

TOKENS = 131072
TYPES = re.compile(r"\b(?:bf16|f16|f32|f64|i64|i32|bool)\[([\d,]+)\]")


def largest(text):
    """(elements, line) of the largest value."""
    found = (0, "")
    for line in text.splitlines():
        for dims in TYPES.findall(line):
            elements = 1
            for dim in dims.split(","):
                elements *= int(dim)
            found = max(found, (elements, line))
    return found


def main():
    model, folder, options = sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4:]
    folder.mkdir(parents=True, exist_ok=True)
    for stage in ("graph", "train", "sharded", "async", "planned"):
        file = folder / f"{stage}.fsir"
        subprocess.run([sys.argv[1], model, "--dim", f"tokens={TOKENS}", "--micro_batch_size", "2", "--loss", "cross_entropy", "--target", "cpu",
                        "--compile_to", stage, "-o", str(file), *options], check=True, capture_output=True)
        text = file.read_text()
        elements, line = largest(text)
        if elements >= TOKENS * TOKENS:
            sys.exit(f"{stage}: {line.strip()}")
        if stage == "graph":
            print(*sorted({" ".join(re.findall(r"causal|window\(\d+\)|documents|softcap\(\d+\)", line)) + f" of {line.count(', %')} operands"
                           for line in text.splitlines() if " = attention " in line}), sep="\n")
        if stage == "train" and "attention_grad" not in text:
            sys.exit("no attention is trained")


main()
