// Which values schemas allow at their edges: what can never be there, what must be there, lists with listed items,
// large numbers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/grammar/grammar_builder.h"
#include "common/grammar/schema_document.h"
#include "ggml/error.h"
#include "grammar_test_support.h"

namespace common::grammar::testing {
namespace {

using nlohmann::ordered_json;

struct Case {
  const char* schema;
  std::vector<const char*> accepted, refused;
};

void check(const Case& c) {
  SCOPED_TRACE(c.schema);
  const auto grammar = Grammar::parse(schema_to_gbnf(ordered_json::parse(c.schema)));
  for (const char* text : c.accepted) EXPECT_TRUE(accepts(*grammar, text)) << text;
  for (const char* text : c.refused) EXPECT_FALSE(accepts(*grammar, text)) << text;
}

std::string error_of_schema(const char* schema) {
  try {
    (void)Grammar::parse(schema_to_gbnf(ordered_json::parse(schema)));
  } catch (const ggml::Error& error) {
    return error.message();
  }
  return {};
}

void expect_error(const char* schema, const std::string& start) {
  EXPECT_EQ(error_of_schema(schema).rfind("json_schema: " + start, 0), 0u) << schema << "\n" << error_of_schema(schema);
}

TEST(SchemaValues, WhatIsNeverAllowedIsLeftOutWhereverItLeadsTo) {
  const Case cases[] = {
      {R"({"properties":{"a":{"$ref":"#/$defs/n"},"b":{}},"$defs":{"n":false}})",
       {"{}", R"({"b":{}})"},
       {R"({"a":1})"}},
      {R"({"properties":{"a":{"anyOf":[false,{"$ref":"#/$defs/n"}]}},"$defs":{"n":{"oneOf":[false]}}})",
       {"{}"},
       {R"({"a":1})"}},
      {R"({"properties":{"a":{"allOf":[{"type":"string"},false]}}})", {"{}"}, {R"({"a":""})"}},
      {R"({"properties":{"a":{"required":["x"],"properties":{"x":false}}}})", {"{}"}, {R"({"a":{}})"}},
      {R"({"properties":{"a":{"type":"array","items":false,"minItems":1}}})", {"{}"}, {R"({"a":[]})"}},
      {R"({"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}],"$defs":{"n":false}})", {"null"}, {"1"}},
      {R"({"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"anyOf":[false]}}})", {"[]"}, {"[1]"}},
      {R"({"properties":{"a":{}},"additionalProperties":{"$ref":"#/$defs/n"},"$defs":{"n":false}})",
       {"{}", R"({"a":{}})"},
       {R"({"b":1})"}},
      {R"({"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"b":{"type":"null"}}}],"$defs":{"n":false}})",
       {R"({"b":null})"},
       {R"({"a":1,"b":null})"}},
      {R"({"allOf":[{"properties":{"b":{"type":"null"}}},{"anyOf":[false,{"properties":{"c":{"type":"null"}}}]}]})",
       {R"({"b":null})", R"({"b":null,"c":null})"},
       {R"({"c":null})"}},
      // A value that holds one of its own kind would never end.
      {R"({"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"required":["t"],"properties":{"t":{"$ref":"#/$defs/t"}}}}})",
       {"{}"},
       {R"({"a":{"t":{}}})"}},
  };
  for (const Case& c : cases) check(c);
  expect_error(R"({"properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":false}})",
               "#/$defs/n: the schema false");
  expect_error(R"({"anyOf":[{"$ref":"#/$defs/n"},false],"$defs":{"n":{"anyOf":[false]}}})",
               "#/anyOf: no value satisfies");
  expect_error(R"({"$ref":"#/$defs/t","$defs":{"t":{"required":["t"],"properties":{"t":{"$ref":"#/$defs/t"}}}}})",
               "#: no value satisfies this schema");
  expect_error(R"({"allOf":[{"properties":{"b":{}}},{"anyOf":[false]}]})", "#/allOf/1/anyOf: no value satisfies");
}

TEST(SchemaValues, WhatIsRequiredIsThereThoughNoPropertyIsCalledSo) {
  const Case cases[] = {
      {R"({"properties":{"a":{"type":"null"}},"required":["b"]})",
       {R"({"b":1})", R"({"b":[true],"a":null})"},
       {"{}", R"({"a":null})", R"({"b":1,"c":1})"}},
      {R"({"properties":{},"required":["b","b"],"additionalProperties":{"type":"null"}})",
       {R"({"b":null})", R"({"b":null,"c":null})"},
       {R"({"b":1})", "{}"}},
      {R"({"type":"object","required":["b"]})", {R"({"b":1})", R"({"b":1,"c":2})"}, {"{}", R"({"c":1})"}},
      {R"({"required":[]})", {"1", "{}"}, {}},
      {R"({"type":["object","null"],"required":["b"]})", {"null", R"({"b":1})"}, {"{}"}},
      {R"({"allOf":[{"properties":{"a":{"type":"null"}}},{"required":["b"]}]})",
       {R"({"a":null,"b":1})"},
       {R"({"a":null})"}},
      {R"({"allOf":[{"required":["b"]}]})", {R"({"b":1})", R"({"b":1,"c":2})"}, {"{}"}},
      {R"({"allOf":[{"anyOf":[{"properties":{"a":{"type":"null"}}}]}],"required":["a"]})", {R"({"a":null})"}, {"{}"}},
      {R"({"type":"string","allOf":[{"required":["b"]},{"maxLength":1}]})", {R"("x")"}, {R"("xy")"}},
  };
  for (const Case& c : cases) check(c);
  expect_error(R"({"properties":{"a":{}},"required":["b"],"additionalProperties":false})",
               "#/required: 'b' is required and no property");
  expect_error(R"({"allOf":[{"required":["x"]},{"properties":{"x":false}}]})",
               "#/allOf/0/required: 'x' is required, and #/allOf/1/properties/x never allows it");
  expect_error(
      R"({"allOf":[{"properties":{"x":{"$ref":"#/$defs/n"}}},{"allOf":[{"required":["x"]}]}],"$defs":{"n":false}})",
      "#/allOf/1/allOf/0/required: 'x' is required");
}

TEST(SchemaValues, ListedItemsStandInFrontOfOthersAsManyAsThereMayBe) {
  const Case cases[] = {
      {R"({"prefixItems":[{"type":"null"},{"type":"boolean"}]})",
       {"[null,true]", "[null, true]"},
       {"[]", "[null]", "[null,true,1]", "[true,null]"}},
      {R"({"prefixItems":[{"type":"null"}],"items":{"type":"integer"}})",
       {"[null]", "[null,1]", "[null, 1, 2]"},
       {"[]", "[1]", "[null,true]"}},
      {R"({"prefixItems":[{"type":"null"}],"items":false})", {"[null]"}, {"[null,1]", "[]"}},
      {R"({"prefixItems":[{"type":"null"},{"type":"boolean"}],"minItems":0})",
       {"[]", "[null]", "[null,true]"},
       {"[true]", "[null,true,1]"}},
      {R"({"prefixItems":[{"type":"null"},{"type":"boolean"}],"minItems":1,"items":{"type":"integer"},"maxItems":3})",
       {"[null]", "[null,true]", "[null,true,1]"},
       {"[]", "[null,1]", "[null,true,1,2]"}},
      {R"({"prefixItems":[{"type":"null"},{"type":"boolean"}],"maxItems":1})", {"[null]"}, {"[]", "[null,true]"}},
      {R"({"prefixItems":[{"type":"null"}],"maxItems":3})", {"[null]", "[null,{},1]"}, {"[null,1,1,1]"}},
      {R"({"prefixItems":[{"type":"null"}],"minItems":3})", {"[null,1,2]", "[null,1,2,3]"}, {"[null,1]"}},
      {R"({"prefixItems":[{"type":"null"},false],"minItems":0})", {"[]", "[null]"}, {"[null,1]"}},
      {R"({"items":[{"type":"null"}],"additionalItems":{"type":"integer"}})", {"[null]", "[null,1]"}, {"[null,true]"}},
      {R"({"type":"array","prefixItems":[{"type":"null"}],"maxItems":0})", {"[]"}, {"[null]"}},
  };
  for (const Case& c : cases) check(c);
  expect_error(R"({"prefixItems":[{"type":"null"},false]})", "#/prefixItems/1: the schema false");
  expect_error(R"({"prefixItems":[{"type":"null"}],"items":false,"minItems":2})", "#/items: the schema false");
}

TEST(SchemaValues, NumbersBeyondTheDigitsOfADoubleAreComparedExactly) {
  const Case cases[] = {
      {R"({"type":"integer","minimum":9007199254740992,"exclusiveMaximum":9007199254740993})",
       {"9007199254740992"},
       {"9007199254740991", "9007199254740993"}},
      {R"({"type":"integer","exclusiveMinimum":9007199254740992,"maximum":9007199254740993})",
       {"9007199254740993"},
       {"9007199254740992"}},
      {R"({"type":"integer","exclusiveMinimum":-9223372036854775808,"exclusiveMaximum":-9223372036854775806})",
       {"-9223372036854775807"},
       {"-9223372036854775808", "-9223372036854775806"}},
      {R"({"allOf":[{"type":"integer","minimum":9007199254740992},{"minimum":9007199254740993,"maximum":9007199254740994}]})",
       {"9007199254740993", "9007199254740994"},
       {"9007199254740992"}},
      {R"({"type":"integer","minimum":18446744073709551614,"exclusiveMaximum":18446744073709551615})",
       {"18446744073709551614"},
       {"18446744073709551615"}},
  };
  for (const Case& c : cases) check(c);
  expect_error(R"({"type":"integer","minimum":9007199254740993,"maximum":9007199254740992})",
               "#/maximum: 9007199254740992 is below minimum, which is 9007199254740993");
  expect_error(R"({"type":"number","exclusiveMinimum":9007199254740993,"maximum":9007199254740993})",
               "#/maximum: no number lies between");
}

// Ways through branches that share their ends double with each level.
TEST(SchemaValues, EmptySchemasOfManyWaysAreEmptyAllTheSame) {
  // 2^40 ways lead to the one that is empty: what was found of each is kept.
  ordered_json defs = {{"d40", ordered_json::parse(R"({"required":["x"],"properties":{"x":false}})")}};
  for (int i = 0; i < 40; ++i) {
    const ordered_json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    defs["d" + std::to_string(i)] = {{"anyOf", {next, next}}};
  }
  const ordered_json schema = {{"anyOf", {{{"$ref", "#/$defs/d0"}}, {{"type", "null"}}}}, {"$defs", defs}};
  EXPECT_EQ(schema_to_gbnf(schema).find("d40"), std::string::npos);
  // What is empty inside of a circle may have values outside of it.
  check({R"({"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],
             "$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/b"}},"required":["n"]},
                      "b":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}})",
         {"null", R"({"n":null})", R"({"n":{"n":null}})"},
         {"{}"}});
}

TEST(SchemaValues, TheSearchForEmptySchemasEnds) {
  ordered_json defs = ordered_json::object();
  for (int i = 0; i < 200; ++i) {
    const ordered_json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    defs["d" + std::to_string(i)] = {{"anyOf", {next, next}}};
  }
  defs["d200"] = false;
  const ordered_json document = {{"$defs", defs}};
  SchemaDocument places(document);
  EmptySchemas empty(places);
  (void)empty.is_empty(document["$defs"]["d0"]);
  EXPECT_TRUE(EmptySchemas(places).is_empty(document["$defs"]["d190"]));
}

}  // namespace
}  // namespace common::grammar::testing
