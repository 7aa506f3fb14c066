#!/usr/bin/env bash
# Runs a command on the processors and the memory of one socket, on all NUMA nodes that the socket has.
#
#   numactl-bind-socket.sh --socket ID --mode physical|all [--interleave on|off] COMMAND [ARGS...]
#
#   --socket ID          the socket, as in "Socket(s)" of lscpu, counted from 0
#   --mode physical      one hardware thread of each core: the first that is online
#   --mode all           every hardware thread that is online
#   --interleave on      pages are dealt out over the socket's nodes in turn; when these are full, others are used
#   --interleave off     pages lie where they are first touched, on the socket's nodes only
#                        without --interleave: on when the socket has several nodes with memory, else off
#
# Says on standard error what it chose, with the number for -t. The command becomes numactl(8) with the flags for it.
# Status: that of the command; 125 a mistake in the options, a topology that cannot be read, or no numactl;
# 126 the command cannot be executed; 127 there is no such command.
# TANDEM_SYSTEM_ROOT is put before /sys (for tests).
set -u

readonly failed=125 not_executable=126 not_found=127
readonly cpus_folder=${TANDEM_SYSTEM_ROOT:-}/sys/devices/system/cpu
readonly nodes_folder=${TANDEM_SYSTEM_ROOT:-}/sys/devices/system/node

fail() { printf 'numactl-bind-socket: error: %s\n' "$2" >&2; exit "$1"; }
usage() { sed -n '2,18s/^# \{0,1\}//p' "$0"; }

socket= mode= interleave=
while [ $# -gt 0 ]; do
  option=$1
  case $option in
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    --socket=* | --mode=* | --interleave=*) value=${option#*=} option=${option%%=*}; shift ;;
    --socket | --mode | --interleave)
      [ $# -ge 2 ] || fail $failed "$option needs a value"
      value=$2
      shift 2 ;;
    -*) fail $failed "unknown option $option (--help shows them)" ;;
    *) break ;;
  esac
  case $option in
    --socket) [[ $value =~ ^[0-9]{1,4}$ ]] || fail $failed "--socket: a number was expected, not '$value'"
      socket=$((10#$value)) ;;
    --mode) [[ $value =~ ^(physical|all)$ ]] || fail $failed "--mode: physical or all was expected, not '$value'"
      mode=$value ;;
    --interleave) [[ $value =~ ^(on|off)$ ]] || fail $failed "--interleave: on or off was expected, not '$value'"
      interleave=$value ;;
  esac
done
[ -n "$socket" ] || fail $failed "--socket is missing (--help shows the options)"
[ -n "$mode" ] || fail $failed "--mode is missing: physical or all"
[ $# -gt 0 ] || fail $failed "no command is given"
case $1 in
  */*) [ -e "$1" ] || fail $not_found "$1: no such command" ;;
  *) type -P -- "$1" >/dev/null || fail $not_found "$1: no such command in PATH" ;;
esac
program=$(type -P -- "$1") || fail $not_executable "$1: cannot be executed"
[ ! -d "$program" ] || fail $not_executable "$1: is a folder"
type -P numactl >/dev/null || fail $failed "numactl is not installed (package numactl)"

# "0-2,64" -> "0 1 2 64"
numbers_of() {
  local part out=()
  for part in ${1//,/ }; do
    [[ $part =~ ^([0-9]+)(-([0-9]+))?$ ]] || return 1
    local first=$((10#${BASH_REMATCH[1]})) last=$((10#${BASH_REMATCH[3]:-${BASH_REMATCH[1]}}))
    while [ "$first" -le "$last" ]; do out+=("$first"); first=$((first + 1)); done
  done
  echo "${out[*]:-}"
}

# 0 1 2 64 -> "0-2,64"
list_of() {
  local out= begin= end= number
  for number in $(printf '%s\n' "$@" | sort -nu) end; do
    if [ -n "$begin" ] && [ "$number" != $((end + 1)) ]; then
      out+=${out:+,}$begin
      [ "$begin" = "$end" ] || out+=-$end
      begin=
    fi
    [ -n "$begin" ] || begin=$number
    end=$number
  done
  echo "$out"
}

first_line() {
  local line=
  { read -r line || [ -n "$line" ]; } 2>/dev/null <"$1" || return 1
  echo "$line"
}

declare -A online=() socket_of=() sockets=()
shopt -s nullglob
for folder in "$cpus_folder"/cpu[0-9]*; do
  cpu=${folder##*/cpu}
  # The first processor often has no switch, since it cannot be taken away.
  [ "$(first_line "$folder/online" || echo 1)" = 1 ] || continue
  package=$(first_line "$folder/topology/physical_package_id") ||
    fail $failed "$folder/topology/physical_package_id: cannot be read: which socket is this processor in?"
  [ "$package" = -1 ] && package=0  # machines that do not count sockets have one
  online[$cpu]=1 socket_of[$cpu]=$package sockets[$package]=1
done
[ ${#online[@]} -gt 0 ] || fail $failed "$cpus_folder: no processors are listed there"
[ -n "${sockets[$socket]:-}" ] ||
  fail $failed "there is no socket $socket; this machine has: $(list_of "${!sockets[@]}")"

is_first_of_its_core() {
  local cpu=$1 name siblings sibling
  for name in thread_siblings_list core_cpus_list; do
    siblings=$(first_line "$cpus_folder/cpu$cpu/topology/$name") && break
    siblings=
  done
  siblings=$(numbers_of "$siblings") && [ -n "$siblings" ] ||
    fail $failed "$cpus_folder/cpu$cpu/topology: which hardware threads share a core? --mode all does without"
  for sibling in $siblings; do
    [ -n "${online[$sibling]:-}" ] || continue
    [ "$sibling" = "$cpu" ]
    return
  done
  return 0
}

cpus=()
for cpu in "${!socket_of[@]}"; do
  [ "${socket_of[$cpu]}" = "$socket" ] || continue
  if [ "$mode" = all ] || is_first_of_its_core "$cpu"; then cpus+=("$cpu"); fi
done

with_memory=all
[ ! -e "$nodes_folder/has_memory" ] || with_memory=" $(numbers_of "$(first_line "$nodes_folder/has_memory")") "
nodes=() any_node=
for folder in "$nodes_folder"/node[0-9]*; do
  node=${folder##*/node}
  list=$(first_line "$folder/cpulist") || list=
  here=$(numbers_of "$list") || fail $failed "$folder/cpulist: a list of processors was expected, it holds '$list'"
  any_node=1
  for cpu in $here; do
    [ "${socket_of[$cpu]:-}" = "$socket" ] || continue
    if [ "$with_memory" = all ] || [[ $with_memory == *" $node "* ]]; then nodes+=("$node"); fi
    break
  done
done
[ -n "$any_node" ] || fail $failed "$nodes_folder: this kernel knows no NUMA nodes"
[ ${#nodes[@]} -gt 0 ] || fail $failed "socket $socket has no memory of its own"

if [ -z "$interleave" ]; then
  interleave=off
  [ ${#nodes[@]} -eq 1 ] || interleave=on
fi
node_list=$(list_of "${nodes[@]}")
policy=--membind=$node_list
[ "$interleave" = off ] || policy=--interleave=$node_list
cpu_list=$(list_of "${cpus[@]}")
printf 'numactl-bind-socket: socket %s: nodes %s, interleave %s, %d threads (-t %d) on CPUs %s\n' "$socket" "$node_list" \
  "$interleave" ${#cpus[@]} ${#cpus[@]} "$cpu_list" >&2
exec numactl "--physcpubind=$cpu_list" "$policy" -- "$@"
