"""Tool calls and reasoning through the public openai client. The model is tiny and writes at random: what makes its calls
valid is the grammar."""

import json

import openai
import pytest

from server_process import running

TEMPLATE = (
    "{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools> "
    '<tool_call>{"name": "", "arguments": {}}</tool_call>\n{% endif %}'
    "{%- for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{%- if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor %}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}{% endif %}"
)


def function(name, properties, required):
    return {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": {
        "type": "object", "properties": properties, "required": required}}}


WEATHER = function("get_weather", {"city": {"enum": ["Paris", "Oslo"]}, "unit": {"enum": ["c", "f"]}}, ["city"])
SWITCH = function("switch", {"on": {"type": "boolean"}}, ["on"])
MESSAGES = [{"role": "user", "content": "Weather?"}]


@pytest.fixture(scope="module")
def tool_server():
    with running("-c", "2048", "-np", "2", "-s", "7", "--no-warmup", "--chat-template", TEMPLATE, "--reasoning", "off") as process:
        yield process
        assert process.process.poll() is None, "the server has died:\n" + process.log()


@pytest.fixture(scope="module")
def tool_client(tool_server):
    return openai.OpenAI(base_url=tool_server.url + "/v1", api_key="unused", max_retries=0)


def ask(client, **fields):
    return client.chat.completions.create(**{"model": "any", "messages": MESSAGES, "tools": [WEATHER, SWITCH],
                                             "max_tokens": 300, "temperature": 0, "parallel_tool_calls": False, **fields})


def check_call(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert arguments["city"] in ("Paris", "Oslo") and set(arguments) <= {"city", "unit"}
    else:
        assert call.function.name == "switch" and arguments in ({"on": True}, {"on": False})
    assert call.id and call.type == "function"


def collect(stream):
    """What a client makes of the chunks."""
    content, reasoning, calls, reason = "", "", [], None
    for chunk in stream:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
        for piece in delta.tool_calls or []:
            if piece.index == len(calls):
                assert piece.id and piece.type == "function" and piece.function.name
                calls.append([piece.function.name, ""])
            else:
                assert piece.index == len(calls) - 1 and piece.id is None and piece.function.name is None
            calls[piece.index][1] += piece.function.arguments or ""
        reason = chunk.choices[0].finish_reason or reason
    return content, reasoning, calls, reason


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_valid_and_the_same_when_streamed(tool_client, seed):
    fields = dict(tool_choice="required", temperature=1.0, seed=seed)
    choice = ask(tool_client, **fields).choices[0]
    assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) == 1
    check_call(choice.message.tool_calls[0])
    _, _, calls, reason = collect(ask(tool_client, stream=True, **fields))
    assert calls == [[c.function.name, c.function.arguments] for c in choice.message.tool_calls]
    assert reason == "tool_calls"


def test_a_named_function_is_the_one_called(tool_client):
    for name in ("switch", "get_weather"):
        choice = ask(tool_client, tool_choice={"type": "function", "function": {"name": name}}).choices[0]
        assert [c.function.name for c in choice.message.tool_calls] == [name]


def test_names_with_more_signs_than_openais_are_called_and_those_that_no_format_can_end_are_refused(tool_client):
    for name in ("files.read", "mcp:files/read", "b" * 100):
        choice = ask(tool_client, tools=[function(name, {}, [])], tool_choice="required").choices[0]
        assert [c.function.name for c in choice.message.tool_calls] == [name]
    for name in ("read file", "f(x)", 'a"b'):
        with pytest.raises(openai.BadRequestError, match=r"tools\[1\].function.name.*get_weather, files.read"):
            ask(tool_client, tools=[SWITCH, function(name, {}, [])])


def test_several_calls_in_one_answer_where_they_are_allowed(tool_client):
    fields = dict(tool_choice="required", parallel_tool_calls=True)
    choice = ask(tool_client, **fields).choices[0]
    calls = choice.message.tool_calls
    assert len(calls) > 1 and len({c.id for c in calls}) == len(calls)
    for call in calls if choice.finish_reason == "tool_calls" else calls[:-1]:  # the last one may be cut off
        check_call(call)
    _, _, streamed, reason = collect(ask(tool_client, stream=True, **fields))
    assert streamed == [[c.function.name, c.function.arguments] for c in calls] and reason == choice.finish_reason


def test_the_model_chooses_where_it_may(tool_client):
    choice = ask(tool_client, tool_choice="auto", max_tokens=32).choices[0]
    assert choice.message.tool_calls is None and choice.message.content


def test_no_calls_when_there_is_no_choice(tool_client):
    choice = ask(tool_client, tool_choice="none", max_tokens=16).choices[0]
    assert choice.message.tool_calls is None and choice.finish_reason in ("stop", "length")


def test_results_go_back_into_the_prompt(tool_server, tool_client):
    call = {"id": "c1", "type": "function", "function": {"name": "switch", "arguments": '{"on": true}'}}
    messages = MESSAGES + [{"role": "assistant", "content": None, "tool_calls": [call]},
                           {"role": "tool", "tool_call_id": "c1", "content": "done"}]
    prompt = tool_server.post("/apply-template", {"messages": messages, "tools": [SWITCH]}).json()["prompt"]
    assert '<tool_call>{"name": "switch", "arguments": {"on": true}}</tool_call>' in prompt and "[tool]done" in prompt
    assert ask(tool_client, messages=messages, max_tokens=4).choices[0].message.role == "assistant"


def test_a_json_schema_holds_the_answer(tool_client):
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Oslo"]}}, "required": ["city"]}
    choice = ask(tool_client, tools=[], temperature=1.0, seed=3,
                 response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}).choices[0]
    assert json.loads(choice.message.content)["city"] in ("Paris", "Oslo") and choice.finish_reason == "stop"


def test_a_budget_ends_the_thought(tool_server, tool_client):
    body = dict(extra_body={"chat_template_kwargs": {"enable_thinking": True}, "reasoning_budget_tokens": 5},
                tools=[], max_tokens=24, temperature=1.0, seed=1)
    message = ask(tool_client, **body).choices[0].message
    content, reasoning, _, _ = collect(ask(tool_client, stream=True, **body))
    assert (content, reasoning) == (message.content, getattr(message, "reasoning_content", ""))
    assert "</think>" not in message.content
    whole = dict(body, extra_body={**body["extra_body"], "reasoning_format": "none"})
    assert ask(tool_client, **whole).choices[0].message.content.startswith("<think>")


def test_the_budgets_message_is_the_requests_own(tool_client):
    body = dict(extra_body={"chat_template_kwargs": {"enable_thinking": True}, "reasoning_budget_tokens": 0,
                            "reasoning_budget_message": "Enough."}, tools=[], max_tokens=24, temperature=1.0, seed=1)
    assert getattr(ask(tool_client, **body).choices[0].message, "reasoning_content", "").endswith("Enough.")


@pytest.mark.parametrize("flags", [("-j", '{"enum": ["yes", "no"]}')], ids=["schema"])
def test_a_schema_of_the_command_line_holds_the_answer_and_not_the_thought(flags):
    with running("-c", "512", "-np", "1", "--no-warmup", "--chat-template", TEMPLATE, *flags) as process:
        body = {"messages": MESSAGES, "max_tokens": 300, "temperature": 0, "reasoning_budget_tokens": 3}
        choice = process.post("/v1/chat/completions", body).json()["choices"][0]
        assert json.loads(choice["message"]["content"]) in ("yes", "no") and choice["finish_reason"] == "stop"
        own = process.post("/v1/chat/completions", {**body, "response_format": {"type": "json_schema", "json_schema": {
            "schema": {"const": 5}}}}).json()["choices"][0]["message"]["content"]
        assert own == "5"


THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.mark.parametrize("budget", [-1, 0, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_holds_the_answer_and_not_the_thought(tool_client, budget, stream):
    """Without a limit the model may think until the tokens end; then there is no answer yet."""
    fields = dict(tools=[], temperature=1.0, seed=1, max_tokens=40, stream=stream,
                  extra_body={**THINKING, "reasoning_budget_tokens": budget, "grammar": 'root ::= "yes" | "no"'})
    answer = ask(tool_client, **fields)
    if stream:
        content, reasoning, _, reason = collect(answer)
    else:
        choice = answer.choices[0]
        content, reasoning, reason = choice.message.content, getattr(choice.message, "reasoning_content", ""), choice.finish_reason
    if budget < 0:
        assert (content, reason) == ("", "length") or content in ("yes", "no")
    else:
        assert content in ("yes", "no") and reason == "stop" and bool(reasoning) == (budget > 0)


def test_without_thoughts_a_grammar_covers_all(tool_client):
    choice = ask(tool_client, tools=[], temperature=1.0, extra_body={"grammar": 'root ::= "yes" | "no"'}).choices[0]
    assert choice.message.content in ("yes", "no") and choice.finish_reason == "stop"


@pytest.mark.parametrize("budget", range(1, 5))
@pytest.mark.parametrize("demand", [{"tool_choice": "required"}, {"tools": [], "extra_body": {"json_schema": {"const": 5}}}],
                         ids=["call", "schema"])
def test_a_budget_that_ends_inside_a_character_ends_behind_it(tool_server, tool_client, budget, demand):
    """The model is made to think in characters of four bytes, a token each."""
    bias = {byte: 50 for byte in bytes_as_tokens(tool_server, "\U0001F600")}
    extra = {**THINKING, "reasoning_budget_tokens": budget, **demand.get("extra_body", {})}
    choice = ask(tool_client, **{**demand, "temperature": 1.0, "seed": 5, "max_tokens": 200, "logit_bias": bias,
                                 "extra_body": extra}).choices[0]
    assert "\ufffd" not in getattr(choice.message, "reasoning_content", "")
    if choice.message.tool_calls:
        check_call(choice.message.tool_calls[0])
    else:
        assert choice.message.content == "5"


def bytes_as_tokens(server, text):
    return [str(token) for token in server.post("/tokenize", {"content": text}).json()["tokens"]]


def test_a_budgets_message_that_ends_the_thought_itself_is_refused(tool_client):
    with pytest.raises(openai.BadRequestError, match="reasoning_budget_message"):
        ask(tool_client, tools=[], extra_body={**THINKING, "reasoning_budget_tokens": 0, "reasoning_budget_message": "a</think>b"})


@pytest.mark.parametrize("limit", range(1, 6))
def test_a_forced_call_that_is_cut_is_no_content(tool_client, limit):
    choice = ask(tool_client, tool_choice="required", max_tokens=limit).choices[0]
    assert not choice.message.content and choice.finish_reason == "length"


@pytest.mark.parametrize("fields, where", [
    (dict(tools={}), "tools"),
    (dict(tools=[{"type": "x"}]), r"tools\[0\]\.type"),
    (dict(tools=[WEATHER, {"type": "function"}]), r"tools\[1\]\.function"),
    (dict(tools=[function("", {}, [])]), r"tools\[0\]\.function\.name"),
    (dict(tools=[function("a\0b", {}, [])]), r"tools\[0\]\.function\.name"),
    (dict(tools=[SWITCH, SWITCH]), r"tools\[1\]\.function\.name.*tools\[0\]"),
    (dict(tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]), r"tools\[0\]\.function\.parameters"),
    (dict(tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]), r"parameters\.type"),
    (dict(tools=[function("f", {"x": {"enum": 3}}, [])]), r"tools\[0\]\.function\.parameters.*#/properties/x/enum"),
    (dict(tool_choice="maybe"), "tool_choice"),
    (dict(tool_choice={"type": "function", "function": {"name": "nobody"}}), "nobody"),
    (dict(tools=[], tool_choice="required"), "tool_choice"),
    (dict(tools=[WEATHER, function("f", {"x": {"$ref": "#/nowhere"}}, [])]), r"tools\[1\]\.function\.parameters"),
    (dict(response_format={"type": "xml"}), "response_format"),
    (dict(response_format={"type": "json_schema"}), "schema"),
    (dict(extra_body={"reasoning_format": "loud"}), "reasoning_format"),
    (dict(extra_body={"reasoning_budget_message": 5}), "reasoning_budget_message"),
    (dict(extra_body={"continue_final_message": True}), "continue_final_message"),
    (dict(stream=True, stream_options={"include_usage": 5}), "stream_options.include_usage"),
    (dict(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text"}]}]), r"messages\[0\]\.content\[1\]"),
    (dict(messages=[{"role": "user", "content": [{"type": "foo"}]}]), r"messages\[0\]\.content\[0\].*foo"),
    (dict(messages=[*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}]),
     r"messages\[1\]\.tool_calls\[0\]\.id"),
    (dict(extra_body={"grammar": 'root ::= "x"'}), "grammar"),
    (dict(stream=True, logprobs=True), "logprobs"),
])
def test_wrong_requests_name_the_place(tool_client, fields, where):
    with pytest.raises(openai.BadRequestError, match=where):
        ask(tool_client, **fields)
