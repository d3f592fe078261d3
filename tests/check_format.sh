#!/bin/bash
# Checks that all C++ and CUDA sources are formatted by clang-format.   tests/check_format.sh [--fix]
# Skips codegen/templates, which has text of the emitted program with placeholders.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run --Werror)
if [[ ${1:-} == --fix ]]; then
  mode=(-i)
fi
find frontend ir passes codegen runtime tests -path codegen/templates -prune -o \
  -regex '.*[.]\(h\|cpp\|cu\|cuh\)' -print0 |
  xargs -0 -r -n 16 -P 2 clang-format-19 "${mode[@]}"
