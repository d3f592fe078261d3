"""Writing networks as ONNX text with nothing but the standard library. Weights are external and their file does not exist: shapes are
all that planning needs, and a training program starts such weights by itself (`fsdpc --init`)."""


class Model:
    def __init__(self, opset=20):
        self.opset = opset
        self.nodes, self.initializers, self.parameters = [], [], 0

    def weight(self, name, *shape):
        count = 1
        for dim in shape:
            count *= dim
        self.initializers.append(f'float[{",".join(map(str, shape))}] "{name}" = ["location": "weights.bin", '
                                 f'"offset": "{4 * self.parameters}", "length": "{4 * count}"]')
        self.parameters += count
        return f'"{name}"'

    def constant(self, declaration):
        self.initializers.append(declaration)

    def op(self, scope, op, *inputs, attributes="", out=None):
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(f'["/{scope.replace(".", "/")}/{op}_{len(self.nodes)}"] {out} = {op} {attributes}({", ".join(inputs)})')
        return out

    def save(self, path, signature):
        path.write_text(f'<ir_version: {10 if self.opset < 23 else 11}, opset_import: ["" : {self.opset}]>\n{signature}\n'
                        "<\n  " + ",\n  ".join(self.initializers) + "\n>\n{\n  " + "\n  ".join(self.nodes) + "\n}\n")
        print(f"{path}: {self.parameters} parameters")


def linear(m, scope, x, width, outputs, weight="weight", bias="bias"):
    w = m.op(scope, "Transpose", m.weight(f"{scope}.{weight}", outputs, width), attributes="<perm = [1, 0]> ")
    return m.op(scope, "Add", m.op(scope, "MatMul", x, w), m.weight(f"{scope}.{bias}", outputs))


def layer_norm(m, scope, x, width):
    return m.op(scope, "LayerNormalization", x, m.weight(f"{scope}.weight", width), m.weight(f"{scope}.bias", width),
                attributes="<axis = -1, epsilon = 1e-5> ")
