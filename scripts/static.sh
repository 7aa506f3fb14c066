#!/usr/bin/env bash
# Builds the programs of build-static/bin, which need no shared library but libc, libm, libdl, libpthread and the loader,
# and checks that they do. They run on any Linux with the same or a newer libc.
#
#   scripts/static.sh [-DOPTION=VALUE ...]      options of CMake
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
for arg in "$@"; do [[ $arg == -D?* ]] || refuse "no option of CMake: $arg"; done
cmake -G Ninja -B build-static -DCMAKE_BUILD_TYPE=Release -DTANDEM_STATIC=ON -DTANDEM_TESTS=OFF -DTANDEM_BENCH=OFF "$@" >/dev/null
cmake --build build-static -j "$(nproc)"
ctest --test-dir build-static -R '^static_link_test$' --no-tests=error --output-on-failure
