#!/usr/bin/env python3
"""Packs the compiler and the Python package into a wheel for x86-64 Linux with the glibc of this machine or a later one.

    build_wheel.py BUILD FOLDER     BUILD: a finished build of fsdpc; FOLDER gets fsdpc-VERSION-py3-none-manylinux_2_36_x86_64.whl

The wheel has what `cmake --install` installs. Not inside: a C++ compiler, Open MPI and oneDNN; the command names what is missing.
"""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
METADATA = """Metadata-Version: 2.1
Name: fsdpc
Version: {version}
Summary: compiles an ONNX model into a standalone, fully sharded training program
Requires-Python: >=3.9
Provides-Extra: export
Requires-Dist: torch; extra == "export"
Requires-Dist: onnx; extra == "export"
Requires-Dist: onnxscript; extra == "export"
Provides-Extra: prepare
Requires-Dist: numpy; extra == "prepare"
Requires-Dist: tokenizers; extra == "prepare"
Requires-Dist: datasets; extra == "prepare"
Provides-Extra: images
Requires-Dist: numpy; extra == "images"
Requires-Dist: pillow; extra == "images"
"""


def version():
    text = (HERE.parents[1] / "runtime/common/version.h").read_text()
    return re.search(r'version = "([^"]+)"', text)[1]


def add(wheel, records, name, data, executable=False):
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))        # the same bytes from the same build
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    records.append(f"{name},sha256={digest},{len(data)}")


def main():
    build, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    tag, info = f"py3-none-manylinux_{glibc}_x86_64", f"fsdpc-{version()}.dist-info"
    records = []
    path = folder / f"fsdpc-{version()}-{tag}.whl"
    with tempfile.TemporaryDirectory() as staging, zipfile.ZipFile(path, "w") as wheel:
        subprocess.run(["cmake", "--install", build, "--prefix", staging, "--strip"], check=True, stdout=subprocess.DEVNULL)
        for file in sorted((HERE / "fsdpc").glob("*.py")):
            add(wheel, records, f"fsdpc/{file.name}", file.read_bytes())
        for file in sorted(path for path in pathlib.Path(staging).rglob("*") if path.is_file()):
            add(wheel, records, f"fsdpc/install/{file.relative_to(staging)}", file.read_bytes(), os.access(file, os.X_OK))
        add(wheel, records, f"{info}/METADATA", METADATA.format(version=version()).encode())
        add(wheel, records, f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fsdpc\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        add(wheel, records, f"{info}/entry_points.txt", b"[console_scripts]\nfsdpc = fsdpc.command:main\n")
        records.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(records) + "\n")
        has_cuda = "fsdpc/install/lib/fsdpc/libfsdpc_runtime_cuda.a" in wheel.namelist()
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB" + ("" if has_cuda else ", without the runtime of the cuda target, which takes "
          "a build/ with nvcc and FSDPC_DRAFT_KERNELS=OFF: its programs are built from --emit src"))


if __name__ == "__main__":
    main()
