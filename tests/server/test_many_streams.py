"""More streams than slots, more connections than threads: everybody gets a turn, in the order of asking."""

import concurrent.futures
import contextlib
import json
import re
import socket
import time

import httpx
import pytest

from server_process import running

ENDLESS = {"prompt": "The model", "n_predict": 1_000_000_000, "ignore_eos": True, "temperature": 0, "stream": True}
SHORT = {"n_predict": 2, "ignore_eos": True, "temperature": 0, "stream": True}


@pytest.fixture(scope="module")
def one_slot():
    # So many threads at rest that a burst of connections arrives before they have woken up.
    with running("-c", "512", "-np", "1", "--context-shift", "--metrics", "--threads-http", "32", "--no-warmup") as server:
        yield server


def n_deferred(server):
    return int(re.search(r"(?m)^llamacpp:requests_deferred (\d+)$", server.get("/metrics").text).group(1))


def wait_for_deferred(server, n, seconds=20):
    deadline = time.time() + seconds
    while n_deferred(server) != n:
        assert time.time() < deadline, f"{n_deferred(server)} requests wait for the slot, not {n}: the others wait for a thread"
        time.sleep(0.02)


@contextlib.contextmanager
def busy_slot(server):
    """An answer that does not end before the block does."""
    with httpx.Client(timeout=60) as client, client.stream("POST", server.url + "/completion", json=ENDLESS) as response:
        lines = response.iter_lines()  # held: the connection is closed with it
        next(lines)
        yield


class Stream:
    """A connection that is made at once; the request follows when asked for."""

    def __init__(self, server):
        self.connection = socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=60)

    def ask(self, i):
        body = json.dumps({**SHORT, "prompt": f"client {i}"}).encode()
        self.connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def answer(self):
        """The last event; the connection stays open, as clients keep it."""
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            part = self.connection.recv(65536)
            assert part, data
            data += part
        assert data.startswith(b"HTTP/1.1 200 "), data
        return json.loads(re.findall(rb"data: (\{.*\})", data)[-1])


def test_waiting_streams_reach_the_queue_at_once_and_are_served_in_their_order(one_slot):
    n_in_order, n_burst = 4, 60
    with busy_slot(one_slot):
        begun = len(one_slot.log())
        streams = []
        for i in range(n_in_order):
            streams.append(Stream(one_slot))
            streams[-1].ask(i)
            wait_for_deferred(one_slot, i + 1)
        # All at once: none may be left behind in the HTTP library until another connection is closed.
        burst = [Stream(one_slot) for _ in range(n_burst)]
        for i, stream in enumerate(burst):
            stream.ask(n_in_order + i)
        wait_for_deferred(one_slot, n_in_order + n_burst)
        assert one_slot.get("/health").status_code == 200
    for stream in streams + burst:
        assert stream.answer()["tokens_predicted"] == 2
    # Task numbers are given in the order in which requests arrive.
    tasks = [int(task) for task in re.findall(r"task (\d+): +total time", one_slot.log()[begun:])]
    assert len(tasks) == n_in_order + n_burst and tasks == sorted(tasks)
    for stream in streams + burst:
        stream.connection.close()


def test_idle_connections_hold_up_nobody(one_slot):
    address = one_slot.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(50)]
        for connection in idle:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        for connection in idle:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        begin = time.time()
        assert one_slot.get("/health").status_code == 200
        assert time.time() - begin < 4  # kept-alive connections are given up after 5 s


def test_kept_alive_clients_take_turns(one_slot):
    """Eight clients with one connection each ask again and again: their numbers of answers stay close."""
    end = time.time() + 3

    def client(i):
        n = 0
        with httpx.Client(timeout=60) as http:
            while time.time() < end:
                answer = http.post(one_slot.url + "/completion", json={**SHORT, "prompt": f"client {i}", "stream": False})
                assert answer.status_code == 200
                n += 1
        return n

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(client, range(8)))
    assert min(counts) > 0 and max(counts) <= 3 * min(counts) + 3, counts
