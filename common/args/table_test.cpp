// Properties that every row of the table has, whatever it is.
#include "common/args/table.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <set>

#include "common/args/args_test_support.h"
#include "test_support.h"

namespace common {
namespace {

using testing::fake_environment;
using testing::parse_line;

/// One of these satisfies any option that takes a value.
std::vector<std::string> candidates(const std::string& file) {
  return {"1",   "on",  "none",  "f16", "layer",     "numactl",   "exps=CPU",   "a=int:1", "{}",
          "5+1", "0-1", "6,0",   "2,2", "MUL_MAT,0", "fusion=1",  "linear",     "md",      "text",
          "0",   "/x",  "x=f16", "1M",  "gguf",      "llama.cpp", "CUDA9:1GiB", "x.svg",   file};
}

enum class Outcome { accepted, refused, ill_typed };

/// Parses a line around one use of an option; `error` says why it was not accepted.
Outcome outcome(Tool tool, const Option& row, std::vector<std::string> line, std::string& error) {
  const std::string_view name = row.long_name();
  const bool is_text_source = name == "--prompt" || name == "--file" || name == "--stdin";
  if (tool == Tool::tokenize && !is_text_source) line.insert(line.end(), {"-p", "x"});
  try {
    (void)parse_line(tool, line);
    return Outcome::accepted;
  } catch (const ggml::Error& e) {
    error = e.message();
    return e.code() == ggml::ErrorCode::unsupported ? Outcome::refused : Outcome::ill_typed;
  }
}

class Table : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_environment().clear();
    std::ofstream(file()) << "\"text\"\n";
  }
  void TearDown() override { fake_environment().clear(); }
  [[nodiscard]] std::string file() const { return (folder_.path() / "file").string(); }

  static bool only_prints(const Option& row) {
    return row.long_name() == "--help" || row.long_name() == "--version" || row.long_name() == "--completion-bash";
  }

  /// Lines with one use of the option each.
  [[nodiscard]] std::vector<std::vector<std::string>> lines_with_values(const Option& row,
                                                                        std::string_view spelling) const {
    std::vector<std::vector<std::string>> lines;
    for (const std::string& value : candidates(file())) {
      lines.push_back({std::string(spelling), value});
      if (row.arity == 2) lines.back().push_back(value);
      if (row.arity == -1) lines.back().emplace_back("1.5");
    }
    return lines;
  }

  /// Uses the option with each candidate value until one is not ill-typed.
  void expect_usable(Tool tool, const Option& row, std::string_view spelling, bool negative) const {
    std::string error;
    if (negative || row.is_switch() || !row.optional_words.empty()) {
      EXPECT_NE(outcome(tool, row, {std::string(spelling)}, error), Outcome::ill_typed) << spelling << ": " << error;
      if (negative || row.is_switch()) return;
      for (const std::string_view word : row.optional_words) {
        EXPECT_NE(outcome(tool, row, {std::string(spelling), std::string(word)}, error), Outcome::ill_typed)
            << spelling << " " << word << ": " << error;
      }
      return;
    }
    for (const std::string& value : candidates(file())) {
      std::vector<std::string> line{std::string(spelling), value};
      if (row.arity == 2) line.push_back(value);
      if (row.arity == -1) line.push_back("1.5");
      const Outcome result = outcome(tool, row, line, error);
      if (result == Outcome::refused) {
        EXPECT_EQ(error.rfind("error: " + std::string(spelling), 0), 0U) << error;
      }
      if (result != Outcome::ill_typed) return;
    }
    ADD_FAILURE() << tool_name(tool) << " " << spelling << " accepts none of the candidates: " << error;
  }

 private:
  tandem::TempDir folder_;
};

constexpr std::array<Tool, kToolCount> kTools = {Tool::server,   Tool::cli,     Tool::sweep_bench, Tool::tokenize,
                                                 Tool::bench,    Tool::gguf,    Tool::gguf_synth,  Tool::gguf_split,
                                                 Tool::quantize, Tool::imatrix, Tool::perplexity,  Tool::fit_params};

TEST_F(Table, NoTwoRowsOfOneProgramShareASpelling) {
  for (const Tool tool : kTools) {
    std::set<std::string_view> seen;
    for (const Option& row : all_options()) {
      if ((row.tools & tool_bit(tool)) == 0) continue;
      for (const auto* list : {&row.spellings, &row.negatives})
        for (const std::string_view name : *list)
          EXPECT_TRUE(seen.insert(name).second) << tool_name(tool) << " " << name;
    }
  }
}

TEST_F(Table, NoTwoRowsOfOneProgramShareAVariable) {
  for (const Tool tool : kTools) {
    std::set<std::string_view> seen;
    for (const Option& row : all_options()) {
      if ((row.tools & tool_bit(tool)) == 0) continue;
      for (const std::string_view name : row.variables) EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

TEST_F(Table, EveryRowIsCompleteAndHasOneFate) {
  for (const Option& row : all_options()) {
    const std::string_view name = row.long_name();
    EXPECT_FALSE(row.help.empty()) << name;
    EXPECT_FALSE(row.group.empty()) << name;
    EXPECT_TRUE(row.help.ends_with('.') || row.help.ends_with(']') || row.help.ends_with(')')) << name;
    EXPECT_EQ(row.refused_feature.empty(), row.refused_advice.empty()) << name;
    EXPECT_FALSE(!row.refused_feature.empty() && !row.no_effect_reason.empty()) << name;
    const bool has_a_fate = row.apply || !row.refused_feature.empty() || !row.no_effect_reason.empty() ||
                            row.satisfied_on_cpu || row.tools == 0 || only_prints(row);
    EXPECT_TRUE(has_a_fate) << name << " would be silently ignored";
    for (const std::string_view spelling : row.spellings) EXPECT_EQ(normal_spelling(spelling), spelling);
  }
}

TEST_F(Table, EverySpellingParsesForEveryProgramThatUsesIt) {
  for (const Option& row : all_options()) {
    if (only_prints(row)) continue;
    for (const Tool tool : kTools) {
      if ((row.tools & tool_bit(tool)) == 0) continue;
      for (const std::string_view spelling : row.spellings) expect_usable(tool, row, spelling, false);
      for (const std::string_view spelling : row.negatives) expect_usable(tool, row, spelling, true);
    }
  }
}

TEST_F(Table, ARowThatRefusesOrDoesNothingIsListedSo) {
  for (const Option& row : all_options()) {
    for (const Tool tool : kTools) {
      if ((row.tools & tool_bit(tool)) == 0 || only_prints(row) || row.is_operand) continue;
      for (const std::string_view spelling : row.spellings) {
        bool accepted = false;
        std::string refusal, error;
        std::vector<std::vector<std::string>> lines{{std::string(spelling)}};
        if (!row.is_switch() && row.optional_words.empty()) lines = lines_with_values(row, spelling);
        for (const std::vector<std::string>& line : lines) {
          const Outcome result = outcome(tool, row, line, error);
          accepted = accepted || result == Outcome::accepted;
          if (result == Outcome::refused) refusal = error;
        }
        if (!accepted && !refusal.empty()) {
          EXPECT_FALSE(row.refused_feature.empty()) << tool_name(tool) << " " << spelling << ": " << refusal;
        }
        if (!accepted || tool == Tool::tokenize) continue;  // which parses with a text only
        for (const std::vector<std::string>& line : lines) {
          if (outcome(tool, row, line, error) != Outcome::accepted) continue;
          const std::string notes = testing::notes_of(parse_line(tool, line));
          if (notes.find(std::string(spelling) + " has no effect here") == std::string::npos) continue;
          EXPECT_FALSE(row.no_effect_reason.empty()) << tool_name(tool) << " " << notes;
        }
      }
    }
  }
}

TEST_F(Table, WhatIsAcceptedOfARefusedRowIsNamedWithIt) {
  const std::string help = help_text(Tool::server, 1 << 20);  // no list is wrapped
  const std::size_t refused = help.find("Known, but refused in this version:");
  ASSERT_NE(refused, std::string::npos);
  for (const char* text : {"-ag, --agent (accepted: -no-ag, --no-agent)",
                           "-mtp, --multi-token-prediction (accepted: -no-mtp, --no-multi-token-prediction)",
                           "--moe-cache-mib (accepted: --moe-cache-mib 0)"})
    EXPECT_NE(help.find(text, refused), std::string::npos) << text;
  EXPECT_EQ(help.find("  -ag,"), help.find("  -ag,", refused));
  const std::string document = parameters_document();
  EXPECT_NE(document.find("`-no-ag` is accepted. `--no-agent` is accepted."), std::string::npos);
}

TEST_F(Table, EveryOptionOfAnotherProgramIsAcceptedAndNamedOnce) {
  for (const Option& row : all_options()) {
    if ((row.tools & kSweepBench) != 0 || find_option(Tool::sweep_bench, row.long_name()).row != &row) continue;
    std::vector<std::string> line{std::string(row.long_name())};
    const int values = row.arity == -1 ? 2 : row.arity;
    for (int i = 0; i < values; ++i) line.emplace_back("-1");
    const std::string notes = testing::notes_of(parse_line(Tool::sweep_bench, line));
    EXPECT_EQ(notes, "info: not used by llama-sweep-bench: " + std::string(row.long_name()) + "\n");
  }
}

TEST_F(Table, EveryVariableParsesForEveryProgramThatUsesIt) {
  for (const Option& row : all_options()) {
    for (const std::string_view variable : row.variables) {
      for (const Tool tool : kTools) {
        if ((row.tools & tool_bit(tool)) == 0) continue;
        bool usable = false;
        std::string error;
        for (const std::string& value : candidates(file())) {
          fake_environment() = {{std::string(variable), value}};
          const Outcome result = outcome(tool, row, {}, error);
          if (result == Outcome::refused) {
            EXPECT_EQ(error.rfind("error: " + std::string(variable), 0), 0U) << error;
          }
          usable = usable || result != Outcome::ill_typed;
          if (usable) break;
        }
        EXPECT_TRUE(usable) << variable << ": " << error;
      }
    }
  }
}

TEST_F(Table, HelpNamesEveryOptionOfTheProgramAndFitsTheWidth) {
  for (const Tool tool : kTools) {
    const std::string help = help_text(tool, 80);
    for (const Option& row : all_options()) {
      if ((row.tools & tool_bit(tool)) == 0) continue;
      for (const std::string_view name : row.spellings)
        EXPECT_NE(help.find(name), std::string::npos) << tool_name(tool) << " " << name;
    }
    std::size_t begin = 0;
    for (std::size_t end = help.find('\n'); end != std::string::npos; end = help.find('\n', begin)) {
      const std::string_view text(help.data() + begin, end - begin);
      // A list of spellings is not broken, so that it can be searched for.
      if (!text.starts_with("  -")) {
        EXPECT_LE(text.size(), 80U) << text;
      }
      begin = end + 1;
    }
  }
}

TEST_F(Table, ParametersDocumentIsFresh) {
  EXPECT_EQ(tandem::load_text("docs/parameters.md"), parameters_document())
      << "run build/bin/params-doc > docs/parameters.md";
}

}  // namespace
}  // namespace common
