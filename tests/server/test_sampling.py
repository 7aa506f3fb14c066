"""Every sampler through the request fields: it acts, it is echoed, a seed repeats it."""

import json

import httpx
import pytest

BODY = {"prompt": "the quick brown fox and the quick", "n_predict": 24, "seed": 11, "cache_prompt": False, "ignore_eos": True}


def complete(server, **fields):
    response = server.post("/completion", {**BODY, **fields})
    assert response.status_code == 200, response.text
    return response.json()


SAMPLERS = [
    {"dynatemp_range": 0.5, "dynatemp_exponent": 2},
    {"top_n_sigma": 1.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.01, "temperature": 1.5},
    {"dry_multiplier": 5.0, "dry_base": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1, "temperature": 0},
    {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    {"samplers": ["top_k", "adaptive_p"], "adaptive_target": 0.3, "adaptive_decay": 0.8},
    {"tfs_z": 0.5},
    {"samplers": ["top_k", "top_p", "infill"]},
    {"repeat_penalty": 1.5, "repeat_last_n": -1, "frequency_penalty": 0.5, "presence_penalty": 0.5},
]


@pytest.mark.parametrize("fields", SAMPLERS, ids=str)
def test_each_sampler_is_echoed_and_repeats_with_its_seed(server, fields):
    first, second = complete(server, **fields), complete(server, **fields)
    assert first["content"] == second["content"]
    settings = first["generation_settings"]
    for name, value in fields.items():
        assert settings[name] == pytest.approx(value) if not isinstance(value, list) else settings[name] == value


def test_the_order_is_given_by_names_or_letters(server):
    by_name = complete(server, samplers=["Top-K", "nucleus", "temp", "unheard-of"])
    assert by_name["generation_settings"]["samplers"] == ["top_k", "top_p", "temperature"]
    by_letter = complete(server, samplers="kpt")
    assert by_letter["generation_settings"]["samplers"] == ["top_k", "top_p", "temperature"]
    assert by_letter["content"] == by_name["content"]
    everything = complete(server, samplers="edskypmxtiaf")["generation_settings"]["samplers"]
    assert len(everything) == 12 and everything[-3:] == ["infill", "adaptive_p", "tfs_z"]


def test_tail_free_joins_a_chain_that_nobody_wrote_down(server):
    assert "tfs_z" in complete(server, tfs_z=0.9)["generation_settings"]["samplers"]
    assert "tfs_z" not in complete(server)["generation_settings"]["samplers"]


def test_xtc_takes_the_likeliest_away(server):
    greedy = complete(server, temperature=0, n_predict=1, n_probs=3)
    others = complete(server, samplers="x", xtc_probability=1.0, xtc_threshold=0.0, n_predict=1, n_probs=3, post_sampling_probs=True)
    listed = [entry["id"] for entry in others["completion_probabilities"][0]["top_probs"]]
    assert greedy["completion_probabilities"][0]["id"] not in listed and len(listed) == 1


def test_dry_refuses_to_go_on_with_what_stood_there(server):
    prompt = [5, 6, 7, 8] * 6 + [5, 6]
    fields = {"prompt": prompt, "temperature": 0, "n_predict": 1, "return_tokens": True, "logit_bias": [[7, 50.0]]}
    assert complete(server, **fields)["tokens"] == [7]
    on = complete(server, **fields, dry_multiplier=1000.0, dry_sequence_breakers=["\n"])
    assert on["tokens"] != [7] and on["generation_settings"]["dry_sequence_breakers"] == ["\n"]
    broken = complete(server, **{**fields, "prompt": [5, 6, 7, 13] * 6 + [5]}, dry_multiplier=1000.0, dry_sequence_breakers=["\n"])
    assert broken["tokens"] == [7], "one token lies behind the breaker: too short"


@pytest.mark.parametrize("fields,named", [
    ({"mirostat": 3}, "mirostat"), ({"dry_penalty_last_n": -2}, "dry_penalty_last_n"), ({"dry_allowed_length": -1}, "dry_allowed_length"),
    ({"dry_sequence_breakers": "x"}, "dry_sequence_breakers"), ({"dry_sequence_breakers": [1]}, "dry_sequence_breakers"),
    ({"xtc_probability": "often"}, "xtc_probability"), ({"samplers": ["top_k"] * 17}, "samplers"),
    ({"xtc_probability": 5}, "a number from 0 to 1, got 5"), ({"top_p": 1.5}, "a number from 0 to 1, got 1.5"),
    ({"temperature": 3.4e38}, "a number from -1e9 to 1e9, got 3.4e+38"), ({"temperature": -1e308}, "from -1e9 to 1e9"),
    ({"repeat_penalty": 1e-45}, "0 (off) or a number from 1e-6 to 1e9"), ({"min_keep": -1}, "a whole number of at least 0, got -1"),
    ({"mirostat": 2.5}, "a whole number from 0 to 2, got 2.5"), ({"logit_bias": [[5, 1e38]]}, "a number of at most 1e9"),
], ids=str)
def test_bad_values_are_400_and_named(server, fields, named):
    response = server.post("/completion", {**BODY, **fields})
    assert response.status_code == 400 and named in response.json()["error"]["message"], response.text


@pytest.mark.parametrize("fields", [
    {"top_p": 1.0, "min_p": 0, "typical_p": 1, "tfs_z": 1, "top_k": 0, "xtc_probability": 0, "repeat_penalty": 0, "presence_penalty": 0},
    {"top_k": -1, "repeat_last_n": -1, "dry_penalty_last_n": -1, "top_n_sigma": -1, "adaptive_target": -1, "temperature": -1},
    {"repeat_last_n": 0, "repeat_penalty": 1.0, "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 0, "mirostat": 0.0},
], ids=str)
def test_what_clients_send_to_switch_a_sampler_off_is_taken(server, fields):
    assert complete(server, **fields, n_predict=4)["tokens_predicted"] == 4


def test_a_penalty_of_nothing_is_no_penalty(server):
    fields = {"temperature": 0, "repeat_last_n": 64}
    assert complete(server, **fields, repeat_penalty=0)["content"] == complete(server, **fields, repeat_penalty=1)["content"]


def test_a_base_below_one_means_the_default(server):
    assert complete(server, dry_base=0.5, n_predict=1)["generation_settings"]["dry_base"] == pytest.approx(1.75)


def test_windows_of_billions_cost_nothing(server):
    complete(server, repeat_penalty=1.1, repeat_last_n=2147483647, dry_multiplier=1.0, dry_penalty_last_n=2147483647, n_predict=2)


TEXTS = ["a\0b", "\0", "\ufffd", "e\u0301", "\u202e", "\U0010ffff", "😀" * 50, "\u2581", " " * 100]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_odd_text_is_only_text(server, text):
    assert complete(server, prompt=text, n_predict=2)["tokens_predicted"] == 2
    tokens = server.post("/tokenize", {"content": text}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).status_code == 200


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "\\ud800\\ud800", "\\ud83d\\u0020", "\\udc00\\ud800"])
@pytest.mark.parametrize("path,field", [("/completion", "prompt"), ("/tokenize", "content"), ("/v1/completions", "prompt")])
def test_lone_surrogates_are_400(server, path, field, escape):
    body = f'{{"{field}": "x{escape}y", "n_predict": 1}}'.encode()
    response = httpx.post(server.url + path, content=body, timeout=60)
    assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"


def test_lone_surrogates_in_a_chat_are_400(server):
    for escape in ("\\ud800", "\\udc00"):
        body = f'{{"messages": [{{"role": "user", "content": "x{escape}y"}}], "max_tokens": 1}}'.encode()
        response = httpx.post(server.url + "/v1/chat/completions", content=body, timeout=60)
        assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"


def test_odd_text_in_a_chat_is_only_text(server):
    for text in TEXTS:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
        assert server.post("/v1/chat/completions", body).status_code == 200, ascii(text)


def test_ten_megabytes_in_a_chat_are_too_much_for_the_context_and_nothing_else(server):
    body = {"messages": [{"role": "user", "content": "word " * 2_000_000}], "max_tokens": 1}
    response = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=120)
    assert response.status_code == 400 and response.json()["error"]["type"] == "exceed_context_size_error", response.text
    tokens = httpx.post(server.url + "/tokenize", json={"content": "word " * 2_000_000}, timeout=120)
    assert tokens.status_code == 200 and len(tokens.json()["tokens"]) > 2_000_000


@pytest.mark.parametrize("unit", ["a", " ", "😀", "\0"], ids=ascii)
def test_ten_megabytes_of_one_thing_are_served_or_refused(server, unit):
    """Where only text is made of text it is served; what would have to fit the context is refused with both numbers."""
    text = unit * (10_000_000 // len(unit.encode()))
    prompt = httpx.post(server.url + "/apply-template", json={"messages": [{"role": "user", "content": text}]}, timeout=120)
    assert prompt.status_code == 200 and text in prompt.json()["prompt"]
    for path, body in [("/completion", {"prompt": text, "n_predict": 1}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 1})]:
        response = httpx.post(server.url + path, json=body, timeout=120)
        error = response.json()["error"]
        assert response.status_code == 400 and error["type"] == "exceed_context_size_error", error
        # Told by the bytes, before the text is tokenised: no more than there are, and far more than fit.
        assert 200_000 < error["n_prompt_tokens"] < 10_001_000 and error["n_ctx"] == 512


def test_the_pieces_of_ten_megabytes_are_told(server):
    response = httpx.post(server.url + "/tokenize", json={"content": "😀" * 2_500_000, "with_pieces": True}, timeout=120)
    assert response.status_code == 200
    head = json.loads(response.text[: response.text.index("}") + 1].removeprefix('{"tokens":['))
    assert set(head) == {"id", "piece"} and response.text.count('"id":') >= 2_500_000


@pytest.mark.parametrize("unit", ["word ", "a", " ", "😀"], ids=ascii)
def test_a_megabyte_of_one_thing_is_tokenised(server, unit):
    response = httpx.post(server.url + "/tokenize", json={"content": unit * (1_000_000 // len(unit.encode()))}, timeout=120)
    assert response.status_code == 200 and response.json()["tokens"]
