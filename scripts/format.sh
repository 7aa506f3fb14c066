#!/usr/bin/env bash
# Formats all C++ files; with --check only says which are not formatted, and fails.
#
#   scripts/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
mode=(-i)
for arg in "$@"; do
  [ "$arg" = --check ] || refuse "unknown argument $arg"
  mode=(--dry-run -Werror)
done
format=$(command -v clang-format-14 || command -v clang-format) || { echo "format.sh: clang-format 14 is missing: scripts/install-deps.sh" >&2; exit 1; }
# The .inc and .def files are fragments that clang-format cannot parse alone.
git ls-files -z '*.cpp' '*.h' | xargs -0 -r -P "$(nproc)" -n 40 "$format" "${mode[@]}"
