#include "grid.h"

#include <algorithm>

#include "ggml/log.h"
#include "ggml/threads.h"

namespace bench {

using ggml::strf;

namespace {

/// Threads of generation and of prompts: -t stands for both.
std::vector<std::pair<int, int>> teams_of(const Grid& grid) {
  std::vector<std::pair<int, int>> teams;
  for (const int n : grid.n_threads) teams.emplace_back(n, n);
  teams.insert(teams.end(), grid.threads_gen_batch.begin(), grid.threads_gen_batch.end());
  return teams;
}

/// The same for the axes of attention and experts, of which each has one value in most grids.
template <class Body>
void for_each_form(const Grid& grid, Test& t, const Body& body) {
  for (const FlashAttention fa : grid.flash_attention)
    for (const int mla : grid.mla)
      for (const int amb : grid.attention_max_batch_mib)
        for (const std::pair<int, float>& ser : grid.expert_reduction) {
          t.flash_attention = fa, t.mla = mla, t.attention_max_batch_mib = amb, t.expert_reduction = ser;
          body();
        }
}

/// Calls `body` for every combination of the axes inside of the number of threads, and sets them in `t`.
template <class Body>
void for_each_team(const Grid& grid, Test& t, const Body& body) {
  for (const std::vector<int>& cpus : grid.cpus)
    for (const int strict : grid.cpu_strict)
      for (const int depth : grid.n_depth)
        for (const int poll : grid.poll) {
          t.cpus = cpus, t.cpu_strict = strict, t.n_depth = depth, t.poll = poll;
          body();
        }
}

/// Calls `body` for every combination of the axes that do not belong to a test's own shape.
template <class Body>
void for_each_setting(const Grid& grid, const Body& body) {
  Test t;
  for (const std::string& model : grid.models)
    for (const int ngl : grid.n_gpu_layers)
      for (const common::grid::ExpertsOnCpu& ncmoe : grid.n_cpu_moe)
        for (const LoadMode lm : grid.load_mode)
          for (const std::string& rules : grid.tensor_rules)
            for (const int nb : grid.n_batch)
              for (const int nub : grid.n_ubatch)
                for (const ggml::DType tk : grid.type_k)
                  for (const ggml::DType tv : grid.type_v)
                    for_each_form(grid, t, [&] {
                      for (const std::pair<int, int>& team : teams_of(grid))
                        for_each_team(grid, t, [&] {
                          t.model = model, t.n_gpu_layers = ngl, t.n_cpu_moe = ncmoe.n,
                          t.n_cpu_moe_blocks = ncmoe.blocks, t.load_mode = lm, t.tensor_rules = rules;
                          t.n_batch = nb, t.n_ubatch = std::min(nub, nb), t.type_k = tk, t.type_v = tv;
                          t.n_threads = team.first, t.n_threads_batch = team.second;
                          body(t);
                        });
                    });
}

}  // namespace

Grid default_grid() {
  Grid grid;
  grid.models = {"models/7B/ggml-model-q4_0.gguf"};
  grid.n_prompt = {512};
  grid.n_gen = {128};
  grid.n_depth = {0};
  grid.n_batch = {2048};
  grid.n_ubatch = {512};
  grid.n_threads = {ggml::physical_cores()};
  grid.cpus = {{}};
  grid.cpu_strict = {0};
  grid.n_gpu_layers = {-1};
  grid.n_cpu_moe = {{}};
  grid.poll = {50};
  grid.type_k = {ggml::DType::f16};
  grid.type_v = {ggml::DType::f16};
  grid.flash_attention = {FlashAttention::automatic};
  grid.mla = {-1};
  grid.attention_max_batch_mib = {256};
  grid.expert_reduction = {{-1, 0.0F}};
  grid.load_mode = {LoadMode::mmap};
  grid.tensor_rules = {""};
  return grid;
}

Grid with_defaults(Grid given) {
  const Grid defaults = default_grid();
  const auto fill = [&](auto Grid::*list) {
    if ((given.*list).empty()) given.*list = defaults.*list;
  };
  for (auto list : {&Grid::n_prompt, &Grid::n_gen, &Grid::n_depth, &Grid::n_batch, &Grid::n_ubatch, &Grid::n_gpu_layers,
                    &Grid::cpu_strict, &Grid::poll, &Grid::mla, &Grid::attention_max_batch_mib}) {
    fill(list);
  }
  if (given.threads_gen_batch.empty()) fill(&Grid::n_threads);
  fill(&Grid::n_cpu_moe);
  fill(&Grid::expert_reduction);
  fill(&Grid::models);
  fill(&Grid::cpus);
  fill(&Grid::type_k);
  fill(&Grid::type_v);
  fill(&Grid::flash_attention);
  fill(&Grid::load_mode);
  fill(&Grid::tensor_rules);
  return given;
}

std::string Test::experts_on_cpu() const {
  constexpr const char* kForms[] = {"", ":first", ":last", ":even"};
  return std::to_string(n_cpu_moe) + kForms[static_cast<int>(n_cpu_moe_blocks)];
}

std::string Test::label() const {
  std::string text;
  if (prompt_is_untimed) {
    text = strf("tg%d@pp%d", n_gen, n_prompt);
  } else if (n_prompt > 0 && n_gen > 0) {
    text = strf("pp%d+tg%d", n_prompt, n_gen);
  } else {
    text = n_gen > 0 ? strf("tg%d", n_gen) : strf("pp%d", n_prompt);
  }
  if (n_depth > 0) text += strf(" @ d%d", n_depth);
  return text;
}

std::vector<Test> expand(const Grid& grid) {
  std::vector<Test> tests;
  for_each_setting(grid, [&](Test t) {
    const auto add = [&](int n_prompt, int n_gen, bool untimed) {
      if (n_prompt == 0 && n_gen == 0) return;
      t.n_prompt = n_prompt;
      t.n_gen = n_gen;
      t.prompt_is_untimed = untimed;
      tests.push_back(t);
    };
    for (const int n : grid.n_prompt) add(n, 0, false);
    for (const int n : grid.n_gen) add(0, n, false);
    for (const auto& [prompt, gen] : grid.prompt_gen) add(prompt, gen, false);
    for (const auto& [prompt, gen] : grid.gen_at_prompt) add(prompt, gen, true);
  });
  return tests;
}

}  // namespace bench
