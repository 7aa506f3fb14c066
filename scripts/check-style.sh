#!/usr/bin/env bash
# The rules of the style guide that a program can check; scripts/check_style.py has them one by one.
#
#   scripts/check-style.sh [--no-headers|--recent-headers]      without compiling each header alone (the slow part), or only the 80 touched last
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
exec python3 scripts/check_style.py "$@"
