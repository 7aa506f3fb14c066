#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "common/grammar/grammar_builder.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/schema_rules.h"
#include "ggml/error.h"
#include "grammar_test_support.h"
#include "test_support.h"

namespace common::grammar::testing {
namespace {

using nlohmann::ordered_json;

ordered_json json(const char* text) {
  return ordered_json::parse(text);
}

std::shared_ptr<const Grammar> grammar_of(const char* schema) {
  return Grammar::parse(schema_to_gbnf(json(schema)));
}

bool fits(const char* schema, std::string_view text) {
  return accepts(*grammar_of(schema), text);
}

std::string schema_error_of(const ordered_json& schema) {
  try {
    (void)Grammar::parse(schema_to_gbnf(schema));
  } catch (const ggml::Error& error) {
    return error.message();
  }
  return {};
}

TEST(JsonSchema, ErrorsNameTheJsonPointer) {
  const auto expect = [](const char* schema, const char* start) {
    const std::string message = schema_error_of(json(schema));
    EXPECT_EQ(message.rfind(start, 0), 0u) << message;
  };
  expect(R"({"properties":{"a/b~":{"type":"widget"}}})",
         "json_schema: #/properties/a~1b~0/type: unknown type 'widget'");
  expect(R"({"items":{"$ref":"#/$defs/none"}})", "json_schema: #/items/$ref: '#/$defs/none' leads nowhere");
  expect(R"({"$ref":"#"})", "json_schema: #/$ref: '#' is not supported");
  expect(R"({"$ref":"https://example.org/x"})", "json_schema: #/$ref:");
  expect(R"({"$ref":5})", "json_schema: #/$ref: expected a string, got 5");
  expect(R"({"anyOf":[{"type":"string"},7]})", "json_schema: #/anyOf/1: expected a schema");
  expect(R"({"anyOf":[]})", "json_schema: #/anyOf: expected a list");
  expect(R"({"enum":[]})", "json_schema: #/enum: expected a list");
  expect(R"({"type":[]})", "json_schema: #/type: expected a type name or a list of them, got []");
  expect(R"({"type":7})", "json_schema: #/type: expected a type name");
  expect(R"({"type":"string","pattern":"x$"})", "json_schema: #/pattern: pattern \"x$\", offset 0: must begin with ^");
  expect(R"({"type":"string","pattern":"^x\\$"})", "json_schema: #/pattern: pattern");
  expect(R"({"type":"string","pattern":"^(a$"})",
         "json_schema: #/pattern: pattern \"^(a$\", offset 1: this group is never closed");
  expect(R"({"type":"string","pattern":"^a**$"})", "json_schema: #/pattern: pattern");
  expect(R"({"type":"string","pattern":"^\\p{L}$"})", "json_schema: #/pattern: pattern");
  expect(R"({"type":"string","pattern":"^a)b$"})", "json_schema: #/pattern: pattern");
  expect(R"({"type":"array","minItems":-1})", "json_schema: #/minItems: expected a whole number of 0 or more, got -1");
  expect(R"({"type":"array","minItems":3,"maxItems":2})", "json_schema: #/maxItems: 2 is below minItems, which is 3");
  expect(R"({"type":"string","minLength":5000})", "json_schema: #/minLength: 5000 is above the limit");
  expect(R"({"type":"integer","minimum":5,"maximum":4})", "json_schema: #/maximum: 4 is below minimum, which is 5");
  expect(R"({"type":"integer","minimum":1.5,"maximum":1.7})", "json_schema: #: no whole number");
  expect(R"({"type":"integer","minimum":"a"})", "json_schema: #/minimum: expected a number, got \"a\"");
  expect(R"({"allOf":[{"enum":[1]},{"enum":[2]}]})", "json_schema: #/allOf: the enums have no value in common");
  expect(R"(false)", "json_schema: #: the schema false");
  expect(R"({"properties":{"a":false},"required":["a"]})", "json_schema: #/properties/a: the schema false");
  expect(R"({"items":false,"minItems":1})", "json_schema: #/items: the schema false");
  expect(R"({"anyOf":[false,false]})", "json_schema: #/anyOf: no value satisfies any of them");
}

TEST(JsonSchema, AKeywordOfTheWrongTypeIsAnErrorAtItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"additionalProperties":5})", "#/additionalProperties: expected a schema, got 5"},
      {R"({"prefixItems":5})", "#/prefixItems: expected a list of at least one schema, got 5"},
      {R"({"prefixItems":[{},3]})", "#/prefixItems/1: expected a schema, got 3"},
      {R"({"items":"x"})", "#/items: expected a schema or a list of schemas, got \"x\""},
      {R"({"properties":{"a":{"required":"a"}}})", "#/properties/a/required: expected a list of names, got \"a\""},
      {R"({"required":[1]})", "#/required: expected a list of names, got [1]"},
      {R"({"enum":3})", "#/enum: expected a list of at least one value, got 3"},
      {R"({"type":"number","minimum":"x"})", "#/minimum: expected a number, got \"x\""},
      {R"({"type":"string","maximum":{}})", "#/maximum: expected a number, got {}"},
      {R"({"type":"string","minLength":1.5})", "#/minLength: expected a whole number of 0 or more, got 1.5"},
      {R"({"type":"integer","pattern":5})", "#/pattern: expected a string, got 5"},
      {R"({"type":"string","format":[]})", "#/format: expected a string, got []"},
      {R"({"properties":[]})", "#/properties: expected an object of schemas, got []"},
      {R"({"properties":{"a/b":7}})", "#/properties/a~1b: expected a schema, got 7"},
      {R"({"$defs":5})", "#/$defs: expected an object of schemas, got 5"},
      {R"({"$defs":{"x":5}})", "#/$defs/x: expected a schema, got 5"},
      {R"({"type":"string","not":5})", "#/not: expected a schema, got 5"},
      {R"({"anyOf":{}})", "#/anyOf: expected a list of at least one schema, got {}"},
      {R"({"anyOf":[{"type":"string"}],"allOf":3})", "#/allOf: expected a list"},
      {R"({"type":{"a":1}})", "#/type: expected a type name or a list of them"},
      {R"({"type":["string",5]})", "#/type: expected a type name or a list of them"},
      {R"({"uniqueItems":"yes"})", "#/uniqueItems: expected true or false"},
      {R"({"multipleOf":0})", "#/multipleOf: expected a number above 0"},
      {R"({"allOf":[{"minimum":"x"}]})", "#/allOf/0/minimum: expected a number"},
      {R"({"allOf":[{"anyOf":5}]})", "#/allOf/0/anyOf: expected a list"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_EQ(schema_error_of(json(schema)).rfind("json_schema: " + std::string(message), 0), 0u)
        << schema << "\n"
        << schema_error_of(json(schema));
}

TEST(RegexSyntax, WhatNoDialectReadsIsAFaultWithItsPlace) {
  const auto fault = [](std::string_view pattern) {
    const auto found = find_regex_fault(pattern);
    return found ? std::to_string(found->offset) + " " + found->what : "none";
  };
  const std::pair<std::string_view, const char*> faults[] = {
      {"(a", "0 this group is never closed"},
      {"a(b(?:c)", "1 this group is never closed"},
      {"(?<name", "0 this group is never closed"},
      {"(?#never", "0 this group is never closed"},
      {"a)b", "1 there is no group that this ')' closes"},
      {"x[a-", "1 this '[' is never closed"},
      {"[^\\]", "0 this '[' is never closed"},
      {"[", "0 this '[' is never closed"},
      {"[z-a]", "2 the range ends before it begins"},
      {"[\\x41-\\x40]", "5 the range ends before it begins"},
      {"[é-a]", "3 the range ends before it begins"},
      {"*a", "0 there is nothing to repeat"},
      {"(|+)", "2 there is nothing to repeat"},
      {"(?=*)", "3 there is nothing to repeat"},
      {"^{2}", "1 there is nothing to repeat"},
      {"a**", "2 repetition of a repetition"},
      {"a{2}{3}", "4 repetition of a repetition"},
      {"a{5,2}", "1 the repetition ends below its beginning"},
      {"a{100000000000000000000,99999999999999999999}", "1 the repetition ends below its beginning"},
      {"(?*a)", "0 there is no such kind of group"},
      {"a\\", "1 the escape is cut off"},
  };
  for (const auto& [pattern, message] : faults) EXPECT_EQ(fault(pattern), message) << pattern;
  // What some dialects know, and what reads like a mistake but is text.
  for (const std::string_view pattern : {"",
                                         "^$",
                                         "a{,2}",
                                         "a{2",
                                         "a{x}",
                                         "]",
                                         "}",
                                         "a|",
                                         "[]",
                                         "[^]",
                                         "[a-]",
                                         "[-a]",
                                         "[\\w-z]",
                                         "[a-\\d]",
                                         "[\\x0F-0]",
                                         "[[:alpha:]_]",
                                         "[\\u{1F600}-\\u{1F64F}]",
                                         "(?i)a",
                                         "(?i-s:a)",
                                         "(?>a)",
                                         "(?P<n>a)(?P=n)",
                                         "(?<n>a)\\k<n>",
                                         "(?<=a)b(?<!c)",
                                         "(?(1)a|b)",
                                         "(?#words)",
                                         "a++",
                                         "a*?b{2,}?",
                                         "\\p{L}+\\P{Lu}",
                                         "\\x4",
                                         "\\u12",
                                         "\\c",
                                         "\\1\\b",
                                         "(?:(?=a))*",
                                         "\\Aab\\z",
                                         "é{2}日+"})
    EXPECT_EQ(fault(pattern), "none") << pattern;
  EXPECT_EQ(fault(std::string(1'000'000, '(') + std::string(1'000'000, ')')), "none") << "no recursion";
}

TEST(RegexSyntax, TakesAnyText) {
  std::mt19937 random(8);
  const int n_rounds = tandem::rounds(30'000);
  constexpr const char* kParts[] = {"(", ")", "[", "]", "{", "}", "?", "*", "+", "\\", "^", "-", "|", "<",
                                    ">", ":", "=", "!", "P", "#", "1", ",", "x", "u",  "é", "'", "$", ""};
  for (int round = 0; round < n_rounds; ++round) {
    std::string text = "^";
    for (std::size_t n = random() % 12; n > 0; --n) text += kParts[random() % std::size(kParts)];
    text += "$";
    if (const auto fault = find_regex_fault(text)) {
      ASSERT_LT(fault->offset, text.size()) << text;
      ASSERT_EQ(schema_error_of({{"pattern", text}}).rfind("json_schema: #/pattern: ", 0), 0u) << text;
    } else {
      (void)schema_error_of({{"pattern", text}});  // read, or refused as not supported
    }
  }
}

TEST(JsonSchema, ExpressionsAreCheckedWhereTheyAreIgnoredToo) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"integer","pattern":"(a"})", "#/pattern: pattern \"(a\", offset 0: this group is never closed"},
      {R"({"type":"string","enum":["x"],"pattern":"a**"})", "#/pattern: pattern \"a**\", offset 2: repetition of a"},
      {R"({"patternProperties":{"^[a/":{}}})",
       "#/patternProperties/^[a~1: pattern \"^[a/\", offset 1: this '[' is never closed"},
      {R"x({"type":"object","properties":{"a":{"patternProperties":{"x":{"pattern":")"}}}}})x",
       "#/properties/a/patternProperties/x/pattern: pattern \")\", offset 0"},
      {R"({"type":"string","not":{"pattern":"[z-a]"}})", "#/not/pattern: pattern"},
      {R"({"if":{"properties":{"k":{"pattern":"a{3,1}"}}},"then":{}})", "#/if/properties/k/pattern: pattern"},
      {R"({"$defs":{"unused":{"pattern":"\\"}},"type":"null"})", "#/$defs/unused/pattern: pattern"},
      {R"({"type":"array","contains":{"items":[{},{"pattern":"?"}]}})", "#/contains/items/1/pattern: pattern"},
      {R"({"propertyNames":{"pattern":5}})", "#/propertyNames/pattern: expected a string, got 5"},
      {R"({"dependentSchemas":{},"else":{"required":"a"}})", "#/else/required: expected a list of names"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_EQ(schema_error_of(json(schema)).rfind("json_schema: " + std::string(message), 0), 0u)
        << schema << "\n"
        << schema_error_of(json(schema));
  // Where it is ignored an expression may be of any dialect, and needs no ^ and $.
  EXPECT_TRUE(fits(R"({"type":"integer","pattern":"(?i)\\p{L}\\b"})", "5"));
  EXPECT_TRUE(fits(R"({"patternProperties":{"x|y":{"type":"null"},"\\d+":true},"properties":{"a":{}}})", "{}"));
  // Names of properties and values are no keywords.
  EXPECT_TRUE(fits(R"({"properties":{"pattern":{"type":"null"},"required":{"const":{"pattern":"("}}}})", "{}"));
}

TEST(JsonSchema, HugeSchemasAreConvertedOrRefusedInLinearTime) {
  constexpr int kMany = 70'000;
  const auto name = [](const char* head, int i) { return head + std::to_string(i); };
  ordered_json defs = ordered_json::object(), referring = ordered_json::object(), nulls = ordered_json::object();
  ordered_json names = ordered_json::array(), texts = ordered_json::array();
  // Built as the parser of JSON does it; by [] each new key is compared with all before it.
  const auto add = [](ordered_json& object, std::string key, ordered_json value) {
    object.get_ref<ordered_json::object_t&>().emplace_back(std::move(key), std::move(value));
  };
  for (int i = 0; i < kMany; ++i) {
    if (i < kMany / 3) add(defs, name("d", i), {{"type", "null"}});
    if (i < kMany / 3) add(referring, name("p", i), {{"$ref", name("#/$defs/d", kMany / 3 - 1 - i)}});
    if (i < kMany / 2) add(nulls, name("p", i), {{"type", "null"}});
    if (i < kMany / 2) names.push_back(name("p", i));
    texts.push_back(name("t", i));
  }
  const auto outcome = [](const ordered_json& schema) {
    const std::string error = schema_error_of(schema);
    return error.empty() || error.find("too large") != std::string::npos ||
                   error.find("longer than") != std::string::npos || error.find("nodes") != std::string::npos
               ? ""
               : error.substr(0, 300);
  };
  EXPECT_EQ(outcome({{"$defs", defs}, {"properties", referring}}), "");
  EXPECT_EQ(outcome({{"properties", nulls}, {"required", names}}), "");
  EXPECT_EQ(
      outcome({{"allOf", {{{"properties", nulls}}, {{"anyOf", {{{"properties", nulls}}, {{"properties", nulls}}}}}}}}),
      "");
  EXPECT_EQ(outcome({{"allOf", {{{"enum", texts}}, {{"enum", texts}}}}}), "");
  EXPECT_EQ(
      outcome({{"type", "array"}, {"prefixItems", ordered_json(std::vector<ordered_json>(kMany, {{"type", "null"}}))}}),
      "");
  std::string pattern = "^";
  for (int i = 0; i < 100'000; ++i) pattern += "a+b";
  EXPECT_EQ(outcome({{"pattern", pattern + "$"}}), "");
  EXPECT_NE(schema_error_of({{"type", texts}, {"const", 1}}).find("#/type: expected a type name or a list"),
            std::string::npos);
  EXPECT_NE(
      schema_error_of({{"items", {{"$defs", nulls}}}, {"$defs", nulls}, {"properties", nulls}}).find("80000 schemas"),
      std::string::npos);
}

TEST(JsonSchema, ContradictionsAreErrorsAtTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"number","minimum":2,"maximum":1})", "#/maximum: 1 is below minimum, which is 2"},
      {R"({"type":"string","minLength":3,"maxLength":1})", "#/maxLength: 1 is below minLength, which is 3"},
      {R"({"type":"object","minProperties":3,"maxProperties":1})", "#/maxProperties: 1 is below minProperties"},
      {R"({"type":"number","exclusiveMinimum":2,"exclusiveMaximum":2})", "#/exclusiveMaximum: no number lies between"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})",
       "#/allOf/1/type: no value is both string, as #/allOf/0/type demands, and integer"},
      {R"({"type":"object","allOf":[{"type":"string"}]})",
       "#/allOf/0/type: no value is both object, as #/type demands"},
      {R"({"allOf":[{"properties":{"a":{}}},{"type":["string","null"]}]})", "#/allOf/1/type: no value is both object"},
      {R"({"allOf":[{"$ref":"#/$defs/a"},{"type":"null"}],"$defs":{"a":{"type":"string"}}})",
       "#/allOf/1/type: no value is both string, as #/$defs/a/type demands"},
      {R"({"allOf":[{"type":"integer","minimum":5},{"maximum":3}]})", "#/maximum: 3 is below minimum, which is 5"},
      {R"({"allOf":[{"type":"string"},false]})", "#/allOf/1: the schema false"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_EQ(schema_error_of(json(schema)).rfind("json_schema: " + std::string(message), 0), 0u)
        << schema << "\n"
        << schema_error_of(json(schema));
}

TEST(JsonSchema, WhatOlderDraftsAndSloppyClientsWriteIsTaken) {
  EXPECT_TRUE(fits(R"({"type":"object","properties":{"a":{"type":"string","required":true}},"required":null})", "{}"));
  EXPECT_TRUE(fits(R"({"type":"string","enum":null,"pattern":null,"minLength":null,"description":null})", "\"x\""));
  EXPECT_TRUE(fits(R"({"type":"integer","minimum":4,"exclusiveMinimum":false})", "4"));
  EXPECT_TRUE(fits(R"({"allOf":[{"type":"number"},{"type":"integer"},true]})", "7"));
  EXPECT_FALSE(fits(R"({"allOf":[{"type":"number"},{"type":"integer"}]})", "7.5"));
  EXPECT_TRUE(fits(R"({"allOf":[{"type":"integer","minimum":3},{"minimum":5,"maximum":9},{"maximum":20}]})", "9"));
  for (const char* text : {"4", "10"})
    EXPECT_FALSE(fits(R"({"allOf":[{"type":"integer","minimum":3},{"minimum":5,"maximum":9},{"maximum":20}]})", text));
}

TEST(JsonSchema, ReferencesWithoutEndAreRefused) {
  for (
      const char* schema :
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}}})",
       R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}})"}) {
    EXPECT_NE(schema_error_of(json(schema)), "") << schema;
  }
  EXPECT_TRUE(fits(R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"null"}}})", "null"));
}

TEST(JsonSchema, SchemasThatGrowWithoutBoundAreRefused) {
  ordered_json defs = ordered_json::object();
  for (int i = 0; i < 40; ++i) {
    const std::string next = "#/$defs/d" + std::to_string(i + 1);
    defs["d" + std::to_string(i)] = {{"allOf", {{{"$ref", next}}, {{"$ref", next}}}}};
  }
  defs["d40"] = {{"properties", {{"a", {{"type", "null"}}}}}};
  EXPECT_NE(schema_error_of({{"allOf", {{{"$ref", "#/$defs/d0"}}}}, {"$defs", defs}}), "");
  ordered_json deep = {{"type", "null"}};
  for (int i = 0; i < 600; ++i) deep = {{"items", deep}};
  EXPECT_NE(schema_error_of(deep).find("nest deeper"), std::string::npos);
}

// A member or item of the schema false is simply not there.
TEST(JsonSchema, FalseForbidsOnlyWhatItStandsFor) {
  const char* object = R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})";
  EXPECT_TRUE(fits(object, "{}"));
  EXPECT_TRUE(fits(object, R"({"b":null})"));
  EXPECT_FALSE(fits(object, R"({"a":null})"));
  const char* open = R"({"type":"object","properties":{"a":false},"additionalProperties":{"type":"null"}})";
  EXPECT_TRUE(fits(open, R"({"b":null,"ab":null})"));
  EXPECT_FALSE(fits(open, R"({"a":null})"));
  EXPECT_TRUE(fits(R"({"type":"object","properties":{"a":false}})", "{}"));
  EXPECT_FALSE(fits(R"({"type":"object","properties":{"a":false}})", R"({"a":1})"));
  EXPECT_TRUE(fits(R"({"type":"array","items":false})", "[]"));
  EXPECT_FALSE(fits(R"({"type":"array","items":false})", "[1]"));
  EXPECT_TRUE(fits(R"({"anyOf":[false,{"type":"null"}]})", "null"));
  const char* merged =
      R"({"allOf":[{"properties":{"a":{"type":"null"},"b":{"type":"null"}}},{"properties":{"a":false}}]})";
  EXPECT_TRUE(fits(merged, R"({"b":null})"));
  EXPECT_FALSE(fits(merged, R"({"a":null,"b":null})"));
}

TEST(JsonSchema, BoundsBeyondMachineNumbersAreExactOrRefused) {
  EXPECT_TRUE(fits(R"({"type":"integer","minimum":1e19,"maximum":1e19})", "10000000000000000000"));
  EXPECT_FALSE(fits(R"({"type":"integer","minimum":1e19,"maximum":1e19})", "9200000000000000000"));
  EXPECT_TRUE(fits(R"({"type":"integer","exclusiveMinimum":1e30,"maximum":2e30})", "1" + std::string(29, '0') + "1"));
  EXPECT_FALSE(fits(R"({"type":"integer","exclusiveMinimum":1e30,"maximum":2e30})", "1" + std::string(30, '0')));
  EXPECT_TRUE(fits(R"({"type":"integer","maximum":-1e30})", "-1" + std::string(30, '0')));
  EXPECT_FALSE(fits(R"({"type":"integer","maximum":-1e30})", "-9" + std::string(29, '9')));
  EXPECT_TRUE(fits(R"({"type":"integer","minimum":18446744073709551615})", "18446744073709551615"));
  EXPECT_FALSE(fits(R"({"type":"integer","minimum":18446744073709551615})", "18446744073709551614"));
  EXPECT_TRUE(fits(R"({"type":"integer","exclusiveMinimum":18446744073709551615})", "18446744073709551616"));
  EXPECT_NE(schema_error_of(json(R"({"items":{"type":"integer","minimum":12345678901234567890123}})"))
                .find("#/items/minimum: 1.2345678901234568e+22 has more digits"),
            std::string::npos);
  const auto next = [](const char* digits, bool negative, int step) {
    return WholeNumber{negative, digits}.next(step).text();
  };
  EXPECT_EQ(next("0", false, -1), "-1");
  EXPECT_EQ(next("1", false, -1), "0");
  EXPECT_EQ(next("1", true, 1), "0");
  EXPECT_EQ(next("1000", false, -1), "999");
  EXPECT_EQ(next("999", true, -1), "-1000");
  EXPECT_EQ(next("1000", true, 1), "-999");
}

WholeNumber whole(std::int64_t n) {
  return {n < 0, std::to_string(n < 0 ? -n : n)};
}

TEST(JsonSchema, IntegerRangesAreExact) {
  const std::int64_t bounds[] = {-1234, -1000, -101, -100, -99, -10, -9,  -1,  0,    1,   5,
                                 9,     10,    11,   99,   100, 109, 110, 999, 1000, 1234};
  for (const std::int64_t min : bounds) {
    for (const std::int64_t max : bounds) {
      if (min > max) continue;
      const auto grammar = Grammar::parse("root ::= " + integer_range(whole(min), whole(max)));
      for (std::int64_t n = -1300; n <= 1300; n += (n % 10 == 9 || n % 10 == -1) ? 1 : 3)
        ASSERT_EQ(accepts(*grammar, std::to_string(n)), min <= n && n <= max) << n << " in " << min << ".." << max;
      ASSERT_FALSE(accepts(*grammar, "007"));
      ASSERT_FALSE(accepts(*grammar, "-0"));
    }
  }
  for (const std::int64_t bound : bounds) {
    const auto from = Grammar::parse("root ::= " + integer_range(whole(bound), std::nullopt));
    const auto to = Grammar::parse("root ::= " + integer_range(std::nullopt, whole(bound)));
    for (std::int64_t n = -1300; n <= 1300; n += 7) {
      ASSERT_EQ(accepts(*from, std::to_string(n)), bound <= n) << n << " from " << bound;
      ASSERT_EQ(accepts(*to, std::to_string(n)), n <= bound) << n << " to " << bound;
    }
    EXPECT_TRUE(accepts(*from, "1234567890123456"));
    EXPECT_FALSE(accepts(*from, "12345678901234567"));
  }
  EXPECT_TRUE(fits(R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
                   "-9223372036854775808"));
  EXPECT_TRUE(fits(R"({"type":"integer","minimum":0.5,"exclusiveMaximum":3.0})", "2"));
  EXPECT_FALSE(fits(R"({"type":"integer","minimum":0.5,"exclusiveMaximum":3.0})", "3"));
  EXPECT_FALSE(fits(R"({"type":"integer","minimum":0.5,"exclusiveMaximum":3.0})", "0"));
  EXPECT_FALSE(fits(R"({"type":"integer","minimum":4,"exclusiveMinimum":true})", "4"));
}

TEST(JsonSchema, PatternsSpeakOfTheStringsCharacters) {
  EXPECT_TRUE(fits(R"({"pattern":"^\\d{3}-\\w+\\s?$"})", "\"123-a_9 \""));
  EXPECT_TRUE(fits(R"({"pattern":"^\\d{3}-\\w+\\s?$"})", "\"123-b\\t\""));
  EXPECT_FALSE(fits(R"({"pattern":"^\\d{3}-\\w+\\s?$"})", "\"12-b\""));
  EXPECT_TRUE(fits(R"({"pattern":"^\"a\\\\$"})", "\"\\\"a\\\\\"")) << "a quote and a backslash are spelled as in JSON";
  EXPECT_FALSE(fits(R"({"pattern":"^.*$"})", "\"a\"b\"")) << "the text is a valid JSON string";
  EXPECT_TRUE(fits(R"({"pattern":"^.*$"})", "\"a\\\"b\""));
  EXPECT_TRUE(fits(R"({"pattern":"^a|b$"})", "\"b\""));
  EXPECT_TRUE(fits(R"({"pattern":"^(?:ab){2,3}c??$"})", "\"ababab\""));
  EXPECT_TRUE(fits(R"({"pattern":"^(?=x)[a-z]{1,2000}(?<n>1)$"})", "\"abc1\""));
  EXPECT_TRUE(fits(R"({"pattern":"^[\\]\\-^x\\d]+$"})", "\"]-^x7\""));
  EXPECT_TRUE(fits(R"({"pattern":"^\\u00e9\\x41\\/$"})", "\"éA/\""));
  EXPECT_TRUE(fits(R"({"pattern":"^$"})", "\"\""));
  EXPECT_TRUE(fits(R"({"pattern":"^(a|)[^a]$"})", "\"é\""));
  EXPECT_TRUE(fits(R"({"pattern":"^a{,2}$"})", "\"a{,2}\"")) << "no repetition without a minimum";
}

TEST(JsonSchema, AdditionalKeysAreNoneOfTheListedOnes) {
  const char* schema = R"({"properties":{"ab":{},"a\"c":{},"é":{}},"additionalProperties":{"type":"null"}})";
  for (const char* key : {"abc", "b", "ac", "", "a\\\\", "a\\\"d", "éé", "\\n"})
    EXPECT_TRUE(fits(schema, "{\"" + std::string(key) + "\":null}")) << key;
  for (const char* key : {"ab", "a\\\"c", "é", "a"})
    EXPECT_FALSE(fits(schema, "{\"" + std::string(key) + "\":null}")) << key;
  EXPECT_TRUE(fits(schema, "{\"ab\":{},\"é\":{},\"x\":null,\"y\":null}"));
  EXPECT_FALSE(fits(schema, "{\"x\":null,\"ab\":{}}"));
}

TEST(JsonSchema, ManyOptionalPropertiesNeedAGrammarOfLinearSize) {
  ordered_json schema = {{"type", "object"}, {"properties", ordered_json::object()}};
  for (int i = 0; i < 400; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "integer"}};
  const std::string text = schema_to_gbnf(schema);
  EXPECT_LT(text.size(), 200'000u);
  const auto grammar = Grammar::parse(text);
  EXPECT_TRUE(accepts(*grammar, "{\"p3\":1,\"p7\":2,\"p399\":3}"));
  EXPECT_FALSE(accepts(*grammar, "{\"p7\":1,\"p3\":2}"));
}

TEST(JsonSchema, WhatStandsAloneInAllOfIsUsed) {
  EXPECT_TRUE(fits(R"({"allOf":[{"type":"string","maxLength":2}]})", "\"ab\""));
  EXPECT_FALSE(fits(R"({"allOf":[{"type":"string"},{"maxLength":2}]})", "\"abc\""));
  EXPECT_TRUE(fits(R"({"allOf":[{"$ref":"#/$defs/e"}],"$defs":{"e":{"enum":["x"]}}})", "\"x\""));
}

TEST(JsonSchema, FormatsAndSizesHold) {
  EXPECT_TRUE(fits(R"({"format":"uuid"})", "\"123e4567-E89b-12d3-a456-426614174000\""));
  EXPECT_FALSE(fits(R"({"format":"uuid"})", "\"123e4567-e89b-12d3-a456-42661417400\""));
  EXPECT_TRUE(fits(R"({"type":"string","format":"time"})", "\"10:00:00.5Z\""));
  EXPECT_TRUE(fits(R"({"type":"array","items":{"type":"integer"},"maxItems":2000})", "[1,2]"));
  EXPECT_TRUE(fits(R"({"type":"array","minItems":2})", "[1, {}]"));
  EXPECT_FALSE(fits(R"({"type":"array","minItems":2})", "[1]"));
  EXPECT_TRUE(fits(R"({"prefixItems":[{"type":"integer"},true],"items":{"type":"null"}})", "[1, \"x\"]"));
  EXPECT_TRUE(fits(R"(true)", "[null]"));
}

TEST(JsonSchema, WhateverARandomAnswerSaysIsJsonOfTheSchema) {
  const llama::Vocab vocab = vocab_of(
      {"{",  "}",    "{\"", "\":",  "\",",  "\"",   "},", "\"}",  "a", "b", "ab", "1", "12", ".", "e", "[",  "]", "],",
       "\\", "\\\"", "é",   "true", "null", "name", "id", "tags", "-", "T", ":",  "Z", "+",  "0", " ", "\n", "x1"});
  const auto shared = std::make_shared<const GrammarVocab>(vocab);
  std::mt19937 random(9);
  for (
      const char* schema :
      {R"({"type":"object","properties":{"id":{"type":"integer","minimum":1,"maximum":120},"name":{"type":"string","maxLength":6},"tags":{"type":"array","items":{"enum":["a","b\"",null]},"maxItems":3}},"required":["name"]})",
       R"({"anyOf":[{"type":"array","items":{"type":["number","null"]},"maxItems":4},{"pattern":"^[^a]{1,3}.?\\s?$"},{"format":"date-time"}]})",
       R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"name":{"const":"x1"},"id":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/t"}]}},"required":["id"]}}})"}) {
    const auto grammar = std::make_shared<const CompiledGrammar>(grammar_of(schema), shared);
    for (int round = 0; round < 50; ++round) {
      GrammarMask mask(grammar);
      std::string text;
      std::vector<std::uint32_t> words((static_cast<std::size_t>(vocab.n_tokens()) + 31) / 32);
      for (int n = 0; n < 3000; ++n) {
        ASSERT_TRUE(mask.fill(words));
        std::vector<llama::Token> choices;
        for (llama::Token t = 0; t < vocab.n_tokens(); ++t)
          if ((words[static_cast<std::size_t>(t) / 32] >> (t % 32) & 1u) != 0) choices.push_back(t);
        ASSERT_FALSE(choices.empty()) << text << "\n" << mask.failure();
        const llama::Token token = choices[random() % choices.size()];
        mask.accept(token);
        if (vocab.is_eog(token)) break;
        text += vocab.piece(token, llama::SpecialText::show);
      }
      if (mask.may_end()) {
        try {
          EXPECT_FALSE(ordered_json::parse(text).is_discarded());
        } catch (const ordered_json::out_of_range&) {
          // A number beyond double is JSON all the same.
        } catch (const ordered_json::exception& error) {
          ADD_FAILURE() << error.what() << ": " << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace common::grammar::testing
