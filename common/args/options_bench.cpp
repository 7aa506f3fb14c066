// llama-sweep-bench.
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kSweep = "Benchmark";

/// A count of which anything below one means one.
template <class Get>
Apply at_least_one(Get get) {
  return [=](Target& target, const Argument& argument) {
    const std::int64_t n = to_integer(argument, argument.value(), -kMaxInt, kMaxInt);
    get(target.settings) = n < 1 ? 1 : static_cast<int>(n);
  };
}

const std::vector<Option> kSweepRows = {
    option({"-nrep", "--n-repetitions"}, "N", "Measure the first row N times and print the mean.",
           at_least_one([](Settings& s) -> auto& { return s.bench.repetitions; }))
        .initially("1"),
    option({"-wb", "--warmup-batch"}, "", "Compute one full batch before measuring.",
           toggle([](Settings& s) -> auto& { return s.bench.warmup_batch; }))
        .initially("off"),
    option({"--sweep-stride"}, "N", "Measure every Nth row only.",
           at_least_one([](Settings& s) -> auto& { return s.bench.stride; }))
        .initially("1"),
    option({"--sweep-memory"}, "", "Add columns with the memory in use.",
           toggle([](Settings& s) -> auto& { return s.bench.memory; }))
        .initially("off"),
    option({"--roofline"}, "", "Add columns with the share of the machine's limit that was reached.",
           toggle([](Settings& s) -> auto& { return s.bench.roofline; }))
        .initially("off"),
    option({"--output-format"}, "FORMAT", "md (a table) or jsonl, on standard error.",
           word(
               [](Settings& s) -> auto& { return s.bench.format; },
               Words<SweepFormat>{{"md", SweepFormat::markdown}, {"jsonl", SweepFormat::jsonl}}))
        .initially("md"),
    option({"--chart"}, "FNAME", "Draw both speeds over the depth; the name ends in .svg or .html.",
           [](Target& target, const Argument& argument) {
             const std::string name = lower_case(argument.value());
             if (!name.ends_with(".svg") && !name.ends_with(".html"))
               bad_value(argument, "a name that ends in .svg or .html");
             target.settings.bench.chart_file = argument.value();
           }),
    option(
        {"--compare"}, "\"FLAGS\" \"FLAGS\"",
        "Measure this line with each of the two sets of flags at its end, and print ratios per depth; may be repeated "
        "for more sets.",
        [](Target& target, const Argument& argument) {
          for (const std::string& flags : argument.values) target.settings.bench.compare.push_back(flags);
        })
        .takes(2)
        .list(),
    option({"--output-file"}, "FNAME", "Write a copy of the output there that has nothing else in it.",
           text([](Settings& s) -> auto& { return s.bench.output_file; })),
};

}  // namespace

void add_bench_options(std::vector<Option>& table) {
  for (Option row : kSweepRows) {
    row.group = kSweep;
    row.tools = kSweepBench;
    table.push_back(std::move(row));
  }
}

}  // namespace common
