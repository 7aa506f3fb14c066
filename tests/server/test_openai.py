"""The public openai client, unmodified."""

import openai
import pytest

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the next token?"}]


def chat(client, **fields):
    return client.chat.completions.create(**{"model": "any", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, **fields})


def test_chat_completion(client):
    answer = chat(client)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.model == "llama.gguf" and answer.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and choice.finish_reason in ("length", "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens <= 8


def test_second_ask_comes_from_the_cache(client):
    chat(client)
    usage = chat(client).usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_stream_carries_the_same_text_and_its_usage(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content is None
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == whole.choices[0].finish_reason and set(reasons[:-1]) == {None}


def test_several_choices(client):
    answer = chat(client, n=3, temperature=1.0, seed=11, max_tokens=6)
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert answer.usage.completion_tokens <= 18


def test_logprobs(client):
    answer = chat(client, logprobs=True, top_logprobs=2, max_tokens=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in entries)
    streamed = [chunk.choices[0].logprobs for chunk in chat(client, logprobs=True, top_logprobs=2, max_tokens=3, stream=True) if chunk.choices]
    assert sum(len(item.content) for item in streamed if item is not None) == len(entries)
    only_chosen = chat(client, logprobs=True, top_logprobs=0, max_tokens=3).choices[0].logprobs.content
    assert [entry.top_logprobs for entry in only_chosen] == [[], [], []]
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        chat(client, top_logprobs=2)


def test_verbose_answers_hold_the_native_one(client):
    answer = chat(client, max_tokens=3, extra_body={"verbose": True}).model_dump()
    assert answer["__verbose"]["content"] == answer["choices"][0]["message"]["content"]
    assert answer["__verbose"]["tokens_predicted"] == 3
    last = list(chat(client, max_tokens=3, stream=True, extra_body={"verbose": True}))[-1].model_dump()
    assert last["__verbose"]["stop"] is True
    assert "__verbose" not in chat(client, max_tokens=3).model_dump()


def test_logprobs_end_with_the_text_that_is_seen(client):
    whole = chat(client, max_tokens=12, temperature=0, logprobs=True).choices[0]
    entries = whole.logprobs.content
    pieces = [entry.token for entry in entries]
    start = next(i for i in range(1, len(pieces)) if pieces[i].strip() and bytes(entries[i].bytes) == pieces[i].encode()
                 and pieces[i] not in "".join(pieces[:i]))
    cut = chat(client, max_tokens=12, temperature=0, logprobs=True, stop=pieces[start]).choices[0]
    assert cut.finish_reason == "stop"
    assert [entry.token for entry in cut.logprobs.content] == pieces[:start]
    streamed = [chunk.choices[0] for chunk in chat(client, max_tokens=12, temperature=0, logprobs=True, stop=pieces[start], stream=True)
                if chunk.choices]
    tokens = [entry.token for choice in streamed if choice.logprobs for entry in choice.logprobs.content]
    assert tokens == pieces[:start] and "".join(choice.delta.content or "" for choice in streamed) == cut.message.content


def test_text_completion(client):
    fields = dict(model="any", prompt="The model reads", max_tokens=8, temperature=0)
    answer = client.completions.create(**fields)
    assert answer.object == "text_completion" and answer.choices[0].finish_reason in ("length", "stop")
    streamed = list(client.completions.create(stream=True, **fields))
    assert "".join(chunk.choices[0].text for chunk in streamed) == answer.choices[0].text
    assert streamed[-1].usage.completion_tokens == answer.usage.completion_tokens
    both = client.completions.create(**{**fields, "prompt": ["The model reads", "New line"]})
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == answer.choices[0].text


def test_models(client):
    assert [model.id for model in client.models.list()] == ["llama.gguf"]


def test_content_parts_and_prefilled_answers(client):
    parts = [{"role": "user", "content": [{"type": "text", "text": "the next"}, {"type": "text", "text": " token?"}]}]
    assert chat(client, messages=parts).choices
    prefilled = MESSAGES + [{"role": "assistant", "content": "The next"}]
    assert chat(client, messages=prefilled).usage.prompt_tokens > chat(client).usage.prompt_tokens - 10


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
], ids=["image", "audio"])
def test_parts_that_are_no_text_are_refused_as_the_requests_fault(client, part):
    """Clients ask again after a 500."""
    with pytest.raises(openai.BadRequestError, match=r"messages\[2\]\.content.* input is not supported .*text only"):
        chat(client, messages=[*MESSAGES, {"role": "user", "content": [{"type": "text", "text": "What is it?"}, part]}])
