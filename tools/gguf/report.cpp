#include "report.h"

#include <fmt/format.h>

#include <algorithm>

namespace gguf_tool {
namespace {

using ggml::gguf::File;
using ggml::gguf::Shard;
using ggml::gguf::TensorInfo;

/// Columns as wide as their widest cell; numbers to the right.
class Table {
 public:
  enum class Align : std::uint8_t { left, right };
  explicit Table(std::vector<Align> align) : align_(std::move(align)), widths_(align_.size()) {}

  void row(std::vector<std::string> cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], display_width(cells[i]));
    rows_.push_back(std::move(cells));
  }
  void print(std::FILE* out) const {
    for (const std::vector<std::string>& cells : rows_) {
      std::string line;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::string space(widths_[i] - display_width(cells[i]), ' ');
        line += i == 0 ? "  " : "   ";
        line += align_[i] == Align::right ? space + cells[i] : cells[i] + (i + 1 < cells.size() ? space : "");
      }
      line += '\n';
      std::fwrite(line.data(), 1, line.size(), out);
    }
  }

 private:
  /// Characters, not bytes; wide ones count once, which is good enough for names.
  static std::size_t display_width(const std::string& text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }

  std::vector<Align> align_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {} ({} bytes)", value, kUnits[unit], bytes);
}

void print_container(const File& file, std::FILE* out) {
  Table table({Table::Align::left, Table::Align::left});
  for (const Shard& shard : file.shards()) {
    table.row({"file", escaped(shard.path)});
    table.row({"size", size_text(shard.file_bytes)});
    table.row({"format", fmt::format("GGUF version {}, alignment {}, data from byte {}", shard.version, shard.alignment,
                                     shard.data_start)});
  }
  if (file.shards().size() > 1) table.row({"parts", fmt::format("{}", file.shards().size())});
  table.print(out);
}

void print_metadata(const File& file, Detail detail, std::FILE* out) {
  fmt::print(out, "\nmetadata: {} keys\n", file.metadata().entries().size());
  Table table({Table::Align::left, Table::Align::left, Table::Align::left});
  for (const auto& [key, value] : file.metadata().entries()) {
    table.row({escaped(key), type_text(value), value_text(value, detail)});
  }
  table.print(out);
}

void print_tensors(const File& file, std::FILE* out) {
  using enum Table::Align;
  fmt::print(out, "\ntensors: {}\n", file.tensors().size());
  if (file.tensors().empty()) return;
  const bool split = file.shards().size() > 1;
  Table table({right, left, left, left, right, right, right});
  std::vector<std::string> title{"#", "name", "type", "shape", "bytes", "offset"};
  if (split) title.emplace_back("part");
  table.row(std::move(title));
  std::size_t number = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    std::vector<std::string> cells{fmt::format("{}", number++),
                                   escaped(tensor.name),
                                   std::string(type_info(tensor.type).name),
                                   tensor.shape.text(),
                                   fmt::format("{}", tensor.bytes),
                                   fmt::format("{}", tensor.offset)};
    if (split) cells.push_back(fmt::format("{}", tensor.shard + 1));
    table.row(std::move(cells));
  }
  table.print(out);
}

void print_totals(const File& file, std::FILE* out) {
  using enum Table::Align;
  if (file.tensors().empty()) return;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  const std::vector<TypeTotal> totals = totals_per_type(file);
  for (const TypeTotal& total : totals) {
    elements += total.elements;
    bytes += total.bytes;
  }
  fmt::print(out, "\ntypes\n");
  Table table({left, right, right, right, right, right});
  table.row({"type", "tensors", "elements", "bytes", "share", "bits per weight"});
  const auto add = [&](const std::string& name, const TypeTotal& total) {
    const auto total_bytes = static_cast<double>(total.bytes);
    table.row({name, fmt::format("{}", total.tensors), fmt::format("{}", total.elements),
               fmt::format("{}", total.bytes), fmt::format("{:.1f} %", 100 * total_bytes / static_cast<double>(bytes)),
               fmt::format("{:.4g}", 8 * total_bytes / static_cast<double>(total.elements))});
  };
  for (const TypeTotal& total : totals) add(std::string(type_info(total.type).name), total);
  add("all", {ggml::DType::f32, file.tensors().size(), elements, bytes});
  table.print(out);
}

}  // namespace

std::vector<TypeTotal> totals_per_type(const File& file) {
  std::vector<TypeTotal> totals;
  for (const TensorInfo& tensor : file.tensors()) {
    auto total = std::ranges::find(totals, tensor.type, &TypeTotal::type);
    if (total == totals.end()) total = totals.insert(total, TypeTotal{tensor.type});
    ++total->tensors;
    total->elements += static_cast<std::uint64_t>(tensor.shape.elements());
    total->bytes += tensor.bytes;
  }
  return totals;
}

void print_report(const File& file, Detail detail, std::FILE* out) {
  print_container(file, out);
  print_metadata(file, detail, out);
  print_tensors(file, out);
  print_totals(file, out);
}

}  // namespace gguf_tool
