#!/usr/bin/env python3
"""Writes data sets for emitted programs: the samples of a fixture's batch, repeated, in every format.

    data.py OUT FIXTURE [--rows N] [--vary] [--rename OLD=NEW]... [--drop NAME]... [--set NAME:SAMPLE=VALUE]... [--fill NAME=VALUE]...
            [--format F]

--vary adds a little noise (the same in every run) to float fields, so that no two samples are equal. --format:
safetensors; npy writes OUT.<field>.npy; idx writes OUT-images-idx3-ubyte and OUT-labels-idx1-ubyte, with the floats of the
first field rescaled to bytes, and OUT.safetensors with the expected values; tokens writes an llm.c file of OUT's integer
field as one stream, and OUT.safetensors with the expected samples.
"""
import argparse, json, pathlib, sys
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))
import accept

NAMES = {np.dtype("f4"): "F32", np.dtype("i8"): "I64", np.dtype("u1"): "U8"}


def save_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": NAMES[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def save_npy(out, tensors):
    for name, value in tensors.items():
        np.save(f"{out}.{name}.npy", value)


def save_idx(out, tensors):
    (name, images), labels = next((n, t) for n, t in tensors.items() if t.dtype == np.float32), tensors["labels"]
    pixels = np.clip(np.rint(images.reshape(len(images), -1, 8) * 40 + 128), 0, 255).astype("u1")
    for path, magic, value in ((f"{out}-images-idx3-ubyte", 2051, pixels), (f"{out}-labels-idx1-ubyte", 2049, labels.astype("u1"))):
        head = np.array([magic, *value.shape], ">i4").tobytes()
        pathlib.Path(path).write_bytes(head + value.tobytes())
    save_safetensors(f"{out}.safetensors", {name: (pixels.astype("f4") / np.float32(255)).reshape(images.shape), "labels": labels})


def save_tokens(out, tensors):
    name, samples = next((n, t) for n, t in tensors.items() if n != "labels")
    count, length = samples.shape
    stream = np.resize(samples, count * length + 1).astype("<u2")
    head = np.zeros(256, "<i4")
    head[:3] = 20240520, 1, len(stream)
    pathlib.Path(out).write_bytes(head.tobytes() + stream.tobytes())
    save_safetensors(f"{out}.safetensors", {name: stream[:-1].reshape(count, length).astype("i8"),
                                            "labels": stream[1:].reshape(count, length).astype("i8")})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("fixture")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--vary", action="store_true")
    parser.add_argument("--rename", action="append", default=[])
    parser.add_argument("--drop", action="append", default=[])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--fill", action="append", default=[])
    parser.add_argument("--format", default="safetensors", choices=["safetensors", "npy", "idx", "tokens"])
    a = parser.parse_args()
    tensors = accept.load_safetensors(TESTS / "fixtures" / a.fixture / "batch.safetensors")
    random = np.random.default_rng(1)
    for name, value in tensors.items():
        value = value.astype("f4" if value.dtype.kind == "f" else "i8")
        value = np.resize(value, (a.rows or len(value), *value.shape[1:]))
        if a.vary and value.dtype.kind == "f":
            value = value + 0.1 * random.standard_normal(value.shape).astype("f4")
        tensors[name] = value
    for assignment in a.set:
        place, number = assignment.split("=")
        name, sample = place.split(":")
        tensors[name][int(sample)].flat[-1:] = float(number)
        if tensors[name].ndim == 1:
            tensors[name][int(sample)] = float(number)
    for assignment in a.fill:
        name, number = assignment.split("=")
        tensors[name][...] = float(number)
    tensors = {name: value for name, value in tensors.items() if name not in a.drop}
    for pair in a.rename:
        old, new = pair.split("=")
        tensors[new] = tensors.pop(old)
    {"safetensors": save_safetensors, "npy": save_npy, "idx": save_idx, "tokens": save_tokens}[a.format](a.out, tensors)


if __name__ == "__main__":
    main()
