"""Measures what file types cost: quantises a model to each, compares its predictions with the source's, and prints the table of docs/quantization.md.

Variables: $BIN, the programs (build/bin); $CHUNKS of 512 tokens (4); $THREADS (2); $IMATRIX, a file that the types are made with (none).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("BIN", "build/bin")
CHUNKS = os.environ.get("CHUNKS", "4")
THREADS = os.environ.get("THREADS", "2")


def run(program, *args):
    done = subprocess.run([os.path.join(BIN, program), *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(args)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def value(text, pattern):
    return float(re.search(pattern, text)[1])


def measure(model, text, kinds, folder):
    base = os.path.join(folder, "base.kld")
    shown = run("llama-perplexity", "-m", model, "-f", text, "--chunks", CHUNKS, "-t", THREADS, "--kl-divergence-base", base)
    yield {"type": "source", "MiB": os.path.getsize(model) / 2**20, "bpw": 0, "ppl": value(shown, r"= ([\d.]+) \+/-"), "seconds": 0}
    for kind in kinds:
        out = os.path.join(folder, kind + ".gguf")
        matrix = ["--imatrix", os.environ["IMATRIX"]] if "IMATRIX" in os.environ else []
        begin = time.monotonic()
        shown = run("llama-quantize", "--allow-requantize", *matrix, model, out, kind, THREADS)
        seconds = time.monotonic() - begin
        row = {"type": kind, "MiB": value(shown, r"quant size +=\s+([\d.]+)"), "bpw": value(shown, r"quant size .*\(([\d.]+) BPW"), "seconds": seconds}
        shown = run("llama-perplexity", "-m", out, "-t", THREADS, "--kl-divergence-base", base, "--kl-divergence")
        row |= {"ppl": value(shown, r"Mean PPL\(Q\) +: +([\d.]+)"), "kld": value(shown, r"Mean    KLD: +(-?[\d.]+)"),
                "kld_error": value(shown, r"Mean    KLD: .*± +([\d.]+)"), "kld_99": value(shown, r"99.0%   KLD: +(-?[\d.]+)"),
                "dp_rms": value(shown, r"RMS Δp    : +([\d.]+)"), "same_top": value(shown, r"Same top p: +([\d.]+)")}
        yield row
        os.remove(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.add_argument("model", metavar="MODEL", help="the source, a GGUF file")
    parser.add_argument("text", metavar="TEXT", help="a file of text")
    parser.add_argument("types", metavar="TYPE", nargs="+", help="as llama-quantize knows them")
    options = parser.parse_args()
    as_json = options.json
    with tempfile.TemporaryDirectory() as folder:
        if not as_json:
            print("| type | MiB | bits per weight | PPL | mean KLD | 99 % KLD | RMS Δp % | same top % |\n|---|---|---|---|---|---|---|---|", flush=True)
        for row in measure(options.model, options.text, options.types, folder):
            if as_json:
                print(json.dumps(row), flush=True)
            elif row["type"] == "source":
                print(f"| source | {row['MiB']:.1f} | | {row['ppl']:.3f} | | | | |", flush=True)
            else:
                print(f"| {row['type'].upper()} | {row['MiB']:.1f} | {row['bpw']:.2f} | {row['ppl']:.3f} | {row['kld']:.5f} ± {row['kld_error']:.5f} | "
                      f"{row['kld_99']:.4f} | {row['dp_rms']:.2f} | {row['same_top']:.1f} |", flush=True)


main()
