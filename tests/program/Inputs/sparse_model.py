#!/usr/bin/env python3
"""Models whose weights are in a sparse file of gigabytes, and the cost of compiling one.

    sparse_model.py write FOLDER [--width 8192 --layers 8]      model.onnxtxt, weights.bin, batch.safetensors (4 samples)
    sparse_model.py compile FOLDER FSDPC [option...]            runs the compiler; prints its peak memory and its time
    sparse_model.py check FOLDER OUT --memory BYTES             peak memory, disk space and values of written weights are right

Every other layer is stored transposed, as PyTorch's TorchScript exporter does, so that values are permuted and compared. All is zero
but 1 + i in the first row of layer i, at column i, and -1 - i in its last row, at column 0, in PyTorch's layout.
"""
import argparse, json, os, pathlib, resource, struct, subprocess, sys, time

MEBIBYTE = 1 << 20


def write(folder, width, layers):
    shape, size = f"float[{width},{width}]", 4 * width * width
    initializers, nodes, value = [], [], "x"
    with open(folder / "weights.bin", "wb") as file:
        file.truncate(layers * size)
        for i in range(layers):
            folded = i % 2 == 1
            name = f"onnx::MatMul_{i}" if folded else f"layers.{i}.weight"
            initializers.append(f'{shape} "{name}" = ["location": "weights.bin", "offset": "{i * size}", "length": "{size}"]')
            for row, column, number in ((0, i, 1.0 + i), (width - 1, 0, -1.0 - i)):
                file.seek(i * size + 4 * (column * width + row if folded else row * width + column))
                file.write(struct.pack("<f", number))
            weight = f'"{name}"'
            if not folded:
                weight = f"transposed_{i}"
                nodes.append(f'["/layers.{i}/Transpose"] {weight} = Transpose <perm = [1, 0]> ("{name}")')
            nodes.append(f'["/layers.{i}/MatMul"] product_{i} = MatMul ({value}, {weight})')
            nodes.append(f'["/layers.{i}/Tanh"] {"y" if i == layers - 1 else f"value_{i}"} = Tanh (product_{i})')
            value = f"value_{i}"
    (folder / "model.onnxtxt").write_text(
        f'<ir_version: 10, opset_import: ["" : 20], producer_name: "pytorch">\nsparse (float[B,{width}] x) => (float[B,{width}] y)\n'
        "<" + ",\n".join(initializers) + ">\n{\n" + "\n".join(nodes) + "\n}\n")
    header, at = {}, 0
    for name in ("x", "labels"):
        header[name] = {"dtype": "F32", "shape": [4, width], "data_offsets": [at, at + 16 * width]}
        at += 16 * width
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "batch.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<f", 0.5) * (8 * width))


def compile_model(folder, command):
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    weights = os.stat(folder / "weights.bin").st_size
    print(f"weights {weights / MEBIBYTE:.0f} MiB, peak memory of the compiler {peak / MEBIBYTE:.0f} MiB, {time.monotonic() - start:.1f} s")
    (folder / "peak").write_text(str(peak))


def require(condition, message):
    if not condition:
        sys.exit("sparse_model.py: " + message)


def check(folder, out, memory):
    peak = int((folder / "peak").read_text())
    require(peak <= memory, f"the compiler took {peak} bytes, more than {memory}")
    given, written = os.stat(folder / "weights.bin"), os.stat(out / "weights/model.safetensors")
    require(written.st_size > given.st_size, "weights are missing")
    if 512 * given.st_blocks < given.st_size // 2:  # the file system supports holes
        require(512 * written.st_blocks <= 256 * MEBIBYTE, f"the weights written take {512 * written.st_blocks} bytes of disk")
    with open(out / "weights/model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        for name, entry in json.loads(file.read(length)).items():
            i, width = int(name.split(".")[1]), entry["shape"][0]
            for row, column, number in ((0, i, 1.0 + i), (width - 1, 0, -1.0 - i), (1, i + 1, 0.0)):
                file.seek(8 + length + entry["data_offsets"][0] + 4 * (row * width + column))
                value = struct.unpack("<f", file.read(4))[0]
                require(value == number, f"{name}[{row}, {column}] is {value}, not {number}")


def main():
    if sys.argv[1] == "compile":
        return compile_model(pathlib.Path(sys.argv[2]), sys.argv[3:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["write", "check"])
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path, nargs="?")
    p.add_argument("--width", type=int, default=8192)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--memory", type=int)
    a = p.parse_args()
    write(a.folder, a.width, a.layers) if a.what == "write" else check(a.folder, a.out, a.memory)


if __name__ == "__main__":
    main()
