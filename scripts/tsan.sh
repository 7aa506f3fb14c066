#!/usr/bin/env bash
# Tests under ThreadSanitizer (preset tsan): all that ctest labels unit, ops and models, or the labels given.
#
# Left out are programs that only ever compute on one thread and would take hours here: codecs, single kernels, the
# evaluator in double precision. What several threads do with them is in cpu_ops_test and the models.
#
#   scripts/tsan.sh [LABEL...]    scripts/tsan.sh server; $JOBS: compilers and tests at once, all processors without it
# A report fails its test. scripts/tsan.supp lists what is not ours, each with its reason.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
for label in "$@"; do
  case "$label" in
    unit | ops | models | server | cuda) ;;
    *) refuse "unknown label $label: unit, ops, models, server or cuda" ;;
  esac
done
labels=("$@")
[ ${#labels[@]} -gt 0 ] || labels=(unit ops models)
jobs=${JOBS:-$(nproc)}
cmake --preset tsan >/dev/null && cmake --build --preset tsan -j "$jobs" || exit 1
export TSAN_OPTIONS="halt_on_error=0:exitcode=66:history_size=4:suppressions=$PWD/scripts/tsan.supp"
single='quant_test|cpu_matmul_test|cpu_vec_test|cpu_toy_type_test|reference_test'
# Where a kernel spreads mappings over more bits than the runtime of GCC 12 allows for, programs end before they begin.
fixed=()
setarch -R true 2>/dev/null && fixed=(setarch -R)
"${fixed[@]}" ctest --test-dir build-tsan -E "^($single)\$" -L "^($(IFS='|'; echo "${labels[*]}"))\$" -j "$jobs" --output-on-failure
