#!/usr/bin/env bash
# Installs what building and testing needs on Debian 12 or Ubuntu: system packages with apt, Python packages with pip.
# Idempotent, and quick when everything is there.
#
#   scripts/install-deps.sh [--no-python] [--no-lint] [--no-test]
#     --no-python  no Python (tests of the server, get-model.sh with pip)
#     --no-lint    no clang (format, tidy, fuzzers)
#     --no-test    no GoogleTest, Google Benchmark and Python packages for tests
set -euo pipefail
. "$(dirname "$0")/usage.sh"
help_if_asked "$@"

python=1 lint=1 test=1
for arg in "$@"; do
  case "$arg" in
    --no-python) python=0 ;;
    --no-lint) lint=0 ;;
    --no-test) test=0 ;;
    *) refuse "unknown argument $arg" ;;
  esac
done

packages=(build-essential cmake ninja-build ccache lld pkg-config git curl unzip ca-certificates
          libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev)
[ "$test" = 1 ] && packages+=(libgtest-dev libbenchmark-dev)
[ "$lint" = 1 ] && packages+=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev)
[ "$python" = 1 ] && packages+=(python3 python3-pip)

installed=$(dpkg-query -W -f='${Package} ${Status}\n' 2>/dev/null | sed -n 's/ install ok installed$//p' || true)
missing=()
for package in "${packages[@]}"; do grep -qxF "$package" <<<"$installed" || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || {
    echo "install-deps.sh: this is neither Debian nor Ubuntu; install these by hand: ${missing[*]}" >&2
    exit 1
  }
  sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "install-deps.sh: run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq </dev/null
  available=()
  for package in "${missing[@]}"; do
    if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then available+=("$package"); else echo "not in this release, skipped: $package"; fi
  done
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${available[@]}" </dev/null >/dev/null
fi

# CMake 3.25 is in Debian 12; older systems get a newer one from pip below.
need_cmake=0
if ! cmake --version 2>/dev/null | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || v[1] == 3 && v[2] >= 25) }'; then need_cmake=1; fi

if [ "$python$test" = 11 ] || [ "$need_cmake" = 1 ]; then
  modules=()
  if [ "$python$test" = 11 ]; then
    # Looking for the modules is quick; importing openai alone takes seconds.
    mapfile -t modules < <(python3 -c '
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None: print(name)' gguf numpy openai pytest httpx)
  fi
  [ "$need_cmake" = 1 ] && modules+=("cmake>=3.25,<4")
  if [ ${#modules[@]} -gt 0 ]; then
    echo "installing with pip: ${modules[*]}"
    flags=(--quiet --disable-pip-version-check)
    # Debian 12 marks its Python as managed by apt; these packages are for tests only.
    python3 -m pip install --help 2>/dev/null | grep -q break-system-packages && flags+=(--break-system-packages)
    python3 -m pip install "${flags[@]}" "${modules[@]}" </dev/null
  fi
fi
echo "dependencies: ready"
