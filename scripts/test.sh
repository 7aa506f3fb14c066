#!/usr/bin/env bash
# Builds everything and runs all tests: unit, ops, models and server. Ends with status 0 only if all of them pass.
#
#   scripts/test.sh [--no-deps] [--build-only] [label ...]      labels: unit ops models server (default: all four)
#
# The goldens in ../shared (or $TANDEM_SHARED) are used when they are there; then none of them may be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"

deps=1 build_only=0 labels=()
for arg in "$@"; do
  case "$arg" in
    --no-deps) deps=0 ;;
    --build-only) build_only=1 ;;
    unit | ops | models | server) labels+=("$arg") ;;
    *) refuse "unknown argument $arg" ;;
  esac
done
[ ${#labels[@]} -gt 0 ] || labels=(unit ops models server)
jobs=$(nproc)
shared=${TANDEM_SHARED:-../shared}

[ "$deps" = 0 ] || scripts/install-deps.sh --no-lint
cmake --preset release -DTANDEM_TESTS=ON -DTANDEM_BENCH=ON >/dev/null
cmake --build --preset release -j "$jobs"
[ "$build_only" = 0 ] || exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
run_label() {  # ctest with the programs' output kept, of which the tests that pass show only their summary
  local label=$1
  if ! ctest --test-dir build -N -L "^$label\$" | grep -q 'Total Tests: [1-9]'; then echo "no tests with the label $label"; return 0; fi
  echo "== tests: $label"
  local status=0
  ctest --test-dir build -L "^$label\$" -j "$jobs" --no-tests=error -V </dev/null 2>&1 | tee "$log.$label" \
    | { grep --line-buffered -aE '^ *[0-9]+/[0-9]+ Test|tests (passed|failed)|^Total Test time|goldens:' || true; } || status=$?
  if [ "$status" != 0 ]; then
    failed+=("$label")
    grep -aE -B 2 -A 12 'Failure$|\*\*\*(Failed|Timeout|Exception)|SUMMARY: |AddressSanitizer' "$log.$label" | head -200 || true
  fi
}
for label in "${labels[@]}"; do run_label "$label"; done

# One line for all programs that compare with goldens.
ran=0 skipped=0
if compgen -G "$log.*" >/dev/null; then
  while read -r n m; do ran=$((ran + n)) skipped=$((skipped + m)); done < <(
    grep -ahoE 'goldens: [0-9]+ run, [0-9]+ skipped' "$log".* | sed -E 's/goldens: ([0-9]+) run, ([0-9]+) skipped/\1 \2/')
  rm -f "$log".*
fi
echo "goldens: $ran run, $skipped skipped"
if [ "$skipped" -gt 0 ] && [ -d "$shared/data" ]; then
  echo "test.sh: $skipped goldens were skipped although $shared exists" >&2
  failed+=(goldens)
fi

if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "all tests passed: ${labels[*]}"
