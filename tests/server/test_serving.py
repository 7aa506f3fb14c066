"""Start, stop, keys, CORS, cancellation, many clients at once."""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import time

import httpx
import pytest

from server_process import TINY_MODEL, Server, running

LONG = {"prompt": "The model", "n_predict": 400, "ignore_eos": True, "temperature": 0, "cache_prompt": False}


def test_a_client_that_leaves_frees_its_slot():
    # With context shift the answer never ends by itself, however fast the machine is.
    endless = {**LONG, "n_predict": 1_000_000_000}
    with running("-c", "512", "-np", "1", "--context-shift") as server:
        for stream in (True, False):
            with httpx.Client(timeout=60) as client:
                if stream:
                    with client.stream("POST", server.url + "/completion", json={**endless, "stream": True}) as response:
                        next(response.iter_lines())
                else:
                    with pytest.raises(httpx.ReadTimeout):
                        client.post(server.url + "/completion", json=endless, timeout=0.3)
            server.wait_until_idle(seconds=2)


def test_a_stream_that_waits_has_its_header_and_comments_after_each_interval():
    with running("-c", "512", "-np", "1", "--context-shift", "--sse-ping-interval", "1") as server:
        with httpx.Client(timeout=60) as client, contextlib.ExitStack() as stack:
            busy = stack.enter_context(client.stream("POST", server.url + "/completion",
                                                     json={**LONG, "n_predict": 1_000_000_000, "stream": True}))
            busy_lines = busy.iter_lines()  # whose end would close the stream
            next(busy_lines)
            begin = time.monotonic()
            waiting = stack.enter_context(client.stream("POST", server.url + "/completion", json={**LONG, "n_predict": 2, "stream": True}))
            assert waiting.status_code == 200 and waiting.headers["content-type"].startswith("text/event-stream")
            lines = waiting.iter_lines()
            assert [next(lines) for _ in range(6)] == [":", ""] * 3
            assert 2.5 < time.monotonic() - begin < 15
            # What can be seen at once is an ordinary error, busy or not.
            assert server.post("/completion", {"prompt": "word " * 2000, "stream": True}).status_code == 400
            busy.close()
            rest = [line for line in lines if line.startswith("data: ")]
            assert json.loads(rest[-1].removeprefix("data: "))["tokens_predicted"] == 2


def test_more_streams_than_slots_all_finish(server):
    def one(i):
        events = list(server.events("/completion", {"prompt": f"client {i}", "n_predict": 30, "ignore_eos": True, "stream": True}))
        return events[-1]["tokens_predicted"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(16))) == [30] * 16
    assert server.busy_slots() == 0


def test_prompts_that_wait_start_as_soon_as_slots_are_free():
    # All slots of a step end together; were the rest to wait for a clock, 300 prompts would take half a minute.
    with running("-c", "512", "-np", "2") as server:
        answers = httpx.post(server.url + "/completion", json={"prompt": ["a"] * 300, "n_predict": 1}, timeout=20).json()
        assert [answer["tokens_predicted"] for answer in answers] == [1] * 300


def test_a_slot_is_busy_from_the_first_step_of_its_prompt_on():
    with running("-c", "8192", "-b", "8192", "-np", "1", "--slots", "--no-warmup") as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.post, "/completion", {"prompt": [5] * 8000, "n_predict": 1})
            while not (slot := server.get("/slots").json()[0])["is_processing"] and not answer.done():
                time.sleep(0.001)
            assert (slot["is_processing"], slot["n_prompt_tokens"], slot["n_prompt_tokens_processed"]) == (True, 8000, 0)
            assert answer.result().status_code == 200


def test_batched_answers_equal_lone_ones(server):
    def one(i):
        return server.post("/completion", {"prompt": f"number {i} of", "n_predict": 12, "temperature": 0, "cache_prompt": False}).json()["content"]

    alone = [one(i) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == alone


def test_metrics_count_what_crosses_each_link():
    flags = ("-c", "512", "-np", "1", "--metrics", "--sched-report", "--sim-device", "CUDA0:256MiB", "--sim-device", "CUDA1:256MiB")
    with running(*flags, "-ngl", "2", "-ts", "0,1", "-ot", r"blk\.1\.ffn=CPU") as server:

        def link(name):
            found = re.findall(rf'(?m)^llamacpp:link_{name}_total{{device="(\w+)",direction="(in|out)"}} (\d+)$', server.get("/metrics").text)
            return {(device, direction): int(value) for device, direction, value in found}

        before = link("bytes")
        assert sorted(before) == [("CUDA0", "in"), ("CUDA0", "out"), ("CUDA1", "in"), ("CUDA1", "out")]
        server.post("/completion", {"prompt": "The model", "n_predict": 8, "ignore_eos": True})
        server.wait_until_idle(seconds=5)
        after = link("bytes")
        assert after["CUDA0", "in"] == after["CUDA0", "out"] == 0
        for direction in ("in", "out"):
            assert after["CUDA1", direction] > before["CUDA1", direction]
            assert link("copies")["CUDA1", direction] >= 8
        server.stop()
        assert "sched decode: " in server.log()


def test_keys():
    with running("-c", "512", "-np", "1", "--api-key", "secret,other") as server:
        assert server.get("/health").status_code == 200
        assert server.get("/v1/models").status_code == 200
        body = {"prompt": "x", "n_predict": 1}
        refused = server.post("/completion", body)
        assert refused.status_code == 401
        assert refused.json()["error"] == {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}
        assert server.get("/slots").status_code == 401
        assert server.post("/completion", body, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert server.post("/completion", body, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert server.post("/completion", body, headers={"X-Api-Key": "other"}).status_code == 200


def test_cors(server):
    response = httpx.options(server.url + "/v1/chat/completions", headers={"Origin": "http://example.org"})
    assert response.status_code == 200 and response.text == ""
    assert response.headers["access-control-allow-origin"] == "http://example.org"
    assert response.headers["access-control-allow-credentials"] == "true"
    assert response.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert response.headers["access-control-allow-headers"] == "*"
    assert server.get("/health").headers["server"] == "llama.cpp"


def test_alias_prefix_and_switched_off_endpoints():
    with running("-c", "512", "-np", "1", "--alias", "zeta,tiny", "--no-slots") as server:
        assert server.get("/v1/models").json()["data"][0]["id"] == "tiny"
        assert server.get("/slots").status_code == 501
        assert server.get("/metrics").status_code == 501
        assert server.post("/props", {}).status_code == 501
        assert server.post("/completion", {"prompt": "x", "n_predict": 1}).json()["model"] == "tiny"


def test_the_prefix_stands_in_front_of_static_files_too(tmp_path):
    (tmp_path / "page.html").write_text("<h1>mine</h1>")
    with running("-c", "512", "-np", "1", "--api-prefix", "/api", "--path", str(tmp_path)) as server:
        assert server.get("/api/page.html").text == "<h1>mine</h1>"
        assert server.get("/page.html").status_code == 404
        assert server.get("/api/props").status_code == 200


def test_a_full_context_ends_the_answer_as_truncated():
    with running("-c", "128", "-np", "1") as server:
        answer = server.post("/completion", {**LONG, "n_predict": -1}).json()
        assert answer["stop_type"] == "limit" and answer["truncated"] is True
        assert answer["tokens_cached"] + 1 >= 128


def test_context_shift_goes_on():
    with running("-c", "128", "-np", "1", "--context-shift") as server:
        answer = server.post("/completion", {**LONG, "n_predict": 300}).json()
        assert answer["tokens_predicted"] == 300 and answer["truncated"] is True


def test_a_taken_port_is_one_clear_error(server):
    port = server.url.rsplit(":", 1)[1]
    other = Server("--port", port)
    assert other.process.wait(30) == 1
    assert f"cannot listen on 127.0.0.1 port {port}: the port is in use" in other.log()


def test_a_missing_or_broken_model_is_one_clear_error(tmp_path):
    missing = Server(model=tmp_path / "nowhere.gguf")
    assert missing.process.wait(30) == 1 and "nowhere.gguf" in missing.log()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 100)
    refused = Server(model=broken)
    assert refused.process.wait(30) == 1 and "broken.gguf" in refused.log()


def test_every_slot_can_be_filled_when_the_context_does_not_divide():
    with running("-c", "100", "-np", "3", "--no-warmup") as server, concurrent.futures.ThreadPoolExecutor(6) as pool:
        n_ctx = server.get("/slots").json()[0]["n_ctx"]
        assert n_ctx == 64  # 100 / 3, rounded up to a whole block
        answers = list(pool.map(lambda i: server.post("/completion", {**LONG, "prompt": f"{i}"}), range(6)))
        assert [answer.status_code for answer in answers] == [200] * 6, answers[0].text
        assert all(answer.json()["truncated"] for answer in answers)


def wait_until_busy(server, answer):
    deadline = time.time() + 10
    while server.busy_slots() == 0 and not answer.done() and time.time() < deadline:
        time.sleep(0.01)


def test_stopping_lets_running_answers_end():
    server = Server("-c", "1024", "-np", "2").wait()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, "/completion", {**LONG, "n_predict": 200})
        wait_until_busy(server, answer)
        server.process.send_signal(signal.SIGTERM)
        assert answer.result().json()["tokens_predicted"] == 200
    assert server.process.wait(30) == 0


def test_stopping_lets_running_streams_end_and_a_second_signal_tells_them():
    server = Server("-c", "1024", "-np", "2").wait()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        events = pool.submit(lambda: list(server.events("/completion", {**LONG, "n_predict": 200, "stream": True})))
        wait_until_busy(server, events)
        server.process.send_signal(signal.SIGTERM)
        assert events.result()[-1]["tokens_predicted"] == 200
    assert server.process.wait(30) == 0

    server = Server("-c", "1000000", "-np", "1").wait()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        events = pool.submit(lambda: list(server.events("/completion", {**LONG, "n_predict": -1, "stream": True})))
        wait_until_busy(server, events)
        server.process.send_signal(signal.SIGTERM)
        while server.get("/health").status_code != 503:  # who balances load shall send no more
            assert not events.done()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert events.result()[-1]["error"]["type"] == "unavailable_error"


def test_a_model_file_that_becomes_shorter_ends_the_server_with_a_reason(tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(TINY_MODEL, model)
    server = Server("-c", "512", "-np", "1", model=model).wait()
    os.truncate(model, 8192)
    with pytest.raises(httpx.HTTPError):
        server.post("/completion", {"prompt": "x", "n_predict": 1})
    assert server.process.wait(30) == -signal.SIGBUS and "has become shorter" in server.log()


def test_stopping_at_once_answers_everybody_in_full():
    endless = {**LONG, "n_predict": -1}
    server = Server("-c", "1000000", "-np", "2").wait()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        # Two of the six run, the others wait for a slot; a stream that waits has not begun.
        whole = [pool.submit(server.post, "/completion", endless) for _ in range(3)]
        streams = [pool.submit(server.post, "/v1/completions", {**endless, "stream": True}) for _ in range(3)]
        deadline = time.time() + 10
        while server.busy_slots() < 2 and time.time() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        for answer in [one.result() for one in whole]:
            assert answer.status_code == 503 and answer.json()["error"]["type"] == "unavailable_error"
        for answer in [one.result() for one in streams]:  # httpx raises an error for one that ends before its time
            assert answer.status_code in (200, 503) and "the server is shutting down" in answer.text
    assert server.process.wait(30) == 0
    assert time.monotonic() - begin < 10
    assert "the client has left" not in server.log()


def test_a_connection_that_does_not_end_cannot_hold_the_server():
    server = Server("-c", "512", "-np", "1").wait()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as idle, socket.create_connection((host, int(port)), timeout=10) as slow:
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0


def test_a_signal_while_the_model_is_loaded_is_not_left_lying():
    server = Server("-c", "512", "-np", "1")
    deadline = time.time() + 30
    while "listening on" not in server.log() and server.process.poll() is None and time.time() < deadline:
        time.sleep(0.002)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    # It is a small model, which may have been there already.
    assert "stopped while the model was being loaded" in server.log() or "stopping: " in server.log()


def test_sixteen_clients_for_a_minute_lose_nothing_and_memory_stays(server):
    """Mixed requests, some of whose clients leave; the soak of five minutes is scripts/soak.py."""
    seconds = 60
    end = time.time() + seconds
    half = {}

    def work():
        """Rows that decoded and slots that were busy, added up over all steps."""
        text = server.get("/metrics").text
        steps, rows, busy = (float(re.search(rf"(?m)^llamacpp:{name} (\S+)$", text).group(1))
                             for name in ("n_decode_total", "n_decode_rows_per_decode", "n_busy_slots_per_decode"))
        return steps * rows, steps * busy

    rows_before, busy_before = work()

    def client(i):
        n = 0
        with httpx.Client(timeout=60) as http:
            while time.time() < end:
                body = {"prompt": f"client {i} asks {n % 7} " * 5, "n_predict": 20, "ignore_eos": True, "stream": n % 2 == 0}
                if n % 10 == 9:
                    with http.stream("POST", server.url + "/completion", json={**body, "stream": True}) as response:
                        next(response.iter_lines())
                elif body["stream"]:
                    with http.stream("POST", server.url + "/completion", json=body) as response:
                        lines = list(response.iter_lines())
                        assert response.status_code == 200, lines
                        last = [json.loads(line[6:]) for line in lines if line.startswith("data: ")][-1]
                        assert last["stop"] and last["tokens_predicted"] == 20
                else:
                    answer = http.post(server.url + "/completion", json=body)
                    assert answer.status_code == 200, answer.text
                    assert answer.json()["tokens_predicted"] == 20
                n += 1
                if time.time() > end - seconds / 2:
                    half.setdefault("rss", server.rss_kib())
        return n

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counts = list(pool.map(client, range(16)))
    assert min(counts) > 0
    server.wait_until_idle()
    assert server.rss_kib() - half["rss"] < 16 * 1024
    rows, busy = work()
    assert rows - rows_before >= 0.8 * (busy - busy_before), "slots that are busy decode together"
