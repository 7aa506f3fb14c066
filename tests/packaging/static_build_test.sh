#!/usr/bin/env bash
# Links programs with -DTANDEM_STATIC=ON beside a build that is there, and checks what they need at run time. Nearly all objects are the same
# ones, which the compiler's cache has: without it this would be a second build, and the test is skipped (status 77).
#
#   static_build_test.sh BUILD_FOLDER ORDINARY_PROGRAM
set -euo pipefail
build=$1 ordinary=$2
here=$(dirname "$0")
programs=(llama-server llama-cli)

if ! command -v ccache >/dev/null; then
  echo "skipped: without ccache this is a second build; scripts/static.sh makes it"
  exit 77
fi
cmake -S . -G Ninja -B "$build" -DCMAKE_BUILD_TYPE=Release -DTANDEM_STATIC=ON -DTANDEM_TESTS=OFF -DTANDEM_BENCH=OFF >/dev/null
cmake --build "$build" --target "${programs[@]}" | tail -n 1
"$here/static_link_test.sh" "${programs[@]/#/$build/bin/}"
for program in "${programs[@]}"; do "$build/bin/$program" --version; done
[ -n "$("$build/bin/llama-cli" -m tests/data/models/llama.gguf -no-cnv -p "the model" -n 2 2>/dev/null)" ]

# The check tells the difference: the ordinary program does need more.
if "$here/static_link_test.sh" "$ordinary" 2>/dev/null; then
  echo "$ordinary is linked as this system's libraries are and passes the check of static programs" >&2
  exit 1
fi
