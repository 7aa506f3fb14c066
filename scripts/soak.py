#!/usr/bin/env python3
"""Loads a llama-server of its own with streams for a while and says what it did: lost requests, tokens per second, batch, latency, memory.

    scripts/soak.py MODEL [--seconds 300] [--streams 64] [--slots 8] [--bin build/bin]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import sys
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "server"))

PROMPTS = ["Tell me about the sea.", "What is a prime number?", "Write a line about rain.", "Name three animals and say why you like them."]
N_PREDICT = 64


def stream(client, url, i):
    """One request; returns (seconds to the first token, tokens)."""
    body = {"messages": [{"role": "user", "content": PROMPTS[i % len(PROMPTS)]}], "max_tokens": N_PREDICT, "stream": True, "seed": i,
            "stream_options": {"include_usage": True}}
    begin = time.time()
    first, tokens, done = None, 0, False
    with client.stream("POST", url + "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(response.read())
        for line in response.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
                elif first is None and event["choices"][0]["delta"].get("content"):
                    first = time.time() - begin
    if not done or tokens == 0:
        raise RuntimeError("the stream ended early")
    return first, tokens


def metric(server, name):
    return float(re.search(rf"(?m)^llamacpp:{name} (\S+)$", server.get("/metrics").text).group(1))


def load(server, streams, seconds):
    end = time.time() + seconds
    rss_after_first_fifth = {}

    def client(i):
        results, errors = [], []
        with httpx.Client(timeout=600) as http:
            n = 0
            while time.time() < end:
                try:
                    results.append(stream(http, server.url, i * 1000 + n))
                except Exception as error:  # noqa: BLE001: every kind of failure is a lost request
                    errors.append(repr(error))
                n += 1
                if time.time() > end - 0.8 * seconds:
                    rss_after_first_fifth.setdefault("kib", server.rss_kib())
        return results, errors

    begin = time.time()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        outcomes = list(pool.map(client, range(streams)))
    took = time.time() - begin
    results = [result for ok, _ in outcomes for result in ok]
    errors = [error for _, bad in outcomes for error in bad]
    firsts = sorted(first for first, _ in results if first is not None)
    return {
        "requests": len(results),
        "errors": errors,
        "tokens_per_s": sum(tokens for _, tokens in results) / took,
        "first_token_ms": {q: round(1000 * firsts[min(len(firsts) - 1, int(q / 100 * len(firsts)))]) for q in (50, 90, 99)} if firsts else {},
        "rss_growth_mib": (server.rss_kib() - rss_after_first_fifth.get("kib", server.rss_kib())) / 1024,
    }


def run(args, slots, streams, seconds):
    from server_process import running

    with running("-c", str(1024 * slots), "-np", str(slots), "--metrics", model=args.model) as server:
        report = load(server, streams, seconds)
        busy, rows = metric(server, "n_busy_slots_per_decode"), metric(server, "n_decode_rows_per_decode")
    print(f"-np {slots}, {streams} streams, {seconds} s: {report['requests']} answers, {len(report['errors'])} errors, "
          f"{report['tokens_per_s']:.1f} t/s in all, mean decode batch {rows:.2f} of {busy:.2f} busy slots, "
          f"first token {report['first_token_ms']} ms, RSS {report['rss_growth_mib']:+.1f} MiB after the first fifth")
    for error in report["errors"][:5]:
        print("  error:", error)
    return report, busy, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    os.environ["TANDEM_BIN"] = str(pathlib.Path(args.bin).resolve())
    alone, _, _ = run(args, 1, min(args.streams, 4), max(20, args.seconds // 5))
    many, busy, rows = run(args, args.slots, args.streams, args.seconds)
    print(f"gain over one slot: {many['tokens_per_s'] / alone['tokens_per_s']:.2f}")
    bad = many["errors"] or alone["errors"] or many["rss_growth_mib"] > 16 or rows < 0.8 * busy
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
