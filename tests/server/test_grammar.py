"""Answers that must follow a grammar or a schema, from a model of random weights: only the mask can make them right."""

import json

import httpx
import openai
import pytest

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "kind"],
}
HOT = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def is_person(text):
    value = json.loads(text)
    assert set(value) <= {"name", "age", "kind", "tags"} and {"name", "age", "kind"} <= set(value)
    assert len(value["name"]) <= 8 and 0 <= value["age"] <= 120 and value["kind"] in ("cat", "dog")


def complete(server, **fields):
    response = server.post("/completion", {"prompt": "the", "n_predict": 200, **HOT, **fields})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("seed", range(5))
def test_a_schema_makes_a_random_model_write_json_of_it(server, seed):
    answer = complete(server, json_schema=PERSON, seed=seed)
    assert answer["stop_type"] == "eos"
    is_person(answer["content"])
    assert answer["generation_settings"]["grammar"].startswith("root ::= ")


@pytest.mark.parametrize("seed", range(3))
def test_a_grammar_is_followed_to_its_end(server, seed):
    answer = complete(server, grammar='root ::= ("yes" | "no") " " [a-c]{3}', seed=seed)
    word, letters = answer["content"].split(" ")
    assert word in ("yes", "no") and len(letters) == 3 and set(letters) <= set("abc")


@pytest.mark.parametrize("fields", [{"ignore_eos": True}, {"logit_bias": [[2, False]]}], ids=str)
def test_a_finished_grammar_ends_the_answer_whatever_bans_the_end(server, fields):
    """The text is whole and nothing may follow it: there is no other token than the end."""
    answer = complete(server, grammar='root ::= "yes"', **fields)
    assert (answer["content"], answer["stop_type"]) == ("yes", "eos")
    assert complete(server, grammar='root ::= "yes"', temperature=0, n_probs=2, **fields)["content"] == "yes"
    assert complete(server, grammar='root ::= "yes"', samplers=["top_k", "infill"], **fields)["content"] == "yes"


def test_a_ban_on_the_end_holds_while_the_grammar_can_go_on(server):
    answer = complete(server, grammar='root ::= "a"*', ignore_eos=True, n_predict=12)
    assert set(answer["content"]) == {"a"} and answer["stop_type"] == "limit" and answer["tokens_predicted"] == 12


def test_a_grammar_wins_over_a_schema_and_an_empty_one_asks_for_nothing(server):
    assert complete(server, grammar='root ::= "ok"', json_schema=PERSON)["content"] == "ok"
    assert complete(server, grammar="", json_schema={"const": 7})["content"] == "7"


def test_streams_and_several_answers_follow_it_too(server):
    with httpx.stream("POST", server.url + "/completion", timeout=60,
                      json={"prompt": "the", "n_predict": 200, "stream": True, "json_schema": PERSON, **HOT}) as stream:
        events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {")]
    is_person("".join(event["content"] for event in events))
    response = server.post("/v1/completions", {"prompt": "the", "max_tokens": 200, "n": 2, "json_schema": PERSON, **HOT})
    for choice in response.json()["choices"]:
        is_person(choice["text"])


BAD_GRAMMARS = [
    ({"grammar": "root ::= \"a\"\nb ::= [x"}, "line 2, column 7"),
    ({"grammar": "root ::= root"}, "left recursion"),
    ({"grammar": "x ::= \"a\""}, "no rule 'root'"),
    ({"grammar": "root ::= " + "(" * 5000}, "nest deeper"),
    ({"grammar": "root ::= \"a\"{5000}"}, "limit is 2000"),
    ({"grammar": "root ::= <no such token>"}, "not one"),
    ({"grammar": 7}, "grammar"),
    ({"json_schema": {"properties": {"a": {"type": "widget"}}}}, "#/properties/a/type"),
    ({"json_schema": {"$ref": "#/nowhere"}}, "#/$ref"),
    ({"json_schema": {"pattern": "^(a$"}}, "offset 1"),
    ({"json_schema": "text"}, "json_schema"),
    ({"json_schema": {"type": "object", "additionalProperties": 5}}, "#/additionalProperties: expected a schema, got 5"),
    ({"json_schema": {"type": "array", "prefixItems": 5}}, "#/prefixItems"),
    ({"json_schema": {"type": "object", "properties": {"a": {}}, "required": "a"}}, "#/required"),
    ({"json_schema": {"properties": {"a": {"enum": 3}}}}, "#/properties/a/enum"),
    ({"json_schema": {"type": "number", "minimum": "x"}}, "#/minimum"),
    ({"json_schema": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "#/allOf/1/type"),
    ({"json_schema": {"type": "number", "minimum": 2, "maximum": 1}}, "#/maximum"),
    ({"json_schema": {"type": "integer", "pattern": "a("}}, "#/pattern: pattern \"a(\", offset 1: this group is never closed"),
    ({"json_schema": {"patternProperties": {"[z-a]": {}}}}, "#/patternProperties/[z-a]: pattern \"[z-a]\", offset 2"),
    ({"json_schema": {"not": {"properties": {"a": {"pattern": "*"}}}}}, "#/not/properties/a/pattern"),
]


@pytest.mark.parametrize("fields,named", BAD_GRAMMARS, ids=[str(fields)[:60] for fields, _ in BAD_GRAMMARS])
def test_what_is_wrong_with_a_grammar_is_400_with_its_place(server, fields, named):
    response = server.post("/completion", {"prompt": "the", "n_predict": 2, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and named in error["message"], error["message"]


CANNOT_BEGIN = [
    ({"grammar": 'root ::= [^\\x00-\\U0010ffff]'}, "the answer cannot begin"),
    ({"grammar": 'root ::= "\\x00"'}, "the answer cannot begin"),
    ({"json_schema": {"type": "string", "pattern": "^[^\\u0000-\U0010ffff]$"}}, "no character"),
]


@pytest.mark.parametrize("fields,named", CANNOT_BEGIN, ids=["no character", "nul", "pattern"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_cannot_begin_is_400_with_the_reason(server, fields, named, stream):
    response = server.post("/completion", {"prompt": "the", "n_predict": 4, "stream": stream, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and named in error["message"], error["message"]
    assert "Field '" + next(iter(fields)) in error["message"]


def test_a_grammar_that_dies_later_ends_its_request_with_an_error_of_its_own(server):
    """Behind the a no token of the vocabulary may follow."""
    fields = {"prompt": "the", "n_predict": 8, "grammar": 'root ::= "a" "\\x00"'}
    response = server.post("/completion", fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and "cannot go on after 1 token: grammar: no token" in error["message"]
    with httpx.stream("POST", server.url + "/completion", json={**fields, "stream": True}, timeout=60) as stream:
        events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {")]
    assert events[0]["content"] == "a" and events[-1]["error"]["code"] == 400
    assert complete(server, grammar='root ::= "ok"')["content"] == "ok"


def test_a_hopelessly_ambiguous_grammar_costs_only_its_own_request(server):
    """Forty rules that may each be read in two ways: soon a text has more readings than may be followed at once."""
    rules = [f"r{i} ::= r{i + 1} | r{i + 1} r{i + 1}" for i in range(40)]
    grammar = "\n".join(["root ::= r0", *rules, 'r40 ::= "a"'])
    response = server.post("/completion", {"prompt": "the", "n_predict": 60, "grammar": grammar, "ignore_eos": True})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error", error
    assert "the answer cannot go on after" in error["message"] and "too many different ways" in error["message"]
    assert complete(server, grammar='root ::= "ok"')["content"] == "ok"


def test_the_openai_client_gets_json_of_its_schema(client):
    for seed in range(3):
        answer = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "the"}], max_tokens=200, temperature=1.5, seed=seed,
            response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}})
        is_person(answer.choices[0].message.content)
        assert answer.choices[0].finish_reason == "stop"


def test_any_object_is_what_json_object_asks_for(client):
    answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "the"}], max_tokens=400,
                                            temperature=0.2, seed=3, response_format={"type": "json_object"})
    assert answer.choices[0].message.content.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.parametrize("response_format,named", [
    ({"type": "poem"}, "response_format"),
    ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "widget"}}}, "widget"),
], ids=["type", "schema"])
def test_a_bad_response_format_is_400(client, response_format, named):
    with pytest.raises(openai.BadRequestError, match=named):
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "the"}], max_tokens=2,
                                       response_format=response_format)
