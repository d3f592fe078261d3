#!/usr/bin/env python3
"""Compares the errors of long sums with PyTorch's, as the tables of EXACT_SUMS.md.

    python3 tests/bench/exact_sums.py build/tests/fsdpc_runtime_tests build/tests/fsdpc_emulated_tests

Needs PyTorch and numpy. Errors are relative to the sum of absolute terms, in units of 2^-24; exact sums are computed in
80-bit floats. tests/runtime/kernels_sums_test.cpp records the programs' errors.
"""

import argparse
import ctypes
import ctypes.util
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

TERMS = 1_000_000
WIDE = np.longdouble


def numbers(count, seed):
    """Same as numbers() in tests/runtime/kernels_support.h."""
    mask = (1 << 64) - 1
    state = (seed * 0x9E3779B97F4A7C15 + 1) & mask
    values = np.empty(count, np.float32)
    for i in range(count):
        state ^= (state << 13) & mask
        state ^= state >> 7
        state ^= (state << 17) & mask
        values[i] = (state >> 40) / (1 << 23) - 1
    return values


def terms_of():
    """Same as allTerms in tests/runtime/kernels_sums_test.cpp."""
    cancelling = numbers(TERMS, 3)
    cancelling += np.where(np.arange(TERMS) % 2 == 0, 100, -100).astype(np.float32)
    return {
        "one_value": np.full(TERMS, 0.1, np.float32),
        "one_sign": np.abs(numbers(TERMS, 1)),
        "mixed": numbers(TERMS, 2),
        "cancelling": cancelling,
    }


class Table:
    """The largest error of each name."""

    def __init__(self):
        self.errors = {}

    def add(self, name, actual, exact, divisor=1):
        """`exact`: the terms, along the first axis; `actual`: their sums over `divisor`."""
        exact = np.atleast_2d(np.asarray(exact, WIDE).T).T
        sums, sizes = exact.sum(0) / divisor, np.abs(exact).sum(0) / divisor
        error = np.max(np.abs(np.asarray(actual, WIDE).reshape(-1) - sums) / sizes) * 2**24
        self.errors[name] = max(float(error), self.errors.get(name, 0))


def sums_of(table, kind, values, x):
    t = torch.from_numpy(values)
    table.add("reduce_rows." + kind, t.sum(), values)
    table.add("reduce_columns." + kind, t.view(-1, 5).sum(0), values.reshape(-1, 5))
    channels = t.view(10, 2, -1)
    table.add("reduce_channels." + kind, channels.sum((0, 2)), channels.permute(0, 2, 1).reshape(-1, 2).numpy())
    along = t.cumsum(0)
    for count in (TERMS // 2, TERMS):
        table.add("cumulative_sum." + kind, along[count - 1], values[:count])
    table.add("average_pool." + kind, F.avg_pool2d(t.view(1, 1, 100, -1), (100, TERMS // 100)), values, TERMS)
    table.add("nll_smoothed." + kind, -t.mean(), -values, TERMS)
    for inner in (1, 10):
        indices = np.full(TERMS // inner, 2)
        indices[::7] = np.arange(len(indices[::7])) % 5
        rows = torch.ops.aten.embedding_dense_backward(t.view(-1, inner), torch.from_numpy(indices), 5, -1, False)
        for row in range(5):
            table.add("scatter_add." + kind, rows[row], values.reshape(-1, inner)[indices == row])


def norms_of(table, kind, values, x):
    t, ones, zeros = torch.from_numpy(values), torch.ones(TERMS), torch.zeros(TERMS)
    mean = torch.native_layer_norm(t.view(1, -1), (TERMS,), ones, zeros, 1e-5)[1]
    table.add("layer_norm_mean." + kind, mean, values, TERMS)
    scaled = F.rms_norm(t, (TERMS,), ones, 1e-5)[7] / t[7]
    table.add("rms_norm_rstd." + kind, scaled, 1 / np.sqrt((values.astype(WIDE) ** 2).mean() + 1e-5))
    rows, dy, wide_x = TERMS // 5, values.reshape(-1, 5), x.reshape(-1, 5).astype(WIDE)
    _, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
        torch.from_numpy(dy), torch.from_numpy(x).view(-1, 5), [5], torch.full((rows, 1), 0.25),
        torch.full((rows, 1), 2.0), torch.ones(5), torch.zeros(5), [True, True, True])
    table.add("norm_dbeta." + kind, dbeta, dy)
    table.add("norm_dgamma." + kind, dgamma, dy * (wide_x - 0.25) * 2)


def channels_of(table, kind, values, x):
    center = np.array([0.25, -0.5], np.float32)
    for layout, shape in (("columns.", (TERMS // 2, 2)), ("runs.", (1, 2, TERMS // 2))):
        view = [torch.from_numpy(array).view(shape) for array in (values, x)]
        by_channel = [array.reshape(shape) if len(shape) == 2 else array.reshape(shape)[0].T for array in (values, x)]
        _, mean, deviation = torch.native_batch_norm(view[0], None, None, None, None, True, 0.1, 1e-5)
        table.add("batch_mean." + layout + kind, mean, by_channel[0], TERMS // 2)
        spread = (by_channel[0] - by_channel[0].astype(WIDE).mean(0)) ** 2
        if spread.mean() > 1e-6:
            variance = 1 / deviation.numpy().astype(WIDE) ** 2 - 1e-5
            table.add("batch_variance." + layout + kind, variance, spread, TERMS // 2)
        _, dgamma, dbeta = torch.ops.aten.native_batch_norm_backward(
            view[0], view[1], torch.ones(2), None, None, torch.from_numpy(center), torch.ones(2), True, 1e-5,
            [True, True, True])
        table.add("batch_dbeta." + layout + kind, dbeta, by_channel[0])
        table.add("batch_dgamma." + layout + kind, dgamma, by_channel[0] * (by_channel[1].astype(WIDE) - center))


def exponentials_of(table):
    rising = np.arange(TERMS, dtype=np.float32) * np.float32(1e-5)
    for kind, x in (("one_value", np.full(TERMS, 0.1, np.float32)), ("rising", rising), ("one_sign", numbers(TERMS, 4))):
        for inner in (1, 2):
            t = torch.from_numpy(x).view(1, -1, inner)
            row = x[::inner].astype(WIDE)
            total = np.exp(row).sum()
            for at in (0, -1):
                table.add("softmax." + kind, F.softmax(t, 1)[0, at, 0], np.exp(row[at]) / total)
                table.add("log_softmax." + kind, F.log_softmax(t, 1)[0, at, 0], row[at] - np.log(total))


def products(terms):
    """Inner products of 10^5 and 10^6 terms, as matmuls of 8 x K by K x 8, by library."""

    def load(name):
        path = ctypes.util.find_library(name)
        return ctypes.CDLL(path) if path else None

    dnnl, blas = load("dnnl"), load("openblas") or load("blas")

    def by_dnnl(a, b):
        out, long, one = np.empty((8, 8), np.float32), ctypes.c_int64, ctypes.c_float
        n, k = long(8), long(a.shape[1])
        status = dnnl.dnnl_sgemm(ctypes.c_char(b"N"), ctypes.c_char(b"N"), n, n, k, one(1),
                                 a.ctypes.data_as(ctypes.c_void_p), k, b.ctypes.data_as(ctypes.c_void_p), n, one(0),
                                 out.ctypes.data_as(ctypes.c_void_p), n)
        assert status == 0
        return out

    def by_blas(a, b):
        out, one = np.empty((8, 8), np.float32), ctypes.c_float
        blas.cblas_sgemm(101, 111, 111, 8, 8, a.shape[1], one(1), a.ctypes.data_as(ctypes.c_void_p), a.shape[1],
                         b.ctypes.data_as(ctypes.c_void_p), 8, one(0), out.ctypes.data_as(ctypes.c_void_p), 8)
        return out

    libraries = {"PyTorch": lambda a, b: (torch.from_numpy(a) @ torch.from_numpy(b)).numpy(), "numpy": np.matmul}
    if dnnl:
        libraries["oneDNN " + ctypes.util.find_library("dnnl")] = by_dnnl
    if blas and hasattr(blas, "cblas_sgemm"):
        libraries[ctypes.util.find_library("openblas") or "blas"] = by_blas
    print("| terms | K | " + " | ".join(libraries) + " |\n|---|---|" + "---|" * len(libraries))
    for kind, values in terms.items():
        for k in (100_000, 1_000_000):
            a, b = np.ascontiguousarray(np.tile(values[:k], (8, 1))), np.ones((k, 8), np.float32)
            exact = values[:k].astype(WIDE)
            errors = [np.abs(product(a, b) - exact.sum()).max() / np.abs(exact).sum() * 2**24
                      for product in libraries.values()]
            print(f"| {kind} | {k} | " + " | ".join(f"{float(error):.2f}" for error in errors) + " |")


def recorded(program):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sums.json"
        subprocess.run([program, "--gtest_filter=KernelsSums.*", f"--gtest_output=json:{path}"], check=True,
                       stdout=subprocess.DEVNULL)
        tests = [test for suite in json.loads(path.read_text())["testsuites"] for test in suite["testsuite"]]
    return {name: float(value) for test in tests for name, value in test.items() if "." in name}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cpu_tests")
    parser.add_argument("emulated_tests")
    options = parser.parse_args()
    torch.set_num_threads(1)
    terms, x, table = terms_of(), numbers(TERMS, 9), Table()
    for kind, values in terms.items():
        for measure in (sums_of, norms_of, channels_of):
            measure(table, kind, values, x)
        if kind != "cancelling":
            sum_of = np.log(np.exp(values.astype(WIDE)).sum())
            table.add("cross_entropy_lse." + kind, torch.logsumexp(torch.from_numpy(values), 0), sum_of)
    exponentials_of(table)
    cpu, emulated = recorded(options.cpu_tests), recorded(options.emulated_tests)
    print("| sum | terms | PyTorch " + torch.__version__ + " | cpu | emulated device |\n|---|---|---|---|---|")
    for name in sorted(cpu):
        columns = [f"{errors[name]:.2f}" if name in errors else "" for errors in (table.errors, cpu, emulated)]
        kernel, _, kind = name.rpartition(".")
        print(f"| {kernel} | {kind} | " + " | ".join(columns) + " |")
    print()
    products(terms)


if __name__ == "__main__":
    main()
