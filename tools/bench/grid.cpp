#include "grid.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "ggml/error.h"
#include "ggml/log.h"

namespace bench {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

constexpr int kMaxValues = 100000;  // of one range: a typing error must not fill the memory

[[noreturn]] void bad_list(std::string_view flag, std::string_view text, std::string_view why) {
  throw Error(ErrorCode::invalid_argument, std::string(flag) + " '" + std::string(text) + "': " + std::string(why),
              "write integers separated by commas, or ranges such as 1-8, 16-64+16, 1-64*2");
}

std::optional<int> take_int(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

void add_item(std::string_view flag, std::string_view item, std::vector<int>& values) {
  std::string_view rest = item;
  const std::optional<int> first = take_int(rest);
  if (!first) bad_list(flag, item, "not an integer");
  if (rest.empty()) {
    values.push_back(*first);
    return;
  }
  if (rest[0] != '-') bad_list(flag, item, "not an integer or a range");
  rest.remove_prefix(1);
  const std::optional<int> last = take_int(rest);
  if (!last) bad_list(flag, item, "the range has no end");
  char step_kind = '+';
  int step = 1;
  if (!rest.empty()) {
    step_kind = rest[0];
    if (step_kind != '+' && step_kind != '*') bad_list(flag, item, "a step begins with + or *");
    rest.remove_prefix(1);
    const std::optional<int> given = take_int(rest);
    if (!given || !rest.empty()) bad_list(flag, item, "the step is no integer");
    step = *given;
  }
  if (*last < *first) bad_list(flag, item, "the range ends below its beginning");
  int count = 0;
  for (std::int64_t value = *first; value <= *last;) {
    if (++count > kMaxValues) bad_list(flag, item, "too many values");
    values.push_back(static_cast<int>(value));
    const std::int64_t next = step_kind == '+' ? value + step : value * step;
    if (next <= value) bad_list(flag, item, "the step does not grow the value");
    value = next;
  }
}

/// Calls `body` for every combination of the axes that do not belong to a test's own shape.
template <class Body>
void for_each_setting(const Grid& grid, const Body& body) {
  Test t;
  for (const std::string& model : grid.models)
    for (const int ngl : grid.n_gpu_layers)
      for (const int ncmoe : grid.n_cpu_moe)
        for (const LoadMode lm : grid.load_mode)
          for (const std::string& rules : grid.tensor_rules)
            for (const int nb : grid.n_batch)
              for (const int nub : grid.n_ubatch)
                for (const ggml::DType tk : grid.type_k)
                  for (const ggml::DType tv : grid.type_v)
                    for (const FlashAttention fa : grid.flash_attention)
                      for (const int threads : grid.n_threads)
                        for (const int depth : grid.n_depth)
                          for (const int poll : grid.poll) {
                            t.model = model, t.n_gpu_layers = ngl, t.n_cpu_moe = ncmoe, t.load_mode = lm,
                            t.tensor_rules = rules;
                            t.n_batch = nb, t.n_ubatch = std::min(nub, nb), t.type_k = tk, t.type_v = tv,
                            t.flash_attention = fa;
                            t.n_threads = threads, t.n_depth = depth, t.poll = poll;
                            body(t);
                          }
}

}  // namespace

std::vector<int> parse_int_list(std::string_view flag, std::string_view text) {
  std::vector<int> values;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    add_item(flag, text.substr(begin, end - begin), values);
    begin = end + 1;
  }
  return values;
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

std::string_view load_mode_name(LoadMode mode) {
  switch (mode) {
    case LoadMode::none:
      return "none";
    case LoadMode::mmap:
      return "mmap";
    case LoadMode::mlock:
      return "mlock";
    case LoadMode::mmap_mlock:
      return "mmap+mlock";
    case LoadMode::direct_io:
      break;
  }
  return "dio";
}

}  // namespace bench
