"""POST /completion and the utilities."""

import re
import sys

import pytest

from server_process import ROOT, TINY_MODEL, running

sys.path.insert(0, str(ROOT / "tests" / "support"))
from gguf_file import without_character  # noqa: E402

PROMPT = "The model reads tokens, then"


def complete(server, **fields):
    response = server.post("/completion", {"prompt": PROMPT, "n_predict": 8, "temperature": 0, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_answer_has_the_documented_fields(server):
    answer = complete(server, cache_prompt=False)
    assert answer["stop"] is True and answer["index"] == 0
    assert answer["stop_type"] in ("limit", "eos")
    assert answer["tokens_predicted"] <= 8
    assert answer["tokens_evaluated"] == answer["timings"]["prompt_n"] > 4
    assert answer["timings"]["cache_n"] == 0
    assert answer["generation_settings"]["temperature"] == 0
    assert answer["generation_settings"]["samplers"][0] == "penalties"
    assert answer["prompt"].endswith(PROMPT)
    assert answer["tokens"] == []


def test_greedy_answers_repeat_and_streams_carry_the_same_text(server):
    first = complete(server)
    assert complete(server)["content"] == first["content"]
    events = list(server.events("/completion", {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "stream": True}))
    assert "".join(event["content"] for event in events) == first["content"]
    assert events[-1]["stop"] is True and events[-1]["content"] == ""
    assert {event["id_slot"] for event in events} == {events[-1]["id_slot"]}
    assert all(len(event["tokens"]) == 1 for event in events[:-1] if event["content"])


def test_a_repeated_prompt_is_taken_from_the_cache(server):
    complete(server, id_slot=1)
    again = complete(server, id_slot=1)
    assert again["timings"]["prompt_n"] == 1
    assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1


def test_another_slot_shares_the_prefix(server):
    text = "shared prefix " * 20
    complete(server, prompt=text, id_slot=2)
    other = complete(server, prompt=text, id_slot=3)
    assert other["timings"]["cache_n"] == other["tokens_evaluated"] - 1


def test_same_seed_gives_same_text_and_is_reported(server):
    fields = dict(temperature=1.0, seed=123, n_predict=16, cache_prompt=False)
    one, two = complete(server, **fields), complete(server, **fields)
    assert one["content"] == two["content"]
    assert one["generation_settings"]["seed"] == 123


def test_predicting_nothing_evaluates_the_prompt_only(server):
    answer = complete(server, n_predict=0)
    assert answer["content"] == "" and answer["tokens_predicted"] == 0 and answer["tokens_evaluated"] > 0


def test_prompts_may_be_ids_mixed_or_several(server):
    ids = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json()["tokens"]
    by_text = complete(server)
    assert complete(server, prompt=ids)["content"] == by_text["content"]
    assert complete(server, prompt=[ids[0], PROMPT])["tokens_evaluated"] > 1
    several = complete(server, prompt=[PROMPT, "Another"])
    assert [answer["index"] for answer in several] == [0, 1]
    assert several[0]["content"] == by_text["content"]
    assert isinstance(complete(server, prompt=[PROMPT]), dict)


def test_stop_string_ends_the_answer_and_is_not_part_of_it(server):
    text = complete(server, n_predict=32, ignore_eos=True)["content"]
    stop = re.search(r"[!-~]{2,}", text[2:]).group()  # the tiny model also writes bytes that are no characters
    answer = complete(server, n_predict=32, ignore_eos=True, stop=[stop])
    assert answer["stop_type"] == "word" and answer["stopping_word"] == stop and answer["stopped_word"] is True
    assert answer["content"] == text[: text.index(stop)]
    events = server.events("/completion", {"prompt": PROMPT, "n_predict": 32, "ignore_eos": True, "temperature": 0, "stop": [stop], "stream": True})
    assert "".join(event["content"] for event in events) == answer["content"]


def test_probabilities(server):
    answer = complete(server, n_probs=3, n_predict=4)
    entries = answer["completion_probabilities"]
    assert len(entries) == answer["tokens_predicted"]
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == pytest.approx(entry["logprob"], abs=1e-5)  # greedy: the likeliest
        assert bytes(entry["bytes"]).decode(errors="ignore") == entry["token"]
    post = complete(server, n_probs=3, n_predict=2, temperature=1.0, post_sampling_probs=True, top_k=2)
    for entry in post["completion_probabilities"]:
        assert sum(candidate["prob"] for candidate in entry["top_probs"]) == pytest.approx(1, abs=1e-4)


def test_logit_bias_bans_and_forces(server):
    plain = complete(server, n_predict=1, return_tokens=True)["tokens"]
    other = complete(server, n_predict=1, return_tokens=True, logit_bias=[[plain[0], False]])["tokens"]
    assert other != plain
    forced = complete(server, n_predict=2, return_tokens=True, logit_bias={"65": 1000})["tokens"]
    assert forced == [65, 65]


def test_several_completions_of_one_prompt(server):
    answers = complete(server, n_cmpl=3, temperature=1.0, seed=5, n_predict=6, cache_prompt=True)
    assert [answer["index"] for answer in answers] == [0, 1, 2]
    assert len({answer["content"] for answer in answers}) > 1
    assert sum(answer["timings"]["prompt_n"] for answer in answers) <= answers[0]["tokens_evaluated"] + 2


def test_response_fields_select_paths(server):
    answer = complete(server, response_fields=["content", "timings/prompt_n", "nowhere/at/all"])
    assert set(answer) == {"content", "prompt_n"}


def test_progress_events(server):
    body = {"prompt": "word " * 80, "n_predict": 1, "stream": True, "return_progress": True, "cache_prompt": False}
    progress = [event["prompt_progress"] for event in server.events("/completion", body) if "prompt_progress" in event]
    assert progress[0]["processed"] == progress[0]["cache"]
    assert progress[-1]["processed"] == progress[-1]["total"]


def test_tokenize_and_detokenize_are_inverse(server):
    text = "New line: café\n<|im_start|>"
    tokens = server.post("/tokenize", {"content": text}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json()["content"] == text
    pieces = server.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
    assert [piece["id"] for piece in pieces] == tokens
    assert server.post("/tokenize", {}).json() == {"tokens": []}


def test_apply_template(server):
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the next token?"}]}
    assert server.post("/apply-template", body).json()["prompt"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe next token?<|im_end|>\n<|im_start|>assistant\n")


def test_template_from_a_file_sees_what_server_and_request_say(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages[0].content }}|{{ reasoning_effort | default('no effort') }}|{{ enable_thinking }}|{{ mood }}|{{ tone }}")
    with running("--chat-template-file", str(path), "--chat-template-kwargs", '{"mood": "calm", "tone": "warm"}') as process:
        def prompt(**fields):
            body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
            return process.post("/apply-template", body).json()["prompt"]

        assert prompt() == "Hi|no effort|True|calm|warm"
        assert prompt(reasoning_effort="high") == "Hi|high|True|calm|warm"
        assert prompt(reasoning_effort="none") == "Hi|no effort|False|calm|warm"
        assert prompt(chat_template_kwargs={"tone": "cold", "enable_thinking": False}) == "Hi|no effort|False|calm|cold"


def test_timing_lines_are_logged(server):
    complete(server)
    for name in ("prompt eval", "(?<!prompt) eval", "total"):
        assert re.search(rf"(?m)^.*{name} time += +[\d.]+ ms / +\d+ (tokens|runs)", server.log()), name
    assert "nan" not in server.log() and "graphs reused" in server.log()


def test_state_endpoints(server):
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/v1/health").json() == {"status": "ok"}
    props = server.get("/props").json()
    assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] == 512
    assert props["default_generation_settings"]["params"]["seed"] == 7
    assert "im_start" in props["chat_template"]
    models = server.get("/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == "llama.gguf" and models["data"][0]["meta"]["n_vocab"] == 288
    assert server.get("/api/tags").json()["models"] == models["models"]
    slots = server.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    metrics = server.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(re.findall(r"(?m)^llamacpp:(\w+) (\S+)$", metrics.text))
    assert float(values["prompt_tokens_total"]) > 0 and float(values["tokens_predicted_total"]) > 0
    assert float(values["splits_total"]) > 0
    page = server.get("/")
    assert page.status_code == 200 and f"curl {server.url}/v1/chat/completions -H" in page.text and "llama.gguf" in page.text


def test_erasing_a_slot_forgets_its_cache(server):
    complete(server, id_slot=0)
    erased = server.post("/slots/0?action=erase").json()
    assert erased["id_slot"] == 0 and erased["n_erased"] > 0
    assert server.post("/slots/0?action=erase").json()["n_erased"] == 0
    assert server.post("/slots/9?action=erase").status_code == 400
    assert server.post("/slots/0?action=juggle").status_code == 400


@pytest.mark.parametrize("prompt", ["", [""], ["", ""], [[""]]], ids=str)
def test_an_empty_prompt_of_a_model_without_bos_has_an_empty_answer(prompt, no_bos):
    answers = no_bos.post("/completion", {"prompt": prompt, "n_predict": 4, "n_cmpl": 1})
    assert answers.status_code == 200, answers.text
    answers = answers.json() if isinstance(answers.json(), list) else [answers.json()]
    assert len(answers) == (2 if prompt == ["", ""] else 1)
    for answer in answers:
        assert answer["content"] == "" and answer["stop"] and answer["tokens_evaluated"] == answer["tokens_predicted"] == 0
    choices = no_bos.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, "n": 2}).json()["choices"]
    assert [(c["text"], c["finish_reason"]) for c in choices] == [("", "stop")] * (2 * len(answers))
    events = list(no_bos.events("/v1/completions", {"prompt": prompt, "max_tokens": 4, "stream": True}))
    assert events[-1] == "[DONE]" and len(events) == len(answers) + 1
    assert no_bos.post("/completion", {"prompt": "the next", "n_predict": 4}).json()["tokens_predicted"] == 4


@pytest.fixture(scope="module")
def no_bos():
    with running("-np", "2", "--no-warmup", model=TINY_MODEL.with_name("qwen2.gguf")) as process:
        yield process


def test_a_text_that_no_token_stands_for_is_refused(tmp_path):
    model = without_character(TINY_MODEL.with_name("qwen2.gguf"), tmp_path / "qwen2.gguf", "~")
    bare = "{%- for message in messages %}{{ message.content }}{% endfor %}"
    with running("-np", "2", "--no-warmup", "--chat-template", bare, model=model) as server:
        for prompt in ("~~~", ["a", "~~~"], [[97], "~"], ["~", ""], {"prompt_string": "~~~"}):
            for path in ("/completion", "/v1/completions"):
                refused = server.post(path, {"prompt": prompt, "n_predict": 2})
                assert refused.status_code == 400 and re.match(
                    r"Field 'prompt': the vocabulary of the model has no token for any of the \d bytes", refused.json()["error"]["message"]), prompt
        for content, what in (("~~~", "the vocabulary of the model has no token for any of the 3 bytes"), ("", "the chat template makes an empty prompt")):
            refused = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "stream": True})
            assert refused.status_code == 400 and refused.json()["error"]["message"].startswith(f"Field 'messages': {what}")
        for bias in ({"~": -1}, [["~~", 1]], {"": False}):
            refused = server.post("/completion", {"prompt": "a", "n_predict": 2, "logit_bias": bias})
            assert refused.status_code == 400 and "Field 'logit_bias': expected a text that" in refused.json()["error"]["message"]
        assert server.post("/completion", {"prompt": [97, "~"], "n_predict": 2}).json()["tokens_predicted"] == 2
        assert server.post("/completion", {"prompt": "a~", "n_predict": 2}).json()["tokens_evaluated"] == 1
        assert server.post("/completion", {"prompt": "", "n_predict": 2}).json()["content"] == ""
