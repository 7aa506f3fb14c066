#!/usr/bin/env python3
"""How soon llama-server answers after its start, and how much memory it takes for it.

usage: scripts/measure_start.py [--server build/bin/llama-server] [--runs 5] [--ctx 4096] MODEL... [-- SERVER OPTION...]

Per model: the file is read once, so that the page cache is warm. Then, --runs times, the server starts, and a client that knocks from the
first millisecond on gets one token. Start = time from exec to that answer without the prompt's own time (goal: 1 s). In the last run a second
prompt follows, longer than a micro-batch; after it the peak of resident memory (VmHWM) is compared with the bytes of the file that are mapped in, as the kernel counts
them (smaps), and the KV cache, as the server's log names it; goal: at most 150 MiB beyond the two. Exit status 1 when a goal is missed.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

MIB = 1 << 20
START_GOAL_S = 1.0
BEYOND_GOAL_MIB = 150
LONG_PROMPT = "The town lies on a river, and its people build boats. " * 60  # over 512 tokens with any vocabulary


def warm_page_cache(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(16 * MIB):
            pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def complete(port, prompt):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion",
        json.dumps({"prompt": prompt, "n_predict": 1, "cache_prompt": False}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def first_answer(server, port):
    while True:
        try:
            return complete(port, "The capital of France is")
        except (urllib.error.URLError, ConnectionError) as error:  # not listening yet, or 503: still loading
            if server.poll() is not None:
                sys.exit(f"the server ended with status {server.returncode} ({error})")
            if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                sys.exit(f"the server refused: {error.read().decode()}")
            time.sleep(0.002)


def mapped_file_bytes(pid, path):
    """Resident bytes of the mappings of `path`."""
    total, inside = 0, False
    name = os.path.realpath(path)
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = line.rstrip("\n").endswith(name)
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read()).group(1)) * 1024


def run_once(options, path, with_memory):
    port = free_port()
    with tempfile.TemporaryFile("w+") as log:
        begin = time.monotonic()
        server = subprocess.Popen(
            [options.server, "-m", path, "--port", str(port), "-c", str(options.ctx), *options.server_options], stderr=log)
        try:
            answer = first_answer(server, port)
            start = time.monotonic() - begin - answer["timings"]["prompt_ms"] / 1000
            if with_memory:
                complete(port, LONG_PROMPT)
            peak, mapped = peak_bytes(server.pid), mapped_file_bytes(server.pid, path)
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        kv = int(re.search(r"kv_bytes=(\d+)", log.read()).group(1))
    return {"start": start, "prompt": answer["timings"]["prompt_ms"] / 1000, "peak": peak, "mapped": mapped, "kv": kv}


def measure(options, path):
    warm_page_cache(path)
    runs = [run_once(options, path, with_memory=i + 1 == options.runs) for i in range(options.runs)]
    starts = sorted(run["start"] for run in runs)
    last = runs[-1]
    beyond = (last["peak"] - last["mapped"] - last["kv"]) / MIB
    missed = [name for name, bad in (("start", starts[-1] > START_GOAL_S), ("memory", beyond > BEYOND_GOAL_MIB)) if bad]
    print(f"| {os.path.basename(path)} | {os.path.getsize(path) / MIB:.0f} | {statistics.median(starts):.2f} ({starts[0]:.2f} to "
          f"{starts[-1]:.2f}) | {statistics.median(run['prompt'] for run in runs):.2f} | {last['peak'] / MIB:.0f} | "
          f"{last['mapped'] / MIB:.0f} | {last['kv'] / MIB:.0f} | {beyond:.0f} |" +
          (f" MISSED: {', '.join(missed)}" if missed else ""), flush=True)
    return not missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", default="build/bin/llama-server")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    options.server_options = arguments[cut + 1:]
    print("| file | MiB | start s: median (range) | first prompt s | peak MiB | file mapped MiB | KV MiB | beyond both MiB |")
    print("|---|---|---|---|---|---|---|---|")
    return 0 if all([measure(options, path) for path in options.models]) else 1


if __name__ == "__main__":
    sys.exit(main())
