# Text tests: the first line of a file states the tested claim, and RUN lines are in comments.
#
#   %fsdpc              the compiler                  %exits N command...   the command must exit with status N
#   %fixtures %samples  those folders                 %mpirun -n N ...      as in tests/run.sh
#   %gpu                the folder tests/gpu          %root %build      the repository, and where it was built
#   %program LINK FIXTURE N ...   compiles once for all tests (program/Inputs/program.py); %data, %check, %faults: next to it
#   %s %t %T            lit's own: this file, a scratch name, a scratch folder
#   FileCheck, not, split-file                        from LLVM 19
import os
import pathlib

import lit.formats

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(os.environ.get("FSDPC_BUILD", root / "build"))

config.name = "fsdpc"
# Bash, so that a RUN line behaves as in a terminal, including exit codes.
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".fsir", ".test", ".onnxtxt"]
config.excludes = ["Inputs", "fixtures", "bench"]
config.test_source_root = str(root / "tests")
config.test_exec_root = str(build / "lit")

config.environment["PATH"] = os.pathsep.join([str(root / "tests/bin"), "/usr/lib/llvm-19/bin", os.environ["PATH"]])
for name, value in os.environ.items():
    # ONEDNN_MAX_CPU_ISA=AVX2: as on another processor, where matmuls need other scratch.
    if name.startswith(("OMPI_", "CCACHE_", "CMAKE_", "ONEDNN_")) or name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "FSDPC_PART"):
        config.environment[name] = value
# Tests must not use costs that were measured on this machine.
config.environment["FSDPC_CACHE"] = str(build / "lit/cache")
# A failing test shows its input.
config.environment["FILECHECK_OPTS"] = "--dump-input-filter=error"

config.substitutions += [
    ("%fsdpc", str(build / "fsdpc")),
    ("%build", str(build)),
    ("%root", str(root)),
    ("%exits", str(root / "tests/exits.sh")),
    ("%fixtures", str(root / "tests/fixtures")),
    ("%samples", str(root / "samples")),
    ("%program", f"/usr/bin/python3 {root}/tests/program/Inputs/program.py"),
    ("%data", f"/usr/bin/python3 {root}/tests/program/Inputs/data.py"),
    ("%faults", f"/usr/bin/python3 {root}/tests/program/Inputs/faults.py"),
    ("%check", f"/usr/bin/python3 {root}/tests/program/Inputs/check.py"),
    ("%python", "/usr/bin/python3"),
    ("%hosts", str(root / "tests/cluster/hosts.sh")),
    ("%gpu", str(root / "tests/gpu")),
    ("%mpirun", "mpirun"),
]
