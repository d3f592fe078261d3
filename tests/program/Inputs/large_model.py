#!/usr/bin/env python3
"""large_model.py FOLDER: writes model.onnxtxt, a perceptron of 117 MB, its weights in a separate file, and 8 samples.

Seven layers of 2048 x 2048 with ReLU, and a head of 10 classes.
"""
import pathlib, sys
import numpy as np
from data import save_safetensors

WIDTH, LAYERS, CLASSES, SAMPLES = 2048, 7, 10, 8


def main():
    folder = pathlib.Path(sys.argv[1])
    random = np.random.default_rng(0)
    shapes = [(f"layers_{i}_weight", (WIDTH, WIDTH)) for i in range(LAYERS)] + [("head_weight", (WIDTH, CLASSES))]
    initializers, nodes, at, value = [], [], 0, "x"
    with open(folder / "weights.bin", "wb") as weights:
        for i, (name, shape) in enumerate(shapes):
            data = (random.standard_normal(shape) * (2 / WIDTH) ** 0.5).astype("<f4")
            weights.write(data.tobytes())
            dims = ",".join(map(str, shape))
            initializers.append(f'float[{dims}] {name} = ["location": "weights.bin", "offset": "{at}", "length": "{data.nbytes}"]')
            at += data.nbytes
            last = i == LAYERS
            nodes.append(f"  {'logits' if last else f'sum_{i}'} = MatMul({value}, {name})")
            if not last:
                nodes.append(f"  value_{i} = Relu(sum_{i})")
                value = f"value_{i}"
    text = ('<ir_version: 10, opset_import: ["" : 20]>\n'
            f"large (float[B,{WIDTH}] x) => (float[B,{CLASSES}] logits)\n<" + ",\n ".join(initializers) + ">\n{\n" + "\n".join(nodes) + "\n}\n")
    (folder / "model.onnxtxt").write_text(text)
    save_safetensors(folder / "batch.safetensors", {"x": random.standard_normal((SAMPLES, WIDTH)).astype("f4"),
                                                    "labels": random.integers(0, CLASSES, SAMPLES)})


if __name__ == "__main__":
    main()
