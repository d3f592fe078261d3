#!/bin/bash
# Sets everything up, builds, and runs every test; the last line is `N passed, N failed`.
#
#   tests/run.sh                 everything
#   tests/run.sh build lit unit  only these steps; all: build format includes words asan tsan runtime lit mutation
#                                sweep acceptance random bf16 emulated cuda faults page
#   tests/run.sh --nightly       tests that take too long for every change, or only these parts:
#                                random mutation settings deletions other_processor faults
#                                and, only by name: huggingface samples with TORCH_PYTHON=PYTHON that has PyTorch;
#                                wheel as root, with debootstrap
#
# FSDPC_FIXTURES="mlp gpt2_tiny" narrows the acceptance step, LIT_FILTER='passes/' the lit step.
set -uo pipefail
cd "$(dirname "$0")/.."

if ! tests/setup.sh --with_cuda --with_browser; then
  echo "0 passed, 1 failed"
  exit 1
fi

# Containers run as root, with fewer cores than ranks, and two MPI jobs at once must not be bound to the same core.
export PATH=$PWD/tests/bin:/usr/bin:/bin:$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none
# Half of the start of a rank is the search for networks that no test has.
export OMPI_MCA_pml=ob1 OMPI_MCA_osc=^ucx
# Emitted programs share the runtime's sources. ccache compiles each source once, whichever folder it is built in.
export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=${TMPDIR:-/tmp} CCACHE_NOHASHDIR=1

exec /usr/bin/python3 tests/steps.py "$@"
