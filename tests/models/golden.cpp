#include "models/golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ggml/reference.h"
#include "kv/kv_test_device.h"
#include "test_support.h"

namespace llama::golden {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

class ReferenceDevice final : public MemoryOnlyDevice {
 public:
  std::unique_ptr<ggml::Executor> make_executor() override { return std::make_unique<ggml::ReferenceExecutor>(); }
};

std::optional<fs::path> folder_of(const std::string& name) {
  std::vector<fs::path> folders;
  if (const auto shared = tandem::shared_dir()) folders.push_back(*shared / "data" / "models");
  folders.push_back(tandem::data_dir() / "models");
  for (const fs::path& folder : folders)
    if (fs::exists(folder / (name + ".json"))) return folder;
  return std::nullopt;
}

Tolerance tolerance(const json& j, const char* kind) {
  if (!j.at("tolerance").contains(kind)) return {};
  return {j["tolerance"][kind]["max"].get<double>(), j["tolerance"][kind]["rms"].get<double>()};
}

void load_experts(const json& j, Golden& golden) {
  if (!j.contains("experts")) return;
  const json& experts = j["experts"];
  for (const auto& [layer, rows] : experts.at("layers").items())
    golden.experts[std::stoi(layer)] = rows.get<std::vector<std::vector<int>>>();
  golden.expert_margin = experts.at("margin_per_row").get<std::vector<double>>();
  golden.q8_cache_changes_experts = experts.value("q8_cache_changed_experts_in_references", false);
}

void keep(const StepResult::Sequence& result, std::size_t first_row, int n_vocab, Rows& rows) {
  const auto width = static_cast<std::size_t>(n_vocab);
  for (std::size_t i = 0; i < static_cast<std::size_t>(result.n_outputs); ++i) {
    const std::span<const float> row = result.logits.subspan(i * width, width);
    rows[first_row + i].assign(row.begin(), row.end());
  }
}

void feed(Context& context, SeqId seq, std::span<const Token> tokens, std::size_t first_row, Rows& rows) {
  const StepSequence sequence{seq, tokens, Outputs::all, nullptr};
  const StepResult& result = context.run({{&sequence, 1}});
  keep(result.sequences.front(), first_row, context.model().info().n_vocab, rows);
}

}  // namespace

std::unique_ptr<Golden> load(const std::string& name) {
  const std::optional<fs::path> folder = folder_of(name);
  if (!folder) return nullptr;
  const json j = json::parse(tandem::load_text(*folder / (name + ".json")));
  auto golden = std::make_unique<Golden>();
  golden->name = name;
  golden->path = (*folder / j.at("files").at(0).get<std::string>()).string();
  golden->tensor_types = j.at("tensor_types").get<std::vector<std::string>>();
  golden->n_vocab = j.at("n_vocab").get<int>();
  golden->prompt = j.at("prompt").get<std::vector<Token>>();
  const json& chunks = j.at("cases").at("chunks");
  golden->chunk_sizes = chunks.at("sizes").get<std::vector<int>>();
  golden->greedy = chunks.at("greedy").get<std::vector<Token>>();
  golden->greedy_gap = chunks.at("greedy_gap").get<std::vector<double>>();
  const json& pair = j.at("cases").at("pair");
  golden->pair_seq0 = pair.at("seq0").get<std::vector<Token>>();
  golden->pair_seq1 = pair.at("seq1").get<std::vector<Token>>();
  golden->pair_greedy0 = pair.at("seq0_greedy").get<std::vector<Token>>();
  golden->pair_greedy1 = pair.at("seq1_greedy").get<std::vector<Token>>();
  load_experts(j, *golden);
  golden->f32_kv = tolerance(j, "f32_kv");
  golden->f16_kv = tolerance(j, "f16_kv");
  golden->q8_kv = tolerance(j, "q8_kv");
  golden->has_q8_cache = j.at("agreement").dump().find("Q8_0 cache") != std::string::npos;
  golden->rounded = tolerance(j, "rounded");
  golden->exact = tandem::load_npy(*folder / j.at("logits_file").get<std::string>()).floats();
  if (j.contains("rounded_file")) {
    golden->rounded_rows = tandem::load_npy(*folder / j["rounded_file"].get<std::string>()).floats();
    // Its last rows follow its own greedy tokens: comparable as long as those are the ones that the tests feed.
    const auto own = j.at("rounded_greedy").get<std::vector<Token>>();
    const auto same = std::mismatch(own.begin(), own.end(), golden->greedy.begin()).first - own.begin();
    golden->rounded_rows.resize((golden->prompt.size() + static_cast<std::size_t>(same)) *
                                static_cast<std::size_t>(golden->n_vocab));
  }
  return golden;
}

void run_single(Context& context, const Golden& golden, Rows& rows) {
  const SeqId seq = context.create_sequence();
  feed(context, seq, std::span(golden.prompt).first(1), 0, rows);
  context.remove_sequence(seq);
}

void run_batch(Context& context, const Golden& golden, Rows& rows) {
  const SeqId seq = context.create_sequence();
  feed(context, seq, golden.prompt, 0, rows);
  context.remove_sequence(seq);
}

void run_chunks(Context& context, const Golden& golden, Rows& rows) {
  const SeqId seq = context.create_sequence();
  std::size_t done = 0;
  for (const int size : golden.chunk_sizes) {
    feed(context, seq, std::span(golden.prompt).subspan(done, static_cast<std::size_t>(size)), done, rows);
    done += static_cast<std::size_t>(size);
  }
  for (const Token& token : golden.greedy) feed(context, seq, {&token, 1}, done++, rows);
  context.remove_sequence(seq);
}

void run_pair(Context& context, const Golden& golden, Rows& rows) {
  constexpr std::size_t kRow1 = 64, kGreedyRow1 = 93, kGreedyRow0 = 97;
  const SeqId seq0 = context.create_sequence();
  const SeqId seq1 = context.create_sequence();
  const auto step = [&](std::span<const Token> t0, std::span<const Token> t1, std::size_t row0, std::size_t row1) {
    const StepSequence sequences[] = {{seq0, t0, Outputs::all, nullptr}, {seq1, t1, Outputs::all, nullptr}};
    const StepResult& result = context.run({sequences});
    keep(result.sequences[0], row0, golden.n_vocab, rows);
    keep(result.sequences[1], row1, golden.n_vocab, rows);
  };
  step(golden.pair_seq0, golden.pair_seq1, 0, kRow1);
  for (std::size_t i = 0; i < golden.pair_greedy0.size(); ++i)
    step({&golden.pair_greedy0[i], 1}, {&golden.pair_greedy1[i], 1}, kGreedyRow0 + i, kGreedyRow1 + i);
  context.remove_sequence(seq0);
  context.remove_sequence(seq1);
}

Difference compare(const Rows& rows, const std::vector<float>& expected, int n_vocab, double row_limit) {
  const auto width = static_cast<std::size_t>(n_vocab);
  Difference difference;
  double squares = 0, squares_of_near = 0;
  for (std::size_t r = 0; r < rows.size() && (r + 1) * width <= expected.size(); ++r) {
    if (rows[r].empty()) continue;
    double worst = 0, row_squares = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double d = std::fabs(static_cast<double>(rows[r][i]) - static_cast<double>(expected[r * width + i]));
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
      row_squares += d * d;
    }
    squares += row_squares;
    if (worst <= row_limit) squares_of_near += row_squares;
    difference.max = std::max(difference.max, worst);
    difference.rows_over += worst > row_limit ? 1 : 0;
    ++difference.rows;
  }
  if (difference.rows > 0) difference.rms = std::sqrt(squares / (difference.rows * static_cast<double>(n_vocab)));
  const int near = difference.rows - difference.rows_over;
  if (near > 0) difference.rms_of_near = std::sqrt(squares_of_near / (near * static_cast<double>(n_vocab)));
  return difference;
}

int argmax(std::span<const float> row) {
  return static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::unique_ptr<ggml::Device> make_reference_device() {
  return std::make_unique<ReferenceDevice>();
}

}  // namespace llama::golden
