#!/usr/bin/env bash
# From a clean clone to a running server: packages, build, a small model, llama-server on 127.0.0.1.
#
#   scripts/quickstart.sh [--port N] [--no-build] [-- llama-server options]
#     --no-build  start what was built before (in $BUILD, else build/)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"

port=8080 build=1 folder=build
while [ $# -gt 0 ]; do
  case "$1" in
    --port) [[ ${2:-} =~ ^[0-9]+$ ]] || refuse "--port needs a number"
      port=$2
      shift 2 ;;
    --no-build) build=0 folder=${BUILD:-build}; shift ;;
    --) shift; break ;;
    *) refuse "unknown argument $1 (options of llama-server come behind --)" ;;
  esac
done

# Before the build, and again before the start: another server would answer in the place of ours.
refuse_taken_port() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "quickstart.sh: something listens on port $port already: give another with --port N, or end it" >&2
    exit 1
  fi
}

refuse_taken_port
if [ "$build" = 1 ]; then
  scripts/install-deps.sh --no-lint --no-test
  cmake --preset release -DTANDEM_TESTS=OFF -DTANDEM_BENCH=OFF >/dev/null
  cmake --build --preset release --target llama-server llama-cli
fi
model=$(scripts/get-model.sh smollm2)

refuse_taken_port
"$folder/bin/llama-server" -m "$model" --host 127.0.0.1 --port "$port" "$@" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null' EXIT
trap 'exit 0' INT TERM
ready=
for _ in $(seq 600); do
  curl -sf "http://127.0.0.1:$port/health" >/dev/null && ready=1
  kill -0 "$server" 2>/dev/null || {
    echo "quickstart.sh: llama-server ended; its last lines above say why (--port N chooses another port)" >&2
    exit 1
  }
  [ -z "$ready" ] || break
  sleep 0.1
done
[ -n "$ready" ] || { echo "quickstart.sh: llama-server does not answer on port $port after a minute" >&2; exit 1; }
cat <<TXT

The server answers on http://127.0.0.1:$port (Ctrl-C ends it). Try, in another terminal:

  curl http://127.0.0.1:$port/v1/chat/completions -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"What is the capital of France? Answer in one sentence."}],"max_tokens":64,"temperature":0}'

TXT
wait "$server"
