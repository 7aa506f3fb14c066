#!/usr/bin/env bash
# Formats all C++ files; with --check only says which are not formatted, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
format=$(command -v clang-format-14 || command -v clang-format) || { echo "format.sh: clang-format 14 is missing: scripts/install-deps.sh" >&2; exit 1; }
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
# The .inc and .def files are fragments that clang-format cannot parse alone.
git ls-files -z '*.cpp' '*.h' | xargs -0 -r -P "$(nproc)" -n 40 "$format" "${mode[@]}"
