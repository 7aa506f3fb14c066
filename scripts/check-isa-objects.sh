#!/usr/bin/env bash
# Fails when an object of an ISA unit defines a weak function.
#
# An inline function from a shared header that is compiled for AVX-512 in one unit and for the baseline in another is
# one symbol to the linker, which keeps either: the baseline program would then run AVX-512 code. Units for an ISA level
# therefore keep everything in anonymous namespaces. Usage: check-isa-objects.sh OBJECT... (others are ignored)
set -euo pipefail

if [[ $# -eq 0 ]]; then
  echo "usage: $0 OBJECT...   the object files of ggml_cpu_kernels" >&2
  exit 2
fi
checked=0
failed=0
for object in "$@"; do
  case "$object" in
    *avx*) ;;
    *) continue ;;
  esac
  checked=$((checked + 1))
  if weak=$(nm -C "$object" | grep ' W '); then
    echo "$object defines weak functions, which the linker may merge into code for other CPUs:" >&2
    echo "$weak" >&2
    failed=1
  fi
done
if [[ $checked -eq 0 ]]; then
  echo "no object of an ISA unit among: $*" >&2
  exit 2
fi
exit $failed
