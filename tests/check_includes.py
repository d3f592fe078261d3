"""Checks the includes of every source file against the table below. Prints offenders; exits 0 or 1.

A project include is written from the root of the repository ("ir/node.h"), so its first part is the folder it belongs to.
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLVM = ["llvm/ADT/", "llvm/Support/"]
ONEDNN = ["dnnl.h", "dnnl.hpp", "oneapi/dnnl/"]
EVERYTHING = ["ir/", "passes/", "codegen/", "frontend/", "runtime/", "tests/", *LLVM]

# The longest matching folder applies. System headers (<vector>, <sys/mman.h>) are allowed everywhere.
RULES = {
    "ir/": ["ir/", *LLVM],
    "passes/": ["passes/", "ir/", *LLVM],
    "passes/check/": ["passes/check/", "ir/", *LLVM],
    "codegen/": ["codegen/", "ir/", "runtime/common/chunked_loss_layout.h", *LLVM],
    "codegen/cpu/": ["codegen/", "ir/", "runtime/common/chunked_loss_layout.h", "runtime/cpu/kernels/scratch_sizes.h", "runtime/cpu/link_bytes.h", *LLVM, *ONEDNN],
    "codegen/cuda/": ["codegen/", "ir/", "runtime/common/chunked_loss_layout.h", "runtime/cuda/kernels/scratch_sizes.h", *LLVM],
    "codegen/templates/": ["runtime/", "mpi.h", *ONEDNN],
    "frontend/onnx/": ["frontend/onnx/", "ir/", *LLVM, "onnx/", "google/protobuf/"],
    "frontend/configs/": ["frontend/configs/", "ir/", "runtime/common/spelling.h", "toml++/", *LLVM],
    "frontend/options/": ["frontend/options/", "frontend/configs/", "frontend/onnx/", "passes/", "ir/", "runtime/common/familiar_options.h",
                         "runtime/common/spelling.h", *LLVM],
    "frontend/output/": ["frontend/output/", "frontend/options/", "ir/", *LLVM],
    "frontend/compilation/": ["frontend/compilation/", "frontend/output/", "frontend/options/", "frontend/onnx/", "passes/", "codegen/", "ir/", *LLVM],
    "frontend/report/": ["frontend/report/", "passes/", "ir/", "runtime/checkpoint/slice_rule.h", *LLVM],
    "frontend/search/": ["frontend/search/", "frontend/compilation/", "frontend/output/", "frontend/options/", "frontend/onnx/", "passes/", "ir/", *LLVM],
    "frontend/tools/": ["frontend/tools/", "frontend/compilation/", "frontend/output/", "frontend/options/", "passes/", "ir/", *LLVM],
    "frontend/": EVERYTHING,
    "runtime/": ["runtime/", "mpi.h", *ONEDNN],
    "tests/": [*EVERYTHING, *ONEDNN, "onnx/", "google/protobuf/", "gtest/", "gmock/"],
    "tests/compare/": ["tests/compare/"],
    "tests/runtime/": ["tests/runtime/", "tests/compare/", "runtime/", "mpi.h", "gtest/", "gmock/", *ONEDNN],
    "tests/emulated/": ["tests/emulated/", "tests/runtime/", "tests/compare/", "runtime/", "gtest/", "gmock/"],
    "tests/bench/": ["tests/bench/", "runtime/", "mpi.h", *ONEDNN],
}
# Headers of a project or library. They are not system headers, even if included with angle brackets.
OWNED = ("ir/", "passes/", "codegen/", "frontend/", "runtime/", "tests/", "llvm", "clang", "mlir", "onnx/", "google/", "gtest/", "gmock/",
         "mpi.h", "dnnl", "oneapi/", "toml++/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def faults(path, text):
    folder = max((f for f in RULES if path.startswith(f)), key=len)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, header = match.groups()
        if not header.startswith(OWNED):
            if bracket == '"':
                yield f"{path}:{number}: \"{header}\" is not written from the root of the repository"
        elif not any(header == allowed or allowed.endswith("/") and header.startswith(allowed) for allowed in RULES[folder]):
            yield f"{path}:{number}: {folder} must not include {header}"


def main():
    # Otherwise a rule that no longer matches anything would pass silently.
    assert list(faults("ir/x.cpp", '#include "passes/passes.h"')) and not list(faults("ir/x.cpp", '#include <sys/mman.h>'))
    found, files = [], 0
    for top in ("frontend", "ir", "passes", "codegen", "runtime", "tests"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in (".h", ".cpp", ".def", ".cu", ".cuh"):
                files += 1
                found += faults(file.relative_to(ROOT).as_posix(), file.read_text(errors="replace"))
    print("\n".join(found) if found else f"includes: {files} files keep to the table")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
