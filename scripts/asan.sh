#!/usr/bin/env bash
# Parsers and unit tests under AddressSanitizer and UBSan (preset asan+ubsan). Tests that are scripts around a program are left to the
# release build.
#
#   scripts/asan.sh
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
[ $# = 0 ] || refuse "unknown argument $1"
cmake --preset asan+ubsan >/dev/null || exit 1
tests=$(ctest --test-dir build-asan+ubsan -N -L '^unit$' | sed -nE 's/^ *Test +#[0-9]+: (.*)$/\1/p')
programs=$(ninja -C build-asan+ubsan -t targets all | sed -nE 's/^([^/: ]+): phony$/\1/p')
targets=$(comm -12 <(sort <<<"$tests") <(sort <<<"$programs"))
[ -n "$targets" ] || { echo "asan.sh: no unit tests"; exit 1; }
# shellcheck disable=SC2086  # one word per target
cmake --build --preset asan+ubsan -j "$(nproc)" --target $targets || exit 1
ctest --test-dir build-asan+ubsan -R "^($(paste -sd'|' <<<"$targets"))$" -j "$(nproc)" --output-on-failure
