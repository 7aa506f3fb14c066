# shellcheck shell=bash
# How scripts answer for themselves; sourced by them. Their usage is the comment at their head.

usage() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]%/*}/${0##*/}"; }

# help_if_asked ARG...: shows the usage where -h or --help is among the arguments, up to a --, and ends the script.
help_if_asked() {
  local arg
  for arg in "$@"; do
    case "$arg" in
      --) return ;;
      -h | --help) usage; exit 0 ;;
    esac
  done
}

# refuse WHAT: ends the script because of its arguments.
refuse() { echo "${0##*/}: $1 (--help shows what there is)" >&2; exit 2; }
