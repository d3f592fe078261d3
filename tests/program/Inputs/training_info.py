#!/usr/bin/env python3
"""training_info.py MODEL.onnx OUT.onnx SPEC...: appends a TrainingInfoProto to a model. ONNX's text form does not support it.

A SPEC is INITIALIZER=OP[:ATTRIBUTE=VALUE]..., e.g. fc1.weight=RandomNormal:mean=1:scale=0.5:shape=64,32, a node whose output the
initializer is bound to. ConstantOfShape takes `shape` (as an initializer of the graph) and a float `value`. INITIALIZER=values:N=X
binds an initializer of the graph with N elements of value X.
"""
import struct, sys


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, dims, kind, raw):
    return b"".join(field(1, d) for d in dims) + field(2, kind) + field(8, name) + field(9, raw)


def floats(name, dims, values):
    return tensor(name, dims, 1, struct.pack(f"<{len(values)}f", *values))


def attribute(name, value):
    if name == "shape":
        return field(1, name) + field(20, 7) + b"".join(field(8, int(d)) for d in value.split(","))
    if name == "value":
        return field(1, name) + field(20, 4) + field(5, floats("", [1], [float(value)]))
    return field(1, name) + field(20, 1) + field(2, float(value))


def bound(index, spec):
    """Fields of the graph, and of the training info."""
    initializer, op = spec.split("=", 1)
    op, *attributes = op.split(":")
    pairs, out = [a.split("=") for a in attributes], f"start_{index}"
    binding = field(3, field(1, initializer) + field(2, out))
    if op == "values":
        count, value = int(pairs[0][0]), float(pairs[0][1])
        return field(5, floats(out, [count], [value] * count)), binding
    graph, inputs = b"", b""
    if op == "ConstantOfShape":
        dims = [int(d) for d in dict(pairs)["shape"].split(",")]
        graph += field(5, tensor(f"dims_{index}", [len(dims)], 7, struct.pack(f"<{len(dims)}q", *dims)))
        inputs, pairs = field(1, f"dims_{index}"), [p for p in pairs if p[0] != "shape"]
    node = inputs + field(2, out) + field(3, f"node_{index}") + field(4, op)
    return graph + field(1, node + b"".join(field(5, attribute(*p)) for p in pairs)), binding


def main():
    model, out, *specs = sys.argv[1:]
    parts = [bound(i, spec) for i, spec in enumerate(specs)]
    graph = b"".join(g for g, _ in parts) + field(2, "initialization")
    info = field(1, graph) + b"".join(b for _, b in parts)
    open(out, "wb").write(open(model, "rb").read() + field(20, info))


if __name__ == "__main__":
    main()
