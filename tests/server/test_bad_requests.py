"""Whatever a client sends costs its own request only."""

import contextlib
import json
import resource
import socket
import time

import httpx
import pytest

from server_process import running

PROMPT = {"prompt": "the next token", "n_predict": 2}

BAD_BODIES = [
    ("not json", b"{"),
    ("empty", b""),
    ("no object", b"[1, 2]"),
    ("text", b"\"hello\""),
    ("invalid utf-8", b"{\"prompt\": \"\xff\xfe\"}"),
    ("deep nesting", b"[" * 100000),
    ("deep nesting inside", b"{\"prompt\": " + b"[" * 600 + b"]" * 600 + b"}"),
    ("trailing text", b"{\"prompt\": \"x\"} y"),
]


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"])
@pytest.mark.parametrize("body", [body for _, body in BAD_BODIES], ids=[name for name, _ in BAD_BODIES])
def test_malformed_bodies_are_400(server, path, body):
    response = httpx.post(server.url + path, content=body, headers={"Content-Type": "application/json"}, timeout=60)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == 400 and error["type"] == "invalid_request_error" and error["message"]


BAD_FIELDS = [
    ({"n_predict": "many"}, "n_predict"),
    ({"n_predict": -5}, "n_predict"),
    ({"n_predict": 1e300}, "n_predict"),
    ({"n_predict": 99999999999999999999}, "n_predict"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": [1]}, "temperature"),
    ({"top_k": 1.5}, "top_k"),
    ({"top_p": -0.1}, "top_p"),
    ({"repeat_last_n": -2}, "repeat_last_n"),
    ({"stop": 5}, "stop"),
    ({"stop": [5]}, "stop"),
    ({"stream": "yes"}, "stream"),
    ({"seed": "x"}, "seed"),
    ({"n_probs": -1}, "n_probs"),
    ({"n_probs": 100000}, "n_probs"),
    ({"logit_bias": [[1]]}, "logit_bias"),
    ({"logit_bias": [[99999, 1.0]]}, "logit_bias"),
    ({"logit_bias": 3}, "logit_bias"),
    ({"n_cmpl": 99}, "n_cmpl"),
    ({"id_slot": 99}, "id_slot"),
    ({"samplers": [1]}, "samplers"),
    ({"samplers": {}}, "samplers"),
    ({"samplers": ["top_k"] * 17}, "Field 'samplers': 17 samplers, one request may have 16"),
    ({"top_k": -2147483648}, "from -2147483647 to 2147483647"),
    ({"grammar": "root ::= \u0000 x"}, "line 1, column 10: unexpected the character U+0000"),
    ({"stream_options": {"include_usage": 5}}, "stream_options.include_usage"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [-1]}, "Prompt"),
    ({"prompt": [288]}, "Prompt"),
    ({"prompt": {"no": 1}}, "prompt"),
    ({"prompt": 7}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"stream_options": 4}, "stream_options"),
    ({"logprobs": "x"}, "logprobs"),
    ({"logprobs": []}, "logprobs"),
    ({"logprobs": {}}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"model": 5}, "model"),
    ({"model": {}}, "model"),
    ({"user": []}, "user"),
    ({"verbose": "yes"}, "verbose"),
    ({"dry_sequence_breakers": []}, "dry_sequence_breakers"),
    # Lists have a length that a request may have, or as many entries as the vocabulary.
    ({"dry_sequence_breakers": [str(i) for i in range(1025)]}, "1025 strings, one request may have 1024"),
    ({"stop": [str(i) for i in range(1025)]}, "1025 strings"),
    ({"stop": ["a" * 65537]}, "65537 bytes"),
    ({"response_fields": ["a"] * 1025}, "1025 strings"),
    ({"samplers": ["nobody"] * 65}, "65 names"),
    ({"samplers": "?" * 65}, "65 letters"),
    ({"logit_bias": [[5, 1.0]] * 1000}, "1000 entries"),
    ({"logit_bias": {f"{i} ": 1.0 for i in range(1000)}}, "1000 entries"),
    ({"logit_bias": {"a b c " * 10000: 1.0}}, "tokens, one request may have 288"),
    ({"prompt": ["x"] * 2048, "grammar": "root ::= \"a\" #" + "a" * 200_000}, "2048 answers that each repeat 200018 bytes"),
]


@pytest.mark.parametrize("fields,named", BAD_FIELDS, ids=[str(fields)[:60] for fields, _ in BAD_FIELDS])
def test_bad_fields_are_400_and_named(server, fields, named):
    response = server.post("/completion", {**PROMPT, **fields})
    assert response.status_code == 400, response.text
    assert named in response.json()["error"]["message"]


@pytest.mark.parametrize("fields,named", [({"logprobs": "x"}, "logprobs"), ({"logprobs": []}, "logprobs"), ({"model": 5}, "model"),
                                          ({"chat_template_kwargs": {str(i): 0 for i in range(1025)}}, "chat_template_kwargs")],
                         ids=["text", "list", "model", "many members"])
def test_bad_fields_of_chats_are_400_and_named(server, fields, named):
    response = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields})
    assert response.status_code == 400 and named in response.json()["error"]["message"], response.text


@pytest.mark.parametrize("fields,named", [({"echo": True}, "echo"), ({"echo": "x"}, "echo"), ({"best_of": 2}, "best_of"),
                                          ({"best_of": 3, "n": 2}, "best_of"), ({"suffix": "end"}, "suffix"), ({"suffix": 5}, "suffix")],
                         ids=str)
def test_what_text_completion_cannot_do_is_400_and_named(server, fields, named):
    response = server.post("/v1/completions", {**PROMPT, **fields})
    assert response.status_code == 400 and f"'{named}'" in response.json()["error"]["message"], response.text


def test_the_same_fields_without_a_wish_are_fine(server):
    response = server.post("/v1/completions", {**PROMPT, "echo": False, "best_of": 2, "n": 2, "suffix": "", "logprobs": False, "user": "me"})
    assert response.status_code == 200 and len(response.json()["choices"]) == 2, response.text


@pytest.mark.parametrize("messages", [None, [], "hello", [5], [{}], [{"role": "user"}], [{"role": 5, "content": "x"}],
                                      [{"role": "user", "content": 7}], [{"role": "user", "content": [{"type": "poem"}]}],
                                      [{"role": "user", "content": [5]}]], ids=str)
def test_bad_messages_are_400(server, messages):
    response = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})
    assert response.status_code == 400, response.text


@pytest.mark.parametrize("member", ["name", "tool_call_id", "reasoning_content"])
def test_a_member_of_a_message_that_is_no_text_is_400_and_named(server, member):
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", member: 5}]
    response = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})
    assert response.status_code == 400 and member in response.json()["error"]["message"], response.text


def test_a_last_message_full_of_null_is_continued(server):
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "reasoning_content": None, "tool_calls": None}]
    assert server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2}).status_code == 200


def test_the_longest_lists_hold_nobody_up(server):
    started = time.monotonic()
    fields = {"dry_multiplier": 1.0, "dry_sequence_breakers": [f"breaker {i}" for i in range(1024)],
              "stop": [f"stop {i}" for i in range(1024)], "logit_bias": [[i, 0.0] for i in range(280)]}
    assert server.post("/completion", {**PROMPT, **fields}).status_code == 200
    assert time.monotonic() - started < 5


def test_a_syntax_error_is_told_with_its_place_and_in_our_words(server):
    response = httpx.post(server.url + "/completion", content=b'{"prompt": "x",\n bad: 1}', timeout=60)
    message = response.json()["error"]["message"]
    assert "the body is not valid JSON: line 2, column 2 (byte 18 of 24): a key in double quotes was expected, got 'bad'" in message
    assert "parse_error" not in message and "json.exception" not in message


def test_objects_of_many_members_take_no_more_time_than_others(server):
    """A key that is looked for among all the others makes minutes of a megabyte."""
    many = ",".join(f'"key {i}":0' for i in range(200_000))
    started = time.monotonic()
    response = httpx.post(server.url + "/completion", content=f'{{{many},"prompt":"x","n_predict":1}}', timeout=60)
    assert response.status_code == 200
    body = f'{{"messages":[{{"role":"user","content":"x"}}],"max_tokens":1,"chat_template_kwargs":{{{many}}}}}'
    response = httpx.post(server.url + "/v1/chat/completions", content=body, timeout=60)
    assert response.status_code == 400 and "200000 members, one request may have 1024" in response.json()["error"]["message"]
    assert time.monotonic() - started < 10


def test_null_means_absent(server):
    response = server.post("/completion", {**PROMPT, "temperature": None, "stop": None, "seed": None})
    assert response.status_code == 200


def test_a_prompt_beyond_the_context_is_400_with_both_numbers(server):
    for path, body in [("/completion", {"prompt": "word " * 2000}), ("/completion", {"prompt": "word " * 2000, "stream": True}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 2000}]})]:
        response = server.post(path, body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["type"] == "exceed_context_size_error" and error["n_prompt_tokens"] > error["n_ctx"] == 512


def test_a_ten_megabyte_prompt_is_refused_not_fatal(server):
    before = server.memory_kib("VmHWM")
    for path, body in [("/completion", {"prompt": "a" * 10_000_000}), ("/completion", {"prompt": [5, "a" * 10_000_000]}),
                       ("/v1/completions", {"prompt": "a" * 10_000_000, "stream": True}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 10_000_000}]})]:
        error = server.post(path, body).json()["error"]
        assert error["code"] == 400 and error["type"] == "exceed_context_size_error"
        assert "at least" in error["message"] and error["n_prompt_tokens"] > error["n_ctx"] == 512
    # A few copies of the text; its tokens would be some hundred MB.
    assert server.sanitized() or server.memory_kib("VmHWM") - before < 200_000


def list_body(field, item, n):
    return b'{"prompt": "x", "content": "x", "' + field + b'": [' + b",".join([item] * n) + b"]}"


BIG_BODIES = {"numbers": list_body(b"prompt", b"1", 13_000_000), "lists": list_body(b"z", b"[]", 4_000_000),
              "objects": list_body(b"z", b"{}", 4_000_000), "nested lists": list_body(b"z", b"[[[[0]]]]", 1_000_000)}


@pytest.mark.parametrize("path", ["/completion", "/tokenize"])
@pytest.mark.parametrize("body", BIG_BODIES.values(), ids=BIG_BODIES.keys())
def test_a_body_of_very_many_values_is_400_and_says_how_many(server, path, body):
    response = httpx.post(server.url + path, content=body, timeout=120)
    assert response.status_code == 400, response.text
    assert "the body is too large: the first " in response.json()["error"]["message"]
    assert server.memory_kib("VmHWM") < 1 << 21


@pytest.mark.parametrize("spare_mib", [80, 600])
def test_a_large_body_where_memory_is_short_costs_its_own_answer_only(spare_mib):
    with running("-np", "1", "--no-warmup") as small:
        if small.sanitized():
            pytest.skip("a sanitizer reserves the address space, and ends the process where memory is short")
        limit = (small.memory_kib("VmSize") + spare_mib * 1024) * 1024
        resource.prlimit(small.process.pid, resource.RLIMIT_AS, (limit, limit))
        for body in (list_body(b"z", b"[]", 2_000_000), list_body(b"z", b"[]", 12_000_000), list_body(b"prompt", b"1", 11_000_000),
                     list_body(b"z", b'{"a":[[1]]}', 600_000)):
            answer = httpx.post(small.url + "/tokenize", content=body, timeout=120)
            assert answer.status_code in (200, 400, 500), answer.text
        assert small.post("/completion", PROMPT).status_code == 200


def test_an_object_of_many_keys_is_read_in_linear_time(server):
    """A search per key would be 80 billion comparisons."""
    body = b'{"content": "x"' + b"".join(b',"k%d":0' % i for i in range(400_000)) + b"}"
    assert httpx.post(server.url + "/tokenize", content=body, timeout=60).status_code == 200


def test_a_body_beyond_the_limit_is_413(server):
    with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=10) as connection:
        connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n{")
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


def test_json_that_claims_to_be_a_form_is_taken_at_any_length(server):
    """curl -d sends this content type unless it is told another."""
    body = json.dumps({"content": "word " * 20000})
    response = httpx.post(server.url + "/tokenize", content=body, timeout=60,
                          headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert response.status_code == 200 and len(response.json()["tokens"]) > 20000


def test_numbers_beyond_double_are_400(server):
    response = httpx.post(server.url + "/completion", content=b'{"prompt": "x", "temperature": 1e400}', timeout=60)
    assert response.status_code == 400 and "too large" in response.json()["error"]["message"]


def test_the_named_field_is_the_one_that_was_sent(server):
    assert "'content'" in server.post("/tokenize", {"content": 5}).json()["error"]["message"]
    assert "logit_bias" in server.post("/completion", {**PROMPT, "logit_bias": [[5, 1e30]]}).json()["error"]["message"]


def test_a_body_for_another_endpoint_is_sent_there(server):
    chat = {"messages": [{"role": "user", "content": "x"}]}
    for path, body, where in (("/completion", chat, "messages are for /v1/chat/completions"), ("/v1/completions", chat, "messages are for /v1/chat/completions"),
                              ("/v1/chat/completions", PROMPT, "a prompt is for /v1/completions or /completion")):
        refused = server.post(path, body)
        assert refused.status_code == 400 and refused.json()["error"]["message"].endswith(f": required ({where})")
    assert server.post("/completion", {"promt": "x"}).json()["error"]["message"] == "Field 'prompt': required"


def test_of_several_names_for_one_thing_all_are_looked_at_and_the_last_counts(server):
    for name in ("max_tokens", "max_completion_tokens"):
        refused = server.post("/completion", {**PROMPT, "n_predict": 1, name: "3"})
        assert refused.status_code == 400 and f"Field '{name}'" in refused.json()["error"]["message"]
    answer = server.post("/completion", {**PROMPT, "max_tokens": 9, "max_completion_tokens": 6, "n_predict": 3, "ignore_eos": True})
    assert answer.json()["tokens_predicted"] == 3


MALFORMED = {
    "a length that is no number": b"Content-Length: abc\r\n\r\n{}",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a chunk of no size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "a huge header": b"X: " + b"a" * 200_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("rest", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_http_gets_one_explained_400_and_the_connection_ends(server, rest):
    with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=10) as connection:
        answer = b""
        try:
            connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\n" + rest)
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:
            pass  # closed while we were still sending
    if answer:
        assert answer.count(b"HTTP/1.1 ") == 1 and b" 400 " in answer.split(b"\r\n")[0], answer
        assert b"no valid HTTP request" in answer
    assert server.get("/health").status_code == 200


BROKEN_REQUEST_LINES = {
    "one word": b"NONSENSE",
    "no version": b"GET /health",
    "an unknown method": b"JUGGLE /health HTTP/1.1",
    "an unknown version": b"GET /health HTTP/9.9",
}


@pytest.mark.parametrize("line", BROKEN_REQUEST_LINES.values(), ids=BROKEN_REQUEST_LINES.keys())
def test_a_broken_request_line_gets_one_400_and_the_connection_ends(server, line):
    """Its headers and its body, arriving later, must not be taken for further requests."""
    with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=10) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):  # it may be closed while we are still sending
            for part in (line, b"Host: x", b"A: b", b"", b"POST /completion HTTP/1.1", b"Content-Length: 2", b"", b"{}"):
                connection.sendall(part + b"\r\n")
                time.sleep(0.02)
        begin = time.time()
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                answer += part
        assert time.time() - begin < 4, "the connection was kept alive"
    assert answer.count(b"HTTP/1.1 ") == 1 and b" 400 " in answer.split(b"\r\n")[0], answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.count(b"Connection: close") == 1 and f"Content-Length: {len(body)}".encode() in head
    assert "no valid HTTP request" in json.loads(body)["error"]["message"]


def test_an_answer_that_announces_the_end_of_its_connection_ends_it(server):
    with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=10) as connection:
        connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert b" 400 " in answer.split(b"\r\n")[0] and b"Connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == 400


def test_too_many_prompts_in_one_request_are_400_with_both_numbers(server):
    for path in ("/completion", "/v1/completions"):
        response = server.post(path, {"prompt": ["x"] * 2049, "n_predict": 1})
        assert response.status_code == 400
        message = response.json()["error"]["message"]
        assert "'prompt'" in message and "2049" in message and "2048" in message
    answers = server.post("/completion", {"prompt": ["x"] * 20, "n_predict": 1})
    assert answers.status_code == 200 and len(answers.json()) == 20


def test_nul_bytes_and_lone_surrogates_in_text(server):
    assert server.post("/completion", {"prompt": "a\u0000b", "n_predict": 1}).status_code == 200
    response = httpx.post(server.url + "/completion", content=b'{"prompt": "\\ud800", "n_predict": 1}', timeout=60)
    assert response.status_code == 400


def test_unknown_paths_and_methods(server):
    response = server.get("/nowhere")
    assert response.status_code == 404
    assert response.json()["error"] == {"code": 404, "message": "File Not Found", "type": "not_found_error"}
    assert server.get("/completion").status_code == 405
    for path in ("/v1/embeddings", "/rerank", "/infill", "/v1/messages"):
        assert server.post(path, {}).status_code == 501
    assert server.get("/tools").json()["error"]["type"] == "feature_disabled"


def test_raw_garbage_on_the_socket(server):
    for garbage in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /completion HTTP/9.9\r\n\r\n", b"A" * 100000):
        with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=10) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            try:
                connection.recv(4096)
            except ConnectionError:
                pass
    assert server.get("/health").status_code == 200


def test_what_the_model_name_says_does_not_matter(server):
    response = server.post("/v1/completions", {**PROMPT, "model": "gpt-17"})
    assert response.status_code == 200 and response.json()["model"] == "llama.gguf"


def test_thousands_of_bad_requests_leave_nothing_behind(server):
    """Each on a connection of its own, which ends behind the error; every fourth ends in the middle of the request."""
    bodies = [b'{"prompt": 5}', b"{", b"\xff", b'{"prompt": "a", "top_p": 9}', b'{"prompt": ' + b"[" * 600, b'{"prompt": "' + b"word " * 2000 + b'"}',
              b'{"prompt": "a", "grammar": "root ::= ("}', b'{"prompt": "a", "json_schema": {"type": "widget"}}', b'{"prompt": [1, 99999]}']
    host, port = server.url.removeprefix("http://").split(":")

    def send_all():
        for i in range(1500):
            body = bodies[i % len(bodies)]
            with socket.create_connection((host, int(port)), timeout=20) as connection:
                request = b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                connection.sendall(request[:len(request) - i % 7] if i % 4 == 3 else request)
                if i % 4 != 3:
                    assert connection.recv(12) == b"HTTP/1.1 400"

    send_all()
    before = server.rss_kib()
    send_all()
    assert server.sanitized() or server.rss_kib() - before < 4096, "KiB more after 1500 bad requests"
    assert server.busy_slots() == 0
