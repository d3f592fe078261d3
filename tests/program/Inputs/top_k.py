#!/usr/bin/env python3
"""Top-k accuracy as NumPy counts it: a label that is not ignored is right if it is among the k highest scores; of equal ones the lower
class is higher.

    top_k.py data OUT.safetensors                          eleven samples for tied_scores.onnxtxt, some labels ignored
    top_k.py labels DATA WIDTH CLASSES                     gives these samples other labels, WIDTH of each, some ignored
    top_k.py check LOG DATA PREDICTIONS OUTPUT AXIS K...   every evaluation of LOG has the figures of these predictions
"""
import json, pathlib, sys
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from data import save_safetensors
import accept  # found through data

# By the output that is compared with labels: of tied_scores.onnxtxt (--ignore_index 7) it is a class, which scores may rank first.
IGNORED = {"scores": 7, "logits": -100}


def random_labels(random, shape, classes, ignored):
    return np.where(random.random(shape) < 0.2, ignored, random.integers(0, classes, shape))


def write(out):
    random = np.random.default_rng(2)
    save_safetensors(out, {"x": random.integers(0, 4, (11, 3, 4)).astype("f4"), "labels": random_labels(random, (11, 3), 7, IGNORED["scores"])})


def relabel(data, width, classes):
    tensors = {name: value.astype("i8" if name == "labels" else "f4") for name, value in accept.load_safetensors(data).items()}
    labels = random_labels(np.random.default_rng(4), (len(tensors["labels"]), int(width)), int(classes), IGNORED["logits"])
    save_safetensors(data, {**tensors, "labels": labels})


def count(scores, labels, is_counted, k, prefer_lower=True):
    classes = scores.shape[-1]
    order = np.argsort(-scores, axis=-1, kind="stable") if prefer_lower else classes - 1 - np.argsort(-scores[..., ::-1], axis=-1, kind="stable")
    hits = (order[..., :k] == labels[..., None]).any(-1)
    return int((hits & is_counted).sum())


def check(log, data, predictions, output, axis, *ks):
    scores = np.moveaxis(accept.load_safetensors(predictions)[output], int(axis), -1)
    labels = accept.load_safetensors(data)["labels"]
    is_counted = labels != IGNORED[output]
    total = int(is_counted.sum())
    evaluations = [entry for entry in map(json.loads, pathlib.Path(log).read_text().splitlines()) if "val_loss" in entry]
    assert evaluations, f"{log}: no evaluation"
    for k in map(int, ks):
        wanted = count(scores, labels, is_counted, k)
        for entry in evaluations:
            correct, percent = (("val_correct", "val_percent") if k == 1 else (f"val_top{k}_correct", f"val_top{k}_percent"))
            assert (entry[correct], entry["val_total"]) == (wanted, total), f"{entry}: {wanted} of {total} are among the first {k}"
            assert abs(entry[percent] - 100 * wanted / total) < 1e-9, entry
        if output == "scores" and k < 8:
            assert wanted != count(scores, labels, is_counted, k, prefer_lower=False), "the order of equal scores is not seen in these data"


if __name__ == "__main__":
    {"data": write, "labels": relabel, "check": check}[sys.argv[1]](*sys.argv[2:])
