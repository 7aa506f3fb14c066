#!/usr/bin/env bash
# The files that recent commits and the working tree touch, newest first, each once: those since origin/main or, where HEAD is no further (a clean
# clone), those of the day that ends with HEAD.
#
#   scripts/changed-files.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
[ $# -eq 0 ] || refuse "unknown argument $1"
base=$(git merge-base HEAD origin/main 2>/dev/null || true)
if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
  day_before=$(($(git log -1 --format=%ct HEAD) - 86400))
  base=$(git rev-list -1 --before="$day_before" HEAD)
fi
{ git diff --name-only HEAD; git log --format= --name-only ${base:+"$base.."}HEAD; } | awk '!seen[$0]++'
