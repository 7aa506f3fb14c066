// llama-gguf-split.
#include <charconv>
#include <limits>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kGroup = "Split models";
constexpr std::int64_t kMega = 1000 * 1000;
constexpr std::int64_t kGiga = 1000 * kMega;

/// "300M", "2G": decimal units, as file hosters count.
void apply_max_size(Target& target, const Argument& argument) {
  const std::string& text = argument.value();
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  const char unit = stop + 1 == end ? *stop : '\0';
  const std::uint64_t factor = unit == 'M' || unit == 'm' ? kMega : unit == 'G' || unit == 'g' ? kGiga : 0;
  if (failure != std::errc() || number == 0 || factor == 0 ||
      number > std::numeric_limits<std::int64_t>::max() / factor) {
    bad_value(argument, "a number and M or G, such as 300M or 2G");
  }
  target.settings.gguf_split.max_bytes = number * factor;
}

const std::vector<Option> kRows = {
    option(
        {"FILE"}, "", "Input, then output.",
        [](Target& target, const Argument& argument) { target.settings.gguf_split.files.push_back(argument.value()); })
        .operand(),
    option({"--split"}, "", "Split the input; what happens without --merge.", [](Target&, const Argument&) {}),
    option({"--merge"}, "", "Merge the parts of which the input is the first. An existing output is not replaced.",
           toggle([](Settings& s) -> auto& { return s.gguf_split.merge; })),
    option({"--split-max-tensors"}, "N", "Most tensors in a part.",
           whole(
               [](Settings& s) -> auto& { return s.gguf_split.max_tensors; }, 1))
        .initially("128, unless --split-max-size is given"),
    option({"--split-max-size"}, "N(M|G)",
           "Largest size of a part, in 10^6 or 10^9 bytes; only a single tensor may exceed it.", apply_max_size),
    option({"--no-tensor-first-split"}, "", "The first part holds the metadata and no tensor.",
           [](Target& target, const Argument&) { target.settings.gguf_split.tensors_in_first = false; }),
    option({"--dry-run"}, "", "Show the parts and write nothing.",
           toggle([](Settings& s) -> auto& { return s.gguf_split.dry_run; })),
    option({"--delete-splits"}, "", "After --merge: remove the parts.",
           toggle([](Settings& s) -> auto& { return s.gguf_split.delete_splits; })),
};

}  // namespace

void add_gguf_split_options(std::vector<Option>& table) {
  for (Option row : kRows) {
    row.group = kGroup;
    row.tools = kGgufSplit;
    table.push_back(std::move(row));
  }
}

}  // namespace common
