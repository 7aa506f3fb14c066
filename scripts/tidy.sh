#!/usr/bin/env bash
# clang-tidy, warnings are errors.
#
#   scripts/tidy.sh              the files that recent commits touched (scripts/changed-files.sh), newest first, at most $LIMIT (24)
#   scripts/tidy.sh --all        every file of the tree
#   scripts/tidy.sh FILE...      those files
# A changed header stands for the sources of the same name. Needs a configured build folder: $BUILD, else build/. $JOBS says how many files
# are looked at at once: all processors without it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
case "${1:-}" in
  "" | --all) [ $# -le 1 ] || refuse "unknown argument $2" ;;
  -*) refuse "unknown option $1" ;;
esac
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "tidy.sh: clang-tidy 14 is missing: scripts/install-deps.sh" >&2; exit 1; }
build=${BUILD:-build}
limit=${LIMIT:-24}
[ -f "$build/compile_commands.json" ] || cmake --preset release >/dev/null

recent() {  # newest first, each once
  scripts/changed-files.sh | awk '
    /\.cpp$/ { print }
    /\.h$/ { stem = substr($0, 1, length($0) - 2); print stem ".cpp"; print stem "_test.cpp" }' | awk '!seen[$0]++'
}

case "${1:-}" in
  --all) limit=1000000; mapfile -t files < <(git ls-files '*.cpp') ;;
  "") mapfile -t files < <(recent) ;;
  *) limit=1000000; files=("$@") ;;
esac
# Only what the build knows: a fuzz target of another configuration has no compile command.
known=()
for file in "${files[@]}"; do
  if [ -f "$file" ] && grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then known+=("$file"); fi
done
echo "clang-tidy: ${#known[@]} files$([ ${#known[@]} -le "$limit" ] || echo ", the first $limit of them")"
[ ${#known[@]} -gt 0 ] || exit 0
# GCC's own warning flags are unknown to clang, and clang's headers of intrinsics have macros of another C++; both say nothing about the code.
printf '%s\0' "${known[@]:0:$limit}" | xargs -0 -P "${JOBS:-$(nproc)}" -n 1 "$tidy" -p "$build" --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-c99-extensions 2>/dev/null
