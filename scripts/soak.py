#!/usr/bin/env python3
"""Loads a llama-server of its own with streams for a while and says what it did: lost requests, tokens per second, batch, latency, memory.

    scripts/soak.py MODEL [--seconds 300] [--streams 64] [--slots 8] [--bin build/bin] [--server-cpus 0,1 --client-cpus 2-15] [-- server flags]

The same machine is first asked with one slot. Needs nothing but Python's standard library. Ends with 1 when a request was lost, when memory grew
after the first fifth, when the decode batch was below 0.8 of the busy slots or the gain over one slot below --least-gain.
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "server"))

PROMPTS = ["Tell me about the sea.", "What is a prime number?", "Write a line about rain.", "Name three animals and say why you like them."]
N_PREDICT = 64
RSS_GROWTH_MIB = 16  # more than a page cache of the allocator: a leak


def body_of(i):
    return {"messages": [{"role": "user", "content": PROMPTS[i % len(PROMPTS)]}], "max_tokens": N_PREDICT, "stream": True, "seed": i,
            "stream_options": {"include_usage": True}}


class Connection:
    """One kept-alive HTTP/1.1 connection; a client library would cost more time than the server that it measures."""

    def __init__(self, url):
        self.host, self.port = urllib.parse.urlsplit(url).netloc.split(":")
        self.reader = self.writer = None

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def open(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, int(self.port))

    async def post(self, path, body):
        """Sends; returns the answer's headers in lower case."""
        await self.open()
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        status = await self.reader.readline()
        headers = {}
        while (line := (await self.reader.readline()).strip()):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip().lower()
        if b" 200 " not in status:
            raise RuntimeError((status + await self.reader.read(int(headers.get("content-length", 0)))).decode(errors="replace"))
        return headers

    async def events(self):
        """The events of a chunked body, without their 'data: '."""
        pending = b""
        while (size := int(await self.reader.readline(), 16)) > 0:
            pending += (await self.reader.readexactly(size + 2))[:-2]
            *whole, pending = pending.split(b"\n\n")
            for event in whole:
                if event.startswith(b"data: "):
                    yield event[6:]
        await self.reader.readline()


async def one_stream(connection, i):
    """One request; returns (seconds to the first token, tokens)."""
    begin = time.monotonic()
    first, tokens, done = None, 0, False
    headers = await connection.post("/v1/chat/completions", body_of(i))
    async for data in connection.events():
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
        elif first is None and event["choices"] and event["choices"][0]["delta"].get("content"):
            first = time.monotonic() - begin
    if headers.get("connection") == "close":
        connection.close()
    if not done or tokens == 0:
        raise RuntimeError("the stream ended early")
    return first, tokens


async def client(url, i, end, results, errors):
    connection = Connection(url)
    n = 0
    while time.monotonic() < end:
        try:
            results.append(await asyncio.wait_for(one_stream(connection, i * 1000 + n), 600))
        except Exception as error:  # noqa: BLE001: every kind of failure is a lost request
            errors.append(repr(error))
            connection.close()
            await asyncio.sleep(0.1)
        n += 1
    connection.close()


async def watch_memory(server, begin, seconds, samples):
    while time.monotonic() < begin + seconds:
        samples.append((time.monotonic() - begin, server.rss_kib() / 1024))
        await asyncio.sleep(min(1.0, seconds / 20))


async def load(server, streams, seconds):
    begin = time.monotonic()
    results, errors, samples = [], [], []
    watcher = asyncio.create_task(watch_memory(server, begin, seconds, samples))
    await asyncio.gather(*(client(server.url, i, begin + seconds, results, errors) for i in range(streams)))
    took = time.monotonic() - begin
    await watcher
    firsts = sorted(first for first, _ in results if first is not None)
    early = max(mib for at, mib in samples if at <= seconds / 5)
    late = max(mib for at, mib in samples if at > seconds / 5)
    return {
        "requests": len(results),
        "errors": errors,
        "tokens_per_s": sum(tokens for _, tokens in results) / took,
        "first_token_ms": {q: round(1000 * firsts[min(len(firsts) - 1, int(q / 100 * len(firsts)))]) for q in (50, 90, 99, 100)} if firsts else {},
        "rss_mib": late,
        "rss_growth_mib": late - early,
    }


def metric(server, name):
    text = urllib.request.urlopen(server.url + "/metrics", timeout=60).read().decode()
    return float(re.search(rf"(?m)^llamacpp:{name} (\S+)$", text).group(1))


def cpu_list(text):
    cpus = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def run(args, slots, streams, seconds):
    from server_process import running

    if args.server_cpus:
        os.sched_setaffinity(0, args.server_cpus)  # the server inherits it
    with running("-c", str(1024 * slots), "-np", str(slots), "--metrics", *args.flags, model=args.model) as server:
        if args.client_cpus:
            os.sched_setaffinity(0, args.client_cpus)
        report = asyncio.run(load(server, streams, seconds))
        busy, rows = metric(server, "n_busy_slots_per_decode"), metric(server, "n_decode_rows_per_decode")
    print(f"-np {slots}, {streams} streams, {seconds} s: {report['requests']} answers, {len(report['errors'])} errors, "
          f"{report['tokens_per_s']:.1f} t/s in all, mean decode batch {rows:.2f} of {busy:.2f} busy slots, "
          f"first token {report['first_token_ms']} ms, RSS {report['rss_mib']:.1f} MiB, {report['rss_growth_mib']:+.1f} MiB after the first fifth",
          flush=True)
    for error in report["errors"][:5]:
        print("  error:", error)
    return report, busy, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--alone-seconds", type=int, help="how long one slot is measured (a fifth of --seconds, at least 20)")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--least-gain", type=float, default=0.0, help="fail below this gain over one slot (0: only report it)")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--server-cpus", type=cpu_list, help="cores for the server, as 0,1 or 0-3")
    parser.add_argument("--client-cpus", type=cpu_list, help="cores for the load")
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    args = parser.parse_args(arguments[:cut])
    args.flags = arguments[cut + 1:]
    os.environ["TANDEM_BIN"] = str(pathlib.Path(args.bin).resolve())
    alone, _, _ = run(args, 1, min(args.streams, 4), args.alone_seconds or max(20, args.seconds // 5))
    many, busy, rows = run(args, args.slots, args.streams, args.seconds)
    gain = many["tokens_per_s"] / alone["tokens_per_s"]
    print(f"gain over one slot: {gain:.2f}")
    bad = many["errors"] or alone["errors"] or many["rss_growth_mib"] > RSS_GROWTH_MIB or rows < 0.8 * busy or gain < args.least_gain
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
