"""SmolLM2, when scripts/get-model.sh has fetched it."""

import pytest

from server_process import ROOT, running

MODELS = sorted((ROOT / "models").glob("**/*[sS]mol[lL][mM]2*.gguf"))


@pytest.mark.skipif(not MODELS, reason="scripts/get-model.sh smollm2 was not run")
def test_the_capital_of_france_is_paris_streamed_and_not():
    with running("-c", "2048", "-np", "2", model=MODELS[0]) as server:
        body = {"messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}], "temperature": 0, "max_tokens": 32}
        answer = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
        assert "Paris" in answer
        chunks = server.events("/v1/chat/completions", {**body, "stream": True})
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk != "[DONE]" and chunk["choices"])
        assert text == answer
