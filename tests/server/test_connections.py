"""What happens on the wire: pipelined requests, clients that close half of their connection, Unix sockets, bodies."""

import contextlib
import json
import socket
import time

import httpx
import pytest

from server_process import Server, running

LONG = {"prompt": "The model", "n_predict": 400, "ignore_eos": True, "temperature": 0, "cache_prompt": False}


def address(server):
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def post(path, body, extra=b""):
    body = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (path.encode(), extra, len(body)) + body


def read_all(connection):
    answer = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            answer += part
    return answer


def exchange(server, request, half_close=False, timeout=20):
    """Everything that is answered until the server closes the connection."""
    with socket.create_connection(address(server), timeout=timeout) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def split(answer):
    """The status and the body of one answer that has a length."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head, answer
    return int(head.split()[1]), body


LAST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_requests_sent_in_one_go_are_answered_in_order(server):
    get = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
    tokenize = post("/tokenize", {"content": "one two"})
    answer = exchange(server, get % b"/health" + tokenize + get % b"/v1/models" + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 4
    places = [answer.index(part) for part in (b'"status"', b'"tokens"', b'"object"')]
    assert places == sorted(places) and answer.endswith(b'{"status":"ok"}')


def test_a_request_that_comes_in_pieces_with_the_next_behind_it(server):
    whole = post("/tokenize", {"content": "word " * 5000}) + LAST
    with socket.create_connection(address(server), timeout=20) as connection:
        for begin in range(0, len(whole), 3001):
            connection.sendall(whole[begin:begin + 3001])
            time.sleep(0.005)
        assert read_all(connection).count(b"HTTP/1.1 200 ") == 2


def test_nothing_behind_a_refused_request_is_taken_for_one(server):
    answer = exchange(server, b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" + LAST)
    assert answer.count(b"HTTP/1.1 ") == 1 and b" 404 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize("path,body,status", [("/nowhere", {}, 404), ("/completion", {"prompt": 7}, 400), ("/infill", {}, 501)])
def test_a_client_that_has_finished_sending_gets_the_whole_error(server, path, body, status):
    got, text = split(exchange(server, post(path, body), half_close=True))
    assert got == status and json.loads(text)["error"]["code"] == status


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_finished_sending_gets_its_completion(server, stream):
    answer = exchange(server, post("/completion", {**LONG, "stream": stream}, b"Connection: close\r\n"), half_close=True)
    assert b"HTTP/1.1 200 " in answer and b'"tokens_predicted":400' in answer
    assert "the client has left" not in server.log()


def test_a_range_of_an_answer_is_not_computed_for_nothing(server):
    status, _ = split(exchange(server, post("/tokenize", {"content": "x"}, b"Range: bytes=100000-\r\nConnection: close\r\n")))
    assert status == 200


def test_json_that_claims_to_be_something_else_is_taken(server):
    for claim in ("multipart/form-data", "multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded"):
        response = httpx.post(server.url + "/tokenize", content=b'{"content": "x"}', headers={"Content-Type": claim}, timeout=60)
        assert response.status_code == 200, claim
    form = httpx.post(server.url + "/tokenize", files={"content": b"x"}, timeout=60)
    assert form.status_code == 400 and "JSON" in form.json()["error"]["message"]


def test_a_body_without_a_length_is_411_at_once(server):
    begin = time.monotonic()
    for extra in (b"", b"Connection: close\r\n"):
        status, text = split(exchange(server, b"POST /tokenize HTTP/1.1\r\nHost: x\r\n" + extra + b'\r\n{"content": "x"}'))
        assert status == 411 and "Content-Length" in json.loads(text)["error"]["message"]
    assert time.monotonic() - begin < 4
    # It comes late: nothing of it is taken for a request.
    with socket.create_connection(address(server), timeout=20) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.05)
        connection.sendall(b'{"content": "x"}')
        answer = read_all(connection)
        assert answer.count(b"HTTP/1.1 ") == 1 and split(answer)[0] == 411
    # No body needs no length.
    answer = exchange(server, b"POST /slots/0?action=erase HTTP/1.1\r\nHost: x\r\n\r\n" + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("body, extra, status", [
    (b"", b"Content-Length: 300000000\r\n", 413),
    (b"", b"Transfer-Encoding: gzip, chunked\r\n", 501),
    (b"", b"Content-Length: 9\r\nX-Api-Key: wrong\r\n", 401),
    (b"{}", b"Content-Length: 2\r\nX-Api-Key: right\r\n", 400),
], ids=["too-large", "coded", "no-key", "fine"])
def test_a_client_that_waits_for_a_word_learns_what_its_head_is_refused_for(body, extra, status, guarded):
    head = b"POST /completion HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n"
    answer = exchange(guarded, head + extra + b"\r\n" + body)
    waits = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(waits) == (status == 400)
    answer = answer.removeprefix(waits)
    assert split(answer)[0] == status and b"Access-Control-Allow-Origin: *" in answer and answer.count(b"HTTP/1.1") == 1


@pytest.fixture(scope="module")
def guarded():
    with running("-c", "256", "-np", "1", "--no-warmup", "--api-key", "right") as process:
        yield process


def test_http_1_0_has_no_interim_answers(server):
    answer = exchange(server, post("/tokenize", {"content": "x"}, b"Expect: 100-continue\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert split(answer)[0] == 200


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"chunked, chunked", b"gzip\r\nTransfer-Encoding: chunked"], ids=["list", "twice", "lines"])
def test_a_body_is_taken_apart_from_chunks_only(server, coding):
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %s\r\n\r\n2;a=b\r\n{}\r\n0\r\nX-Trailer: c\r\n\r\n"
    status, body = split(exchange(server, chunked % coding + LAST))
    assert status == 501 and b"from 'Transfer-Encoding: " in body
    assert exchange(server, chunked % b"Chunked" + LAST).count(b"HTTP/1.1 200 ") == 2


def test_a_client_that_stops_in_the_middle_of_a_request_is_let_go_after_the_timeout():
    with running("-c", "512", "-np", "1", "--no-warmup", "--timeout", "1") as server:
        for begun in (b"POST /tokenize HTT", b'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"con'):
            begin = time.monotonic()
            answer = exchange(server, begun)
            assert 0.9 < time.monotonic() - begin < 10 and b" 200 " not in answer
        # It is a bound of silence, not of an answer.
        assert server.post("/tokenize", {"content": "x"}).status_code == 200


@pytest.mark.parametrize("line,cause", [("TRACE /nowhere HTTP/1.1", "'TRACE'"), ("CONNECT x:1 HTTP/1.1", "'CONNECT'"), ("BREW / HTTP/1.1", "'BREW'"),
                                        ("GET /health HTTP/2.0", "'HTTP/2.0'"), ("PRI * HTTP/2.0", "'HTTP/2.0'")])
def test_unknown_methods_and_versions_are_named(server, line, cause):
    status, text = split(exchange(server, line.encode() + b"\r\nHost: x\r\n\r\n"))
    assert status == 400 and cause in json.loads(text)["error"]["message"]


@pytest.mark.parametrize("method,path,allow", [("TRACE", "/health", "GET, HEAD, OPTIONS"), ("DELETE", "/v1/chat/completions", "POST, OPTIONS"),
                                               ("GET", "/completion", "POST, OPTIONS"), ("HEAD", "/completion", "POST, OPTIONS"),
                                               ("POST", "/v1/models", "GET, HEAD, OPTIONS"), ("PUT", "/props", "GET, HEAD, POST, OPTIONS"),
                                               ("PATCH", "/slots/0", "POST, OPTIONS"), ("DELETE", "/", "GET, HEAD, OPTIONS")])
def test_a_path_with_another_method_is_405_and_says_which_it_takes(server, method, path, allow):
    head, _, body = exchange(server, f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ") and f"\r\nAllow: {allow}\r\n".encode() in head
    if method != "HEAD":
        message = json.loads(body)["error"]["message"]
        assert method in message and path in message and allow in message


def connection_headers(answer):
    head = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return sorted(line.decode() for line in head if line.lower().startswith((b"connection:", b"keep-alive:")))


@pytest.mark.parametrize("head", [b"POST /tokenize HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", b"GET /nowhere HTTP/1.1\r\n\r\n",
                                  b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", b"POST /tokenize HTTP/1.1\r\n\r\n{}",
                                  b"GET /health HTTP/1.1\r\nConnection: Close\r\n\r\n", b"GET /health HTTP/1.0\r\n\r\n",
                                  b"GET /health HTTP/1.0\r\nConnection: close\r\n\r\n"], ids=lambda head: head[:60].decode())
def test_the_end_of_a_connection_is_told_once(server, head):
    assert connection_headers(exchange(server, head)) == ["Connection: close"]


def test_http_1_0_is_kept_alive_when_it_asks_and_told_so(server):
    keep = b"GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    answer = exchange(server, keep + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert connection_headers(answer)[0] == "Connection: keep-alive"


@pytest.mark.parametrize("keep", [b"", b"Connection: Keep-Alive\r\n"])
def test_a_stream_over_http_1_0_has_no_chunks_and_ends_with_the_connection(server, keep):
    body = json.dumps({"prompt": "x", "n_predict": 3, "ignore_eos": True, "stream": True}).encode()
    answer = exchange(server, b"POST /completion HTTP/1.0\r\n%sContent-Length: %d\r\n\r\n" % (keep, len(body)) + body)
    head, _, events = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head and connection_headers(answer) == ["Connection: close"]
    assert events.startswith(b"data: {") and json.loads(events.split(b"data: ")[-1])["tokens_predicted"] == 3


def test_the_whole_address_may_stand_in_the_request_line(server):
    answer = exchange(server, b"GET http://example.org/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert split(answer) == (200, b'{"status":"ok"}')


def test_api_chat_is_the_chat(server):
    answer = server.post("/api/chat", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
    assert answer.status_code == 200 and answer.json()["object"] == "chat.completion"


def over(path, request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(request)
        return read_all(connection)


def wait_for_socket(server, path):
    deadline = time.time() + 60
    while time.time() < deadline and server.process.poll() is None:
        with contextlib.suppress(OSError):
            if b" 200 " in over(path, LAST):
                return
        time.sleep(0.05)
    raise AssertionError(server.log())


def test_a_unix_socket(tmp_path):
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as left_over:  # of a server that was killed
        left_over.bind(str(path))
    server = Server("-c", "512", "-np", "1", "--host", path)
    try:
        wait_for_socket(server, path)
        assert f"server is listening on {path} " in server.log()
        page = over(path, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").decode()
        assert f"curl --unix-socket {path} http://localhost/v1/chat/completions" in page
        status, body = split(over(path, post("/completion", {"prompt": "x", "n_predict": 2}, b"Connection: close\r\n")))
        assert status == 200 and json.loads(body)["tokens_predicted"] == 2
        second = Server("-c", "512", "-np", "1", "--host", path)
        assert second.process.wait(60) == 1 and "another server listens there" in second.log()
        assert b" 200 " in over(path, LAST)
    finally:
        assert server.stop() == 0
    assert not path.exists()
    path.write_text("precious")
    refused = Server("-c", "512", "-np", "1", "--host", path)
    assert refused.process.wait(60) == 1 and "is no socket" in refused.log() and path.read_text() == "precious"


@pytest.mark.parametrize("begin", [b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"GET /health HTTP/1.1\r\nHo"])
def test_a_request_that_does_not_end_is_408(begin):
    with running("-c", "512", "-np", "1", "--timeout", "1") as server:
        status, body = split(exchange(server, begin))
        assert status == 408 and "--timeout" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("host,cause", [("nosuchhost.invalid", "the name cannot be resolved"), ("192.0.2.1", "the address is not of this machine")])
def test_why_an_address_cannot_be_listened_on(host, cause):
    server = Server("--host", host)
    assert server.process.wait(60) == 1
    assert cause in server.log() and "the port is in use" not in server.log()


def test_connections_are_closed_only_behind_errors():
    with running("-c", "512", "-np", "1") as server, socket.create_connection(address(server), timeout=20) as connection:
        for _ in range(3):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b'{"status":"ok"}' in connection.recv(65536)
