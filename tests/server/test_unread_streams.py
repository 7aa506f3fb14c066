"""A client that does not read its stream holds up its own answer, and not the memory or the others."""

import contextlib
import json
import re
import socket
import time

from server_process import running

# Events of some kilobytes, so that the buffers of the connection are soon full.
ENDLESS = {"prompt": "The model", "n_predict": 1_000_000_000, "ignore_eos": True, "temperature": 0, "stream": True, "n_probs": 64}
FLAGS = ("-c", "1024", "-np", "2", "--context-shift", "--slots", "--no-warmup")


@contextlib.contextmanager
def unread_stream(server):
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps(ENDLESS).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect((host, int(port)))
        connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        yield connection


def n_decoded(server):
    """Of the slots that are busy, together."""
    return sum(slot["next_token"][0]["n_decoded"] for slot in server.get("/slots").json() if slot["is_processing"])


def wait_until_it_waits(server, seconds=180):
    """Until the number of tokens has stayed the same for two seconds."""
    deadline, readings = time.time() + seconds, []
    while time.time() < deadline:
        readings = [*readings[-4:], n_decoded(server)]
        if len(readings) == 5 and readings[0] > 0 and len(set(readings)) == 1:
            return readings[0]
        time.sleep(0.5)  # several of the intervals in which the state of slots is published
    raise AssertionError(f"{readings[-1]} tokens and more are generated for a client that reads none")


def test_an_answer_waits_for_its_reader_and_goes_on_with_the_next_token():
    with running(*FLAGS) as server, unread_stream(server) as connection:
        stopped_at = wait_until_it_waits(server)
        # The other slot is free for others, whose prompts and answers are computed meanwhile.
        answer = server.post("/completion", {"prompt": "another " * 20, "n_predict": 20, "ignore_eos": True}).json()
        assert answer["tokens_predicted"] == 20
        assert n_decoded(server) == stopped_at

        data, counts = b"", []
        while not counts or counts[-1] < stopped_at + 50:
            part = connection.recv(1 << 20)
            assert part, data[-500:]
            data += part
            counts = [int(n) for n in re.findall(rb'"tokens_predicted":(\d+)', data)]
        # No token is lost; one that ends inside a character has no event of its own.
        assert counts == sorted(set(counts)) and max(b - a for a, b in zip(counts, counts[1:])) <= 4


def test_a_reader_that_stays_away_for_longer_than_the_timeout_is_given_up():
    with running(*FLAGS, "--timeout", "1") as server, unread_stream(server):
        deadline = time.time() + 20
        while server.busy_slots() == 0:
            assert time.time() < deadline
        server.wait_until_idle(180)
        assert "has not read its stream for 1 s (--timeout)" in server.log()
        assert server.post("/completion", {"prompt": "x", "n_predict": 2}).status_code == 200
