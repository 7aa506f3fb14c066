#!/usr/bin/env bash
# Fails when an object of an ISA unit defines a weak function.
#
# An inline function from a shared header that is compiled for AVX-512 in one unit and for the baseline in another is
# one symbol to the linker, which keeps either: the baseline program would then run AVX-512 code. Units for an ISA level
# therefore keep everything in anonymous namespaces.
#
#   scripts/check-isa-objects.sh OBJECT...      the object files of ggml_cpu_kernels; those of no ISA level are ignored
set -euo pipefail
. "$(dirname "$0")/usage.sh"
help_if_asked "$@"
[ $# -gt 0 ] || refuse "no object files are given"
checked=0
failed=0
for object in "$@"; do
  case "$object" in
    -*) refuse "unknown option $object" ;;
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
