#!/usr/bin/env python3
"""Compares Adam with clipping in numpy with the program's.

    clipped_steps.py FOLDER CLIPPED PLAIN FIXTURE N MAX_NORM

CLIPPED trains STEPS steps. PLAIN, the same program without clipping, computes the gradients at numpy's current weights,
step by step. Norms, whether they are clipped, and the last weights must agree.
"""
import json, pathlib, subprocess, sys
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from data import TESTS, save_safetensors
import accept
from compare import relative_error  # found through accept

STEPS, EPSILON = 4, 1e-6


def train(program, ranks, fixture, *options):
    subprocess.run(["mpirun", "-n", ranks, f"{program}/train", "--batch", str(TESTS / "fixtures" / fixture / "batch.safetensors"),
                    "--progress", "none", *options], check=True)


def adam(weights, gradients, state, step, optimizer):
    (beta1, beta2), rate, epsilon = optimizer["betas"], optimizer["lr"], optimizer["eps"]
    for name, gradient in gradients.items():
        m, v = state.setdefault(name, (np.zeros_like(gradient), np.zeros_like(gradient)))
        m, v = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
        state[name] = (m, v)
        root = np.sqrt(v / (1 - beta2**step)) + epsilon
        weights[name] = weights[name] - rate / (1 - beta1**step) * m / root


def main():
    folder, clipped, plain, fixture, ranks, bound = sys.argv[1:]
    optimizer = json.loads((TESTS / "fixtures" / fixture / "meta.json").read_text())["optimizer"]
    log, bound = f"{folder}/clipped.log", float(bound)
    train(clipped, ranks, fixture, "--steps", str(STEPS), "--log", log, "--log_freq", "1", "--save_model", f"{folder}/clipped")
    lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
    reported = [line["grad_norm"] for line in lines if "step" in line]

    train(plain, ranks, fixture, "--steps", "0", "--save_model", f"{folder}/start")
    weights = {n: w.astype(np.float64) for n, w in accept.load_safetensors(f"{folder}/start").items()}
    state = {}
    for step in range(1, STEPS + 1):
        save_safetensors(f"{folder}/now", {n: w.astype(np.float32) for n, w in weights.items()})
        train(plain, ranks, fixture, "--load_model", f"{folder}/now", "--steps", "1", "--save_gradients", f"{folder}/gradients")
        gradients = {n.removeprefix("grad."): g.astype(np.float64)
                     for n, g in accept.load_safetensors(f"{folder}/gradients").items()}
        norm = np.sqrt(sum(np.sum(g * g) for g in gradients.values()))
        if not abs(norm - reported[step - 1]) <= 1e-5 * norm:
            sys.exit(f"step {step}: the norm is {norm}, the log says {reported[step - 1]}")
        if not norm > bound:
            sys.exit(f"step {step}: a norm of {norm} is not clipped, so this shows nothing")
        adam(weights, {n: g * (bound / (norm + EPSILON)) for n, g in gradients.items()}, state, step, optimizer)
    for name, ours in accept.load_safetensors(f"{folder}/clipped").items():
        distance = relative_error(ours, weights[name])
        if distance > 1e-5:
            sys.exit(f"{name} is off by {distance}")


main()
