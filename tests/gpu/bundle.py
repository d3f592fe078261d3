#!/usr/bin/env python3
"""Builds what tests/gpu needs on a machine with a GPU but without build tools: programs and kernel tests for the devices
that this build has code for (`cmake --preset default -DCMAKE_CUDA_ARCHITECTURES="80-real;90"`; for others, and after tests/run.sh on
a machine without a device for all, the driver compiles PTX when a program starts).

    bundle.py [OUT=build/gpu_bundle] [--fixtures NAME ...] [--models NAME ...] [--fsdpc build/fsdpc]

Needs nvcc and a finished build on this machine. In OUT:

    bin/kernel_tests                        every kernel against f64
    lib/                                    the runtime, once for all programs, and CUDA's
    programs/FIXTURE_N_{nccl,loopback}/     train, plan.json and weights (links to those of 1 rank)
    programs/MODEL{,_cudnn}/                the models of bench.sh, without weights; also with cuDNN's attention

Prints what it builds and the size of OUT; fails above 60 MiB.
"""
import argparse, concurrent.futures, os, pathlib, re, shutil, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/gpu")]
import accept, fixture_sets, json, models  # noqa: E402  its compile options and reader are this script's too

MOST_BYTES = 60 << 20
TOOLKIT = pathlib.Path(subprocess.run([ROOT / "runtime/cuda/toolkit.sh", "--print"], text=True, stdout=subprocess.PIPE).stdout.strip())
HAS_FRONTEND = bool(subprocess.run([ROOT / "runtime/cuda/toolkit.sh", "--print_frontend"], text=True, stdout=subprocess.PIPE).stdout.strip())
FLAGS = ["-std=c++20", "-O3", "--fmad=false", f"-I{TOOLKIT / 'include'}"]
JOBS = max(2, (os.cpu_count() or 2) // 2)


def run(*command):
    command = [str(c) for c in command]
    ended = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode:
        sys.exit(f"bundle: failed: {' '.join(command)}\n{ended.stdout[-3000:]}")


def library(name):
    for folder in ("lib", "lib64", "targets/x86_64-linux/lib"):
        found = sorted((TOOLKIT / folder).glob(name))
        if found:
            return found[0]
    sys.exit(f"bundle: no {name} in {TOOLKIT}")


class Bundle:
    def __init__(self, arguments):
        self.out, self.fsdpc, self.build = arguments.out, arguments.fsdpc.resolve(), arguments.fsdpc.resolve().parent
        self.loopback = self.build / "tests/gpu/libfsdpc_loopback_cuda.a"

        # A line of the cache: CMAKE_CUDA_ARCHITECTURES:STRING=80-real;90
        cache = (self.build / "CMakeCache.txt").read_text()
        self.architectures = re.search(r"^CMAKE_CUDA_ARCHITECTURES:\w+=(.*)$", cache, re.M)[1].split(";")
        self.is_draft = "FSDPC_DRAFT_KERNELS:BOOL=ON" in cache
        self.flags = list(FLAGS)
        for architecture in self.architectures:
            number, _, kind = architecture.partition("-")
            self.flags += [f"-gencode=arch=compute_{number},code={code}_{number}" for code in ("sm", "compute") if not (kind and code == "compute")]

    def runtime(self):
        """One library that all programs share. NCCL's functions are left undefined: a program brings the transport."""
        (self.out / "lib").mkdir(parents=True)
        cudart = library("libcudart.so.[0-9][0-9]")
        shutil.copy(cudart.resolve(), self.out / "lib" / cudart.name)
        # The compiler's own: host computation is multithreaded.
        gomp = pathlib.Path(subprocess.check_output(["g++", "-print-file-name=libgomp.so.1"], text=True).strip())
        shutil.copy(gomp.resolve(), self.out / "lib" / gomp.name)
        run("g++", "-shared", "-s", "-o", self.out / "lib/libfsdpc_runtime_cuda.so", "-Wl,--whole-archive", self.build / "libfsdpc_runtime_cuda.a",
            "-Wl,--no-whole-archive", library("libcublasLt.so*"), library("libcudnn.so*"), cudart, "-lgomp")

    def link(self, output, depth, objects):
        """`depth`: the number of folders between the program and lib/."""
        here = f"-Wl,-rpath,$ORIGIN/{'../' * depth}lib"
        run("g++", "-s", "-o", output, *objects, f"-L{self.out / 'lib'}", "-lfsdpc_runtime_cuda",
            library("libcudart.so.[0-9][0-9]"), "-lpthread", here, "-Wl,--allow-shlib-undefined")

    def kernel_tests(self):
        (self.out / "bin").mkdir()
        objects = sorted((self.build / "tests/gpu/CMakeFiles/fsdpc_gpu_tests.dir").rglob("*.o"))
        self.link(self.out / "bin/kernel_tests", 1, [*objects, self.loopback, "-lgtest"])
        print("  kernel_tests", flush=True)

    def program(self, name, model, transport, options, weights=None):
        """`weights`: the program whose weights this one starts from, if any."""
        source, target = self.out / "source" / name, self.out / "programs" / name
        run(self.fsdpc, model, "--target", "cuda", *options, "--emit", "src", "-o", source)
        target.mkdir(parents=True)
        threads = ["-DFSDPC_RANKS_ARE_THREADS"] if transport == "loopback" else []
        objects = []
        for file in ("program.cu", "program_info.cpp"):
            objects.append(source / f"{file}.o")
            run(TOOLKIT / "bin/nvcc", *self.flags, *threads, f"-I{source}", "-c", source / file, "-o", objects[-1])
        # Only the shared runtime refers to them.
        transports = {"loopback": ["-Wl,--whole-archive", self.loopback, "-Wl,--no-whole-archive"],
                      "nccl": ["-Wl,--no-as-needed", library("libnccl.so*")]}
        self.link(target / "train", 2, [*objects, *transports[transport]])
        for kept in ["plan.json", "options.json", *(["weights"] if weights == name else [])]:
            if (source / kept).exists():
                shutil.move(source / kept, target / kept)
        if weights and weights != name:
            (target / "weights").symlink_to(pathlib.Path("..", weights, "weights"))
        shutil.rmtree(source)
        print(f"  {name}", flush=True)

    def fixture(self, name, ranks, transport):
        folder = ROOT / "tests/fixtures" / name
        meta = json.loads((folder / "meta.json").read_text())
        rows = len(next(iter(accept.load_safetensors(folder / "batch.safetensors").values())))
        a = argparse.Namespace(target="cuda", strategy="full_shard", world_size=ranks, variant="file")
        self.program(f"{name}_{ranks}_{transport}", folder / "model.onnx", transport,
                     accept.compile_options(meta, rows, a, False)[2:], weights=f"{name}_1_nccl")

    def model(self, name):
        folder = self.out / "source" / f"model_{name}"
        models.write_onnx(name, folder)
        model = folder / "model.onnxtxt"
        options = models.compile_options(name, model, self.fsdpc)
        self.program(name, model, "nccl", options)
        if HAS_FRONTEND and "bf16" in options:
            self.program(f"{name}_cudnn", model, "nccl", [*options, "--attention", "cudnn"])
        shutil.rmtree(folder)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path, nargs="?", default=ROOT / "build/gpu_bundle")
    p.add_argument("--fixtures", nargs="*", default=[f.name for f in fixture_sets.everywhere()])
    p.add_argument("--models", nargs="*", default=list(models.MODELS))
    p.add_argument("--fsdpc", type=pathlib.Path, default=ROOT / "build/fsdpc")
    a = p.parse_args()
    a.out = a.out.resolve()
    shutil.rmtree(a.out, ignore_errors=True)
    bundle = Bundle(a)
    bundle.runtime()
    work = [bundle.kernel_tests]
    for name in a.fixtures:
        work += [lambda n=name, r=r, t=t: bundle.fixture(n, r, t) for r, t in ((1, "nccl"), (2, "loopback"), (4, "loopback"))]
        if name in ("mlp", "gpt2_tiny"):
            work.append(lambda n=name: bundle.fixture(n, 2, "nccl"))
    work += [lambda n=name: bundle.model(n) for name in a.models]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda step: step(), work))
    shutil.rmtree(a.out / "source", ignore_errors=True)
    size = sum(f.stat().st_size for f in a.out.rglob("*") if f.is_file())
    print(f"bundle: {a.out}, {size / 2**20:.1f} MiB for {', '.join(bundle.architectures)}")
    if bundle.is_draft:
        print("bundle: its kernels are hardly optimized: measure with those of a build/ that has FSDPC_DRAFT_KERNELS=OFF")
    if size > MOST_BYTES:
        sys.exit(f"bundle: more than {MOST_BYTES >> 20} MiB; leave fixtures or models out")


if __name__ == "__main__":
    main()
