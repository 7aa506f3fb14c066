#!/usr/bin/env bash
# Fails when a program needs a shared library besides libc, libm, libdl, libpthread, the loader and the kernel's own.
# A program of a static build then runs on any system with the same or a newer libc.
#
#   static_link_test.sh PROGRAM...
set -euo pipefail

allowed='linux-vdso\.so\.1|libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux[a-z0-9_-]*\.so\.[0-9]+'

if [ $# -eq 0 ]; then echo "usage: $0 PROGRAM..." >&2; exit 2; fi
failed=0
for program in "$@"; do
  if ! needed=$(ldd "$program" 2>&1); then
    echo "$program: ldd cannot read it: $needed" >&2
    failed=1
    continue
  fi
  # A line begins with the library's name, or, for the loader, with its path.
  extra=$(awk '{ sub(/.*\//, "", $1); print $1 }' <<<"$needed" | grep -vxE "$allowed" || true)
  if [ -n "$extra" ]; then
    echo "$program needs shared libraries that a static build must not need: ${extra//$'\n'/ }" >&2
    failed=1
  else
    echo "$program: static but for libc and its kin"
  fi
done
exit $failed
