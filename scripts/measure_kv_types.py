"""Measures what the types of a KV cache cost: compares a model's predictions with those of an F32 cache, and prints the table of docs/quantization.md.

Variables: $BIN, the programs (build/bin); $CHUNKS of 512 tokens (3); $THREADS (2); $DEPTH in tokens at which decode is measured (2048); $RUNS, of
which the median counts (3; 0: not measured).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

BIN = os.environ.get("BIN", "build/bin")
CHUNKS = os.environ.get("CHUNKS", "3")
THREADS = os.environ.get("THREADS", "2")
DEPTH = os.environ.get("DEPTH", "2048")
RUNS = os.environ.get("RUNS", "3")
DECODED = "32"


def run(program, *args):
    done = subprocess.run([os.path.join(BIN, program), *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(args)}: status {done.returncode}\n{done.stderr}")
    return done.stdout + done.stderr


def value(text, pattern):
    return float(re.search(pattern, text)[1])


def decode_rate(model, k, v):
    if RUNS == "0":
        return None
    shown = run("llama-bench", "-m", model, "-p", "0", "-n", DECODED, "-d", DEPTH, "-r", RUNS, "-t", THREADS, "-ctk", k, "-ctv", v, "-o", "json")
    tests = json.loads(shown[shown.index("["):shown.rindex("]") + 1])
    return statistics.median(tests[0]["samples_ts"])


def bytes_per_token(shown):
    return value(shown, r"kv_bytes_per_token=(\d+)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a GGUF file")
    parser.add_argument("text", metavar="TEXT", help="a file of text")
    parser.add_argument("settings", metavar="K,V[,had]", nargs="+", help="types of keys and values; had turns -khad and -vhad on")
    options = parser.parse_args()
    model, text = options.model, options.text
    common = ["-m", model, "-t", THREADS]
    print("| K | V | transformed | bits per element | mean KLD | 99 % KLD | same top % | decode, t/s |\n|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.join(folder, "base.kld")
        exact = ["-ctk", "f32", "-ctv", "f32"]
        whole = bytes_per_token(run("llama-perplexity", *common, "-f", text, "--chunks", CHUNKS, *exact, "--kl-divergence-base", base))
        for setting in options.settings:
            k, v, *rest = setting.split(",")
            flags = ["-ctk", k, "-ctv", v] + (["-khad", "-vhad"] if rest == ["had"] else [])
            shown = run("llama-perplexity", *common, *flags, "--kl-divergence-base", base, "--kl-divergence")
            bits = 32 * bytes_per_token(shown) / whole
            rate = decode_rate(model, k, v) if not rest else None
            print(f"| {k.upper()} | {v.upper()} | {'yes' if rest else ''} | {bits:.2f} | {value(shown, r'Mean    KLD: +(-?[0-9.]+)'):.5f} ± "
                  f"{value(shown, r'Mean    KLD: .*± +([0-9.]+)'):.5f} | {value(shown, r'99.0%   KLD: +(-?[0-9.]+)'):.4f} | "
                  f"{value(shown, r'Same top p: +([0-9.]+)'):.1f} | {f'{rate:.1f}' if rate else ''} |", flush=True)


main()
