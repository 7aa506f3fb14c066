// The engine against Jinja2's own answers: language features and real models' templates.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "common/chat/jinja/template.h"
#include "test_support.h"

namespace {
using common::jinja::RenderOptions;
using common::jinja::Template;
using common::jinja::TemplateError;
using nlohmann::ordered_json;

std::optional<std::filesystem::path> templates_dir() {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data/chat-templates/cases.json")) return std::nullopt;
  return *shared / "data/chat-templates";
}

// The moment the goldens were made at: 2026-01-15 12:00:00, a Thursday.
RenderOptions golden_options() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 15;
  now.tm_hour = 12;
  now.tm_wday = 4;
  now.tm_yday = 14;
  RenderOptions options;
  options.now = now;
  return options;
}

struct Outcome {
  std::optional<std::string> text;
  std::string error;  // as what() says
  std::string detail;
  bool raised = false;
};

template <class F>
Outcome outcome_of(F render) {
  Outcome out;
  try {
    out.text = render();
  } catch (const TemplateError& e) {
    out.error = e.what();
    out.detail = e.detail();
    out.raised = e.raised_by_template();
  }
  return out;
}

// Empty when the outcome is what the golden asks for. A case that only strict settings refuse may render.
std::string mismatch(const ordered_json& golden, const Outcome& got) {
  const std::string* expected = nullptr;
  if (golden.contains("expected_lenient")) {
    expected = golden["expected_lenient"].get_ptr<const std::string*>();
  } else if (golden.contains("expected")) {
    expected = golden["expected"].get_ptr<const std::string*>();
  }
  if (expected) {
    if (!got.text) return "error: " + got.error + "\nexpected: " + *expected;
    return *got.text == *expected ? "" : "got:      " + *got.text + "\nexpected: " + *expected;
  }
  const std::string error = golden["error"];
  if (got.text) return "rendered: " + *got.text + "\nexpected: " + error;
  const std::string raised = "TemplateError: ";
  if (error.compare(0, raised.size(), raised) == 0 && (!got.raised || raised + got.detail != error))
    return "error: " + got.error + "\nexpected: " + error;
  return "";
}

TEST(JinjaGolden, EveryLanguageFeatureRendersAsJinja2DoesIt) {
  const auto dir = templates_dir();
  if (!dir) GTEST_SKIP() << "shared data absent";
  const auto data = ordered_json::parse(tandem::load_text(*dir / "features.json"));
  int passed = 0;
  for (const auto& test : data["tests"]) {
    const Outcome got = outcome_of(
        [&] { return Template(test["template"].get<std::string>()).render(test["context"], golden_options()); });
    const std::string wrong = mismatch(test, got);
    EXPECT_EQ(wrong, "") << test["name"];
    passed += wrong.empty() ? 1 : 0;
  }
  std::printf("features: %d of %zu\n", passed, data["tests"].size());
}

// jinja2 marks what `safe` returns and then escapes what is added to it; here, as in llama.cpp, `safe` does nothing.
bool differs_by_markup(const ordered_json& differs, const ordered_json& test) {
  if (test["template"] != "meetkai-functionary-medium-v3.1.jinja") return false;
  for (const auto& d : differs["cases"])
    if (d["template"] == test["template"] && d["conversation"] == test["conversation"]) return true;
  return false;
}

TEST(JinjaGolden, EveryModelTemplateRendersEveryConversation) {
  const auto dir = templates_dir();
  if (!dir) GTEST_SKIP() << "shared data absent";
  const auto data = ordered_json::parse(tandem::load_text(*dir / "cases.json"));
  const auto differs = ordered_json::parse(tandem::load_text(*dir / "llamacpp-differs.json"));
  std::map<std::string, Template> templates;
  std::map<std::string, std::string> llamacpp;
  for (const auto& d : differs["cases"])
    if (d.contains("got") && d["got"].is_string())
      llamacpp[d["template"].get<std::string>() + "/" + d["conversation"].get<std::string>()] = d["got"];
  int passed = 0, errors = 0, markup = 0;
  for (const auto& test : data["cases"]) {
    const std::string name = test["template"], conversation = test["conversation"];
    if (!templates.count(name)) templates.emplace(name, Template(tandem::load_text(*dir / name)));
    ordered_json context = {
        {"bos_token", data["bos_token"]}, {"eos_token", data["eos_token"]}, {"add_generation_prompt", true}};
    context.update(data["conversations"][conversation]);
    if (test.contains("extra_context")) context.update(test["extra_context"]);
    const Outcome got = outcome_of([&] { return templates.at(name).render(context, golden_options()); });
    std::string wrong = mismatch(test, got);
    if (!wrong.empty() && differs_by_markup(differs, test)) {
      ++markup;
      const bool as_llamacpp = got.text && *got.text == llamacpp[std::string(name).append("/").append(conversation)];
      wrong = as_llamacpp ? std::string() : wrong.insert(0, "differs from llama.cpp as well: ");
    }
    EXPECT_EQ(wrong, "") << name << " / " << conversation;
    passed += wrong.empty() ? 1 : 0;
    errors += !got.text && wrong.empty() ? 1 : 0;
  }
  std::printf("cases: %d of %zu (%d errors as expected, %d where safe is a no-op)\n", passed, data["cases"].size(),
              errors, markup);
  EXPECT_EQ(markup, 8);
}
}  // namespace
