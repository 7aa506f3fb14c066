#!/usr/bin/env bash
# Runs a command while the kernel's automatic NUMA balancing is off, and sets the switch back when the command has ended.
#
#   disable-numa-balancing.sh COMMAND [ARGS...]
#
# Balancing moves pages after the threads that touch them. Threads that read all weights in turn make it move pages for
# nothing, and every page that it looks at costs a page fault.
# Needs the right to write /proc/sys/kernel/numa_balancing (root). Signals are passed on to the command; only SIGKILL and
# real-time signals to this script leave the switch off. Of several runs at the same time the first one to end sets the
# switch back.
#
# Status: that of the command (128 + N when signal N ended it); 125 the switch cannot be used, 126 the command cannot be
# executed, 127 there is no such command. With 125 to 127 of its own nothing was run and nothing changed.
# TANDEM_SYSTEM_ROOT is put before /proc (for tests).
set -u

readonly failed=125 not_executable=126 not_found=127

say() { printf 'disable-numa-balancing: %s\n' "$1" >&2; }
fail() { say "error: $2"; exit "$1"; }
usage() { sed -n '2,15s/^# \{0,1\}//p' "$0"; }

if [ $# -eq 0 ]; then
  usage >&2
  exit $failed
fi
case $1 in
  -h | --help) usage; exit 0 ;;
  --) shift; [ $# -gt 0 ] || fail $failed "no command is given" ;;
  -*) fail $failed "unknown option $1; the first word is the command to run" ;;
esac

switch=${TANDEM_SYSTEM_ROOT:-}/proc/sys/kernel/numa_balancing
case $1 in
  */*) [ -e "$1" ] || fail $not_found "$1: no such command" ;;
  *) type -P -- "$1" >/dev/null || fail $not_found "$1: no such command in PATH" ;;
esac
program=$(type -P -- "$1") || fail $not_executable "$1: cannot be executed"
[ ! -d "$program" ] || fail $not_executable "$1: is a folder"

# Writes a value to the switch; what the system said about it is in `reason`.
reason=
set_switch() {
  reason=$({ printf '%s\n' "$1" >"$switch"; } 2>&1) && return 0
  reason=${reason##*: }
  return 1
}

if [ ! -e "$switch" ]; then
  say "note: $switch is not there: this kernel does no NUMA balancing"
  exec "$@"
fi
saved=
read -r saved 2>/dev/null <"$switch"
[[ $saved =~ ^[0-9]+$ ]] || fail $failed "$switch: a number was expected, it holds '$saved'"
if [ "$saved" = 0 ]; then
  say "note: NUMA balancing is off already"
  exec "$@"
fi

# All that would end this script before it has set the switch back: every signal can be sent by kill(1).
readonly ending="HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM STKFLT XCPU XFSZ VTALRM PROF IO PWR SYS"
child="" interrupted="" early=""
restore() {
  trap '' $ending
  set_switch "$saved" || say "warning: $switch: cannot be set back to $saved ($reason): echo $saved | sudo tee $switch"
}
# A terminal sends ^C and ^\ to the command as well; passing them on would make one keypress two signals.
pass_on() {
  interrupted=1
  case $1 in INT | QUIT) if [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; then return; fi ;; esac
  if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; else early+=" $1"; fi
}
for name in $ending; do trap "pass_on $name" "$name"; done

set_switch 0 || fail $failed "$switch: cannot be written ($reason): run as root, for instance with sudo"
trap restore EXIT
# A signal before this line has no command yet to go to, and must end the run all the same.
[ -z "$interrupted" ] || exit 130

# The shell starts a command in the background with /dev/null as input and deaf to ^C; neither is wanted here.
( trap - INT QUIT; exec "$@" ) <&0 &
child=$!
for name in $early; do kill -s "$name" "$child" 2>/dev/null; done  # came before its number was known
while :; do
  interrupted=
  wait "$child"
  status=$?
  [ -n "$interrupted" ] || break
done
exit $status
