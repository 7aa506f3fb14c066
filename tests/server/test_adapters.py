"""LoRA adapters and control vectors: at the start, for all requests, for one request."""

import concurrent.futures
import pathlib
import sys

import pytest

from server_process import running

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from gguf_file import write_control_vector, write_lora

WIDTH = 128  # of the tiny model
MATRICES = {f"blk.{layer}.{name}.weight": (WIDTH, WIDTH) for layer in range(2) for name in ("attn_q", "attn_output")}
PROMPT = "The model reads tokens, then"
FLAGS = ("-c", "2048", "-np", "4", "--slots", "--no-warmup")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [write_lora(folder / "first.gguf", "llama", MATRICES, seed=1, **{"adapter.lora.task_name": "rhymes",
                                                                          "adapter.lora.prompt_prefix": "Rhyme: "}),
            write_lora(folder / "second.gguf", "llama", MATRICES, rank=2, seed=2)]


@pytest.fixture(scope="module")
def adapted(files):
    with running(*FLAGS, "--lora", files[0], "--lora-scaled", f"{files[1]}:0.5") as process:
        yield process
        assert process.process.poll() is None, "the server has died:\n" + process.log()


def complete(server, **fields):
    response = server.post("/completion", {"prompt": PROMPT, "n_predict": 12, "temperature": 0, "n_probs": 1, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def scores(answer):
    return [(token["id"], token["logprob"]) for token in answer["completion_probabilities"]]


def same(a, b):
    return all(x[0] == y[0] and abs(x[1] - y[1]) < 1e-3 for x, y in zip(scores(a), scores(b)))


def lora(*scales):
    return [{"id": i, "scale": scale} for i, scale in enumerate(scales)]


def test_adapters_are_listed_with_the_scales_of_the_command_line(adapted, files):
    listed = adapted.get("/lora-adapters").json()
    assert listed == [{"id": 0, "path": str(files[0]), "scale": 1.0, "task_name": "rhymes", "prompt_prefix": "Rhyme: "},
                      {"id": 1, "path": str(files[1]), "scale": 0.5, "task_name": "", "prompt_prefix": ""}]
    assert adapted.get("/props").json()["default_generation_settings"]["params"]["lora"] == lora(1.0, 0.5)


def test_a_request_has_its_own_scales(adapted, server):
    plain = complete(server)
    assert same(complete(adapted, lora=[]), plain)
    assert same(complete(adapted, lora=lora(0, 0)), plain)
    whole = complete(adapted)
    assert whole["generation_settings"]["lora"] == lora(1.0, 0.5)
    assert same(complete(adapted, lora=lora(1, 0.5)), whole)
    first = complete(adapted, lora=[{"id": 0, "scale": 1}])
    assert first["generation_settings"]["lora"] == lora(1.0, 0.0)
    assert not same(first, plain) and not same(first, whole) and not same(whole, plain)


def test_requests_at_the_same_time_keep_their_scales(adapted):
    choices = [lora(1, 0), lora(0, 1), lora(0.5, -1), []]
    alone = [complete(adapted, lora=scales, cache_prompt=False, n_predict=24) for scales in choices]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda scales: complete(adapted, lora=scales, cache_prompt=False, n_predict=24), choices))
    assert all(same(a, b) for a, b in zip(alone, together))


def test_posted_scales_are_those_of_later_requests(adapted):
    whole = complete(adapted)
    try:
        assert adapted.post("/lora-adapters", [{"id": 1, "scale": 2}]).json() == {"success": True}
        assert [adapter["scale"] for adapter in adapted.get("/lora-adapters").json()] == [0.0, 2.0]
        changed = complete(adapted)
        assert changed["generation_settings"]["lora"] == lora(0.0, 2.0) and not same(changed, whole)
        assert same(complete(adapted, lora=lora(1, 0.5)), whole)
        slot = next(s for s in adapted.get("/slots").json() if s["id"] == changed["id_slot"])
        assert slot["params"]["lora"] in (lora(0.0, 2.0), lora(1.0, 0.5))
    finally:
        assert adapted.post("/lora-adapters", lora(1, 0.5)).status_code == 200
    assert same(complete(adapted), whole)


def test_other_scales_do_not_reuse_what_is_cached(adapted):
    text = "a prompt of its own " * 10
    first = complete(adapted, prompt=text, lora=lora(1, 0), id_slot=0)
    again = complete(adapted, prompt=text, lora=lora(1, 0), id_slot=0)
    assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1 and same(again, first)
    other = complete(adapted, prompt=text, lora=lora(0.9, 0), id_slot=0)
    assert other["timings"]["cache_n"] == 0
    elsewhere = complete(adapted, prompt=text, lora=lora(0.8, 0), id_slot=1)
    assert elsewhere["timings"]["cache_n"] == 0
    shared = complete(adapted, prompt=text, lora=lora(0.9, 0), id_slot=2)
    assert shared["timings"]["cache_n"] == shared["tokens_evaluated"] - 1 and same(shared, other)


@pytest.mark.parametrize("value, part", [
    ([{"id": 2, "scale": 1}], "[0].id': there is no adapter 2; the server has 2, with the ids 0 to 1"),
    ([{"id": -1, "scale": 1}], "there is no adapter -1"),
    ([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}], "adapter 0 is listed twice"),
    ([{"id": 0}], "scale"),
    ([{"scale": 1}], "id"),
    ([{"id": "0", "scale": 1}], "id"),
    ([{"id": 0, "scale": "1"}], "scale"),
    ([{"id": 0, "scale": 1e300}], "finite"),
    ([1], "objects"),
    ({"id": 0, "scale": 1}, "an array"),
    ("first", "an array"),
])
def test_bad_scales_are_refused(adapted, value, part):
    for path, body in (("/completion", {"prompt": PROMPT, "n_predict": 1, "lora": value}), ("/lora-adapters", value)):
        response = adapted.post(path, body)
        assert response.status_code == 400, response.text
        assert part in response.json()["error"]["message"]
    assert [adapter["scale"] for adapter in adapted.get("/lora-adapters").json()] == [1.0, 0.5]


def test_a_scale_that_overflows_fails_its_own_request_only(adapted):
    plain = complete(adapted, lora=[], cache_prompt=False, n_predict=48)

    def ask(scales):
        return adapted.post("/completion", {"prompt": PROMPT, "n_predict": 48, "temperature": 0, "n_probs": 1,
                                            "cache_prompt": False, "lora": scales})

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        good, bad, other = pool.map(ask, [[], lora(1e38, 1e38), []])
    assert bad.status_code == 500 and "not numbers" in bad.json()["error"]["message"]
    for response in (good, other):
        assert response.status_code == 200 and same(response.json(), plain)


def test_chat_requests_have_scales_too(adapted):
    def chat(**fields):
        response = adapted.post("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 12,
                                                         "temperature": 0, **fields})
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["message"]["content"]

    assert chat(lora=lora(1, 0.5)) == chat()
    assert chat(lora=[]) != chat()


def test_a_server_without_adapters_has_none(server):
    assert server.get("/lora-adapters").json() == []
    assert server.post("/lora-adapters", []).json() == {"success": True}
    response = server.post("/completion", {"prompt": PROMPT, "n_predict": 1, "lora": lora(1)})
    assert response.status_code == 400 and "--lora" in response.json()["error"]["message"]


def test_adapters_may_start_at_zero(files, server):
    with running(*FLAGS, "--lora", f"{files[0]},{files[1]}", "--lora-init-without-apply") as process:
        assert [adapter["scale"] for adapter in process.get("/lora-adapters").json()] == [0.0, 0.0]
        assert same(complete(process), complete(server))
        assert not same(complete(process, lora=lora(1)), complete(server))


def test_a_control_vector_acts_on_its_layers(tmp_path, server):
    vector = write_control_vector(tmp_path / "vector.gguf", "llama", WIDTH, [1])
    plain = complete(server)
    with running(*FLAGS, "--control-vector-scaled", f"{vector}:3") as process:
        assert not same(complete(process), plain)
    with running(*FLAGS, "--control-vector", vector, "--control-vector-layer-range", "2", "2") as process:
        assert same(complete(process), plain)


def test_files_that_do_not_fit_end_the_start(tmp_path):
    wrong = write_lora(tmp_path / "wrong.gguf", "qwen2", {"blk.0.attn_q.weight": (WIDTH, 64), "blk.9.x.weight": (8, 8)})
    with pytest.raises(RuntimeError) as failure:
        with running(*FLAGS, "--lora", wrong):
            pass
    for part in ("3 problems", "wrong.gguf", "'llama' expected, file has 'qwen2'", "blk.0.attn_q.weight.lora_b: 4 x 128",
                 "blk.9.x.weight: the model has no such tensor"):
        assert part in str(failure.value)
