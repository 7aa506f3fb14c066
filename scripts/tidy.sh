#!/usr/bin/env bash
# clang-tidy, warnings are errors.
#
#   scripts/tidy.sh              files changed since origin/main or, without one, in the last commit
#   scripts/tidy.sh --all        every file of the tree
#   scripts/tidy.sh FILE...      those files
# Needs a configured build folder: $BUILD, else build/. $JOBS says how many files are looked at at once: all processors without it.
set -euo pipefail
cd "$(dirname "$0")/.."
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "tidy.sh: clang-tidy 14 is missing: scripts/install-deps.sh" >&2; exit 1; }
build=${BUILD:-build}
[ -f "$build/compile_commands.json" ] || cmake --preset release >/dev/null

case "${1:-}" in
  --all) mapfile -t files < <(git ls-files '*.cpp') ;;
  "")
    base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD~1 2>/dev/null || git rev-parse HEAD)
    [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse HEAD~1 2>/dev/null || echo "$base")
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp') ;;
  *) files=("$@") ;;
esac
# Only what the build knows: a fuzz target of another configuration has no compile command.
known=()
for file in "${files[@]}"; do
  if grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then known+=("$file"); fi
done
echo "clang-tidy: ${#known[@]} files"
[ ${#known[@]} -gt 0 ] || exit 0
# GCC's own warning flags are unknown to clang; they say nothing about the code.
printf '%s\0' "${known[@]}" | xargs -0 -P "${JOBS:-$(nproc)}" -n 1 "$tidy" -p "$build" --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option 2>/dev/null
