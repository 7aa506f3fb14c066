"""SmolLM2 and Gemma, when scripts/get-model.sh has fetched them."""

import re

import pytest

from server_process import ROOT, running

MODELS = sorted((ROOT / "models").glob("**/*[sS]mol[lL][mM]2*.gguf"))
GEMMAS = sorted((ROOT / "models").glob("**/gemma-3-270m*.gguf"))
MIB = 1 << 20
needs_smollm2 = pytest.mark.skipif(not MODELS, reason="scripts/get-model.sh smollm2 was not run")
needs_gemma = pytest.mark.skipif(not GEMMAS, reason="scripts/get-model.sh gemma3-270m was not run")


@needs_smollm2
def test_the_capital_of_france_is_paris_streamed_and_not():
    with running("-c", "2048", "-np", "2", model=MODELS[0]) as server:
        body = {"messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}], "temperature": 0, "max_tokens": 32}
        answer = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
        assert "Paris" in answer
        chunks = server.events("/v1/chat/completions", {**body, "stream": True})
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk != "[DONE]" and chunk["choices"])
        assert text == answer


@pytest.mark.parametrize("models", [pytest.param(MODELS, id="smollm2", marks=needs_smollm2), pytest.param(GEMMAS, id="gemma3", marks=needs_gemma)])
def test_peak_memory_is_the_file_the_cache_and_at_most_150_mib(models):
    with running("-c", "4096", "-np", "4", model=models[0]) as server:
        # Longer than a micro-batch of 512, so that scratch is used in full.
        answer = server.post("/completion", {"prompt": "The sea is wide. " * 150, "n_predict": 8, "temperature": 0}).json()
        assert answer["tokens_evaluated"] > 512
        cache = int(re.search(r"kv_bytes=(\d+)", server.log()).group(1))
        peak = server.memory_kib("VmHWM") * 1024
        assert server.memory_kib("RssFile") * 1024 > 0.5 * models[0].stat().st_size, "the file is mapped, not copied"
    beyond = peak - models[0].stat().st_size - cache
    assert beyond < 150 * MIB, f"peak {peak / MIB:.0f} MiB, file {models[0].stat().st_size / MIB:.0f}, cache {cache / MIB:.0f}"
