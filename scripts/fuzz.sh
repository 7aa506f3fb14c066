#!/usr/bin/env bash
# Runs every fuzz target under ASan and UBSan for a while, from the corpus that is kept in tests/data/fuzz.
#
#   scripts/fuzz.sh [SECONDS] [target ...]       60 seconds each, all targets, by default
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
seconds=60
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
for target in "$@"; do
  [[ "$target" =~ ^[a-z_]+_fuzz$ ]] || refuse "unknown argument $target"
done

cmake --preset fuzz >/dev/null
mapfile -t targets < <(ninja -C build-fuzz -t targets all 2>/dev/null | sed -nE 's/^(fuzz\/[^:]+): CXX_EXECUTABLE.*/\1/p')
if [ $# -gt 0 ]; then targets=("${@/#/fuzz/}"); fi
if [ ${#targets[@]} -eq 0 ]; then echo "fuzz: no targets"; exit 0; fi
ninja -C build-fuzz "${targets[@]}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() {
  local name=${1#fuzz/}
  mkdir -p "$work/$name"
  local corpus=("$work/$name")
  [ -d "tests/data/fuzz/$name" ] && corpus+=("tests/data/fuzz/$name")
  if "build-fuzz/$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$name-" "${corpus[@]}" >"$work/$name.log" 2>&1; then
    echo "fuzz: $name: $(sed -nE 's/^stat::number_of_executed_units: *//p' "$work/$name.log") runs in $seconds s, no finding"
  else
    tail -n 40 "$work/$name.log"
    echo "fuzz: $name: FAILED; the input is kept as build-fuzz/$name-*"
    return 1
  fi
}
status=0
# One target per core at a time.
pids=()
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || status=1; done
  run "$target" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
