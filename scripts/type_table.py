#!/usr/bin/env python3
"""Measures prompts and decode of every tensor type, ours beside other engines, and prints the table of docs/performance.md.

Each type's file is a layer of llama3-8b with random weights, made with llama-gguf where it is missing. Engines are programs that take llama-bench's
-m, -p, -n, -r, -t and -o jsonl; they run in turn, and the fastest of the rounds counts, for whatever else a machine does only takes time away. A
type that an engine cannot load has a gap there. Behind the table: geometric means, and the types that are below the faster engine.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys

PROMPT_BOUND, DECODE_BOUND = 1.0, 0.97


def all_types(programs):
    shown = subprocess.run([os.path.join(programs, "llama-gguf"), "synth", "--list"], capture_output=True, text=True, check=True).stdout
    return re.search(r"^mixes: (.*)$", shown, re.MULTILINE)[1].split(", ")


def make(programs, kind, path):
    command = [os.path.join(programs, "llama-gguf"), "synth", "--preset", "llama3-8b", "--layers", "1", "--vocab", "4096", "--mix", kind, "-o", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"type_table.py: {kind} cannot be made: {done.stderr.strip()}")


def rates(program, model, options):
    """Tokens a second of the prompt and of decode; None where the engine fails."""
    command = [program, "-m", model, "-p", str(options.prompt), "-n", str(options.decode), "-r", "1", "-t", str(options.threads), "-o", "jsonl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return None
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(rows) != 2:
        return None
    rows.sort(key=lambda row: row["n_gen"])
    return [max(row["samples_ts"]) for row in rows]


def better(a, b):
    return b if a is None else a if b is None else [max(x, y) for x, y in zip(a, b)]


def ratio(found, what):
    others = [f[what] for f in found[1:] if f is not None]
    return found[0][what] / max(others) if others and found[0] is not None else None


def summary(name, ratios, bound):
    known = {kind: r for kind, r in ratios.items() if r is not None}
    if not known:
        return
    mean = math.exp(sum(math.log(r) for r in known.values()) / len(known))
    below = ", ".join(f"{kind} {r:.2f}" for kind, r in sorted(known.items(), key=lambda item: item[1]) if r < bound)
    print(f"\n{name} of {len(known)} types: geometric mean {mean:.2f}; below {bound:.2f}: {below or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", metavar="DIR", default="build/bin", help="where our programs are (build/bin)")
    parser.add_argument("--peer", metavar="NAME=PROGRAM", action="append", default=[], help="another engine's llama-bench; repeatable")
    parser.add_argument("--models", metavar="DIR", default="models/types", help="where the files of the types are, or go (models/types; 15 GB for all)")
    parser.add_argument("--prompt", metavar="N", type=int, default=512, help="tokens of the prompt (512)")
    parser.add_argument("--decode", metavar="N", type=int, default=24, help="tokens that are decoded (24)")
    parser.add_argument("--rounds", metavar="N", type=int, default=2, help="runs of each engine (2)")
    parser.add_argument("--threads", metavar="N", type=int, default=2, help="(2)")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=120, help="of one run, after which an engine has no figure (120)")
    parser.add_argument("--make-only", action="store_true", help="make the files and end")
    parser.add_argument("types", metavar="TYPE", nargs="*", help="of llama-gguf synth --list (all of them)")
    options = parser.parse_args()
    engines = [("ours", os.path.join(options.programs, "llama-bench"))]
    for peer in options.peer:
        name, given, program = peer.partition("=")
        if not given or not os.access(program, os.X_OK):
            parser.error(f"--peer {peer}: NAME=PROGRAM with a program that can be run is expected")
        engines.append((name, program))
    known = all_types(options.programs)
    for kind in options.types:
        if kind not in known:
            parser.error(f"{kind} is no type; there are {', '.join(known)}")
    os.makedirs(options.models, exist_ok=True)
    paths = {kind: os.path.join(options.models, kind + ".gguf") for kind in options.types or known}
    for kind, path in paths.items():
        if not os.path.exists(path):
            make(options.programs, kind, path)
    if options.make_only:
        return
    print("| type | " + " | ".join(f"{what}, {name}" for what in ("prompt", "decode") for name, _ in engines) + " | prompt / the faster | decode / the faster |")
    print("|---" * (2 * len(engines) + 3) + "|", flush=True)
    ratios = ({}, {})
    for kind, path in paths.items():
        found = [None] * len(engines)
        for _ in range(options.rounds):
            for i, (_, program) in enumerate(engines):
                found[i] = better(found[i], rates(program, path, options))
        cells = ["" if f is None else f"{f[what]:.{0 if f[what] >= 100 else 1}f}" for what in (0, 1) for f in found]
        for what in (0, 1):
            ratios[what][kind] = ratio(found, what)
            cells.append("" if ratios[what][kind] is None else f"{ratios[what][kind]:.2f}")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)
    summary("prompt", ratios[0], PROMPT_BOUND)
    summary("decode", ratios[1], DECODE_BOUND)


main()
