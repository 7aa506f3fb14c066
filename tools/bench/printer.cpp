#include "printer.h"

#include "ggml/error.h"
#include "ggml/log.h"

namespace bench {

using ggml::strf;

namespace {

using R = const Result&;

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += strf("\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_value(const Field& field, const Result& result) {
  std::string value = field.value(result);
  switch (field.type) {
    case FieldType::text:
      return json_string(value);
    case FieldType::boolean:
      return value == "1" ? "true" : "false";
    case FieldType::integer:
    case FieldType::number:
      break;
  }
  return value;
}

template <class T>
std::string joined(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values) {
    if (!out.empty()) out += ", ";
    out += strf("%.6g", static_cast<double>(value));
  }
  return out;
}

std::string joined_ns(const std::vector<std::uint64_t>& values) {
  std::string out;
  for (const std::uint64_t value : values) {
    if (!out.empty()) out += ", ";
    out += std::to_string(value);
  }
  return out;
}

class StreamPrinter : public Printer {
 public:
  explicit StreamPrinter(std::FILE* stream) : stream_(stream) {}

 protected:
  void write(const std::string& text) {
    std::fputs(text.c_str(), stream_);
    if (std::fflush(stream_) == 0 && std::ferror(stream_) == 0) return;
    throw ggml::Error(ggml::ErrorCode::io, stream_ == stdout ? "standard output could not be written"
                                                             : "standard error could not be written");
  }

 private:
  std::FILE* stream_;
};

class CsvPrinter : public StreamPrinter {
 public:
  using StreamPrinter::StreamPrinter;
  void begin() override {
    std::string line;
    for (const Field& field : fields()) line += (line.empty() ? "" : ",") + std::string(field.name);
    write(line + "\n");
  }
  void print(const Result& result) override {
    std::string line;
    for (const Field& field : fields()) {
      if (!line.empty()) line += ',';
      line += '"';
      for (const char c : field.value(result)) {
        if (c == '"') line += '"';
        line += c;
      }
      line += '"';
    }
    write(line + "\n");
  }
};

class JsonPrinter : public StreamPrinter {
 public:
  using StreamPrinter::StreamPrinter;
  void begin() override { write("[\n"); }
  void print(const Result& result) override {
    std::string text = first_ ? "  {\n" : ",\n  {\n";
    first_ = false;
    for (const Field& field : fields())
      text += strf("    \"%s\": %s,\n", field.name.data(), json_value(field, result).c_str());
    text += strf("    \"samples_ns\": [ %s ],\n", joined_ns(result.samples_ns).c_str());
    text += strf("    \"samples_ts\": [ %s ]\n  }", joined(result.tokens_per_second()).c_str());
    write(text);
  }
  void end() override { write("\n]\n"); }

 private:
  bool first_ = true;
};

class JsonlPrinter : public StreamPrinter {
 public:
  using StreamPrinter::StreamPrinter;
  void print(const Result& result) override {
    std::string text = "{";
    for (const Field& field : fields())
      text += strf("\"%s\": %s, ", field.name.data(), json_value(field, result).c_str());
    text += strf("\"samples_ns\": [ %s ],", joined_ns(result.samples_ns).c_str());
    text += strf("\"samples_ts\": [ %s ]}\n", joined(result.tokens_per_second()).c_str());
    write(text);
  }
};

class SqlPrinter : public StreamPrinter {
 public:
  using StreamPrinter::StreamPrinter;
  void begin() override {
    std::string text = "CREATE TABLE IF NOT EXISTS llama_bench (\n";
    for (std::size_t i = 0; i < fields().size(); ++i) {
      const Field& field = fields()[i];
      const char* type = field.type == FieldType::text ? "TEXT" : field.type == FieldType::number ? "REAL" : "INTEGER";
      text += strf("  %s %s%s\n", field.name.data(), type, i + 1 < fields().size() ? "," : "");
    }
    write(text + ");\n\n");
  }
  void print(const Result& result) override {
    std::string names;
    std::string values;
    for (const Field& field : fields()) {
      if (!names.empty()) {
        names += ", ";
        values += ", ";
      }
      names += field.name;
      values += '\'';
      for (const char c : field.value(result)) {
        if (c == '\'') values += '\'';
        values += c;
      }
      values += '\'';
    }
    write("INSERT INTO llama_bench (" + names + ") VALUES (" + values + ");\n");
  }
};

/// A column of the markdown table. A negative width aligns left.
struct Column {
  std::string title;
  int width;
  std::string (*value)(const Result&);
};

std::string field_value(std::string_view name, const Result& result) {
  for (const Field& field : fields()) {
    if (field.name == name) return field.value(result);
  }
  return {};
}

class MarkdownPrinter : public StreamPrinter {
 public:
  MarkdownPrinter(std::FILE* stream, const Grid& grid, const Grid& defaults, const RunFacts& run)
      : StreamPrinter(stream) {
    const RunFacts usual;
    columns_ = {{"model", -30, [](R r) { return r.subject.model_type; }},
                {"size", 10, [](R r) { return size_text(r.subject.model_size); }},
                {"params", 10, [](R r) { return params_text(r.subject.model_n_params); }},
                {"backend", -10, [](R r) { return field_value("backends", r); }}};
    const auto add = [&](bool shown, const char* title, int width, std::string (*value)(R)) {
      if (shown) columns_.push_back({title, width, value});
    };
    add(!run.cpu_only(), "ngl", 3, [](R r) { return field_value("n_gpu_layers", r); });
    add(grid.n_cpu_moe != defaults.n_cpu_moe, "n_cpu_moe", 10, [](R r) { return r.test.experts_on_cpu(); });
    add(run.cpu_only() || grid.n_threads != defaults.n_threads, "threads", 7,
        [](R r) { return field_value("n_threads", r); });
    add(grid.threads_gen_batch != defaults.threads_gen_batch, "n_threads_batch", 15,
        [](R r) { return field_value("n_threads_batch", r); });
    add(grid.cpus != defaults.cpus, "cpu_mask", -10, [](R r) { return field_value("cpu_mask", r); });
    add(grid.cpu_strict != defaults.cpu_strict, "cpu_strict", 10, [](R r) { return field_value("cpu_strict", r); });
    add(grid.poll != defaults.poll, "poll", 10, [](R r) { return field_value("poll", r); });
    add(grid.n_batch != defaults.n_batch, "n_batch", 7, [](R r) { return field_value("n_batch", r); });
    add(grid.n_ubatch != defaults.n_ubatch, "n_ubatch", 8, [](R r) { return field_value("n_ubatch", r); });
    add(grid.type_k != defaults.type_k, "type_k", 6, [](R r) { return field_value("type_k", r); });
    add(grid.type_v != defaults.type_v, "type_v", 6, [](R r) { return field_value("type_v", r); });
    add(run.main_gpu != usual.main_gpu, "main_gpu", 10, [](R r) { return field_value("main_gpu", r); });
    add(run.split_mode != usual.split_mode, "sm", 6, [](R r) { return field_value("split_mode", r); });
    add(run.no_kv_offload, "nkvo", 13, [](R r) { return field_value("no_kv_offload", r); });
    add(grid.flash_attention != defaults.flash_attention, "fa", 3, [](R r) { return field_value("flash_attn", r); });
    add(grid.mla != defaults.mla, "mla", 3, [](R r) { return field_value("mla_attn", r); });
    add(grid.attention_max_batch_mib != defaults.attention_max_batch_mib, "amb", 5,
        [](R r) { return field_value("attn_max_batch", r); });
    add(run.graph_reuse != usual.graph_reuse, "gr", 2, [](R r) { return field_value("reuse", r); });
    add(grid.expert_reduction != defaults.expert_reduction, "ser", 10, [](R r) { return field_value("ser", r); });
    add(run.devices != usual.devices, "dev", -12, [](R r) { return field_value("devices", r); });
    add(run.tensor_split != usual.tensor_split, "ts", -12, [](R r) { return field_value("tensor_split", r); });
    add(grid.tensor_rules != defaults.tensor_rules, "ot", -21,
        [](R r) { return field_value("tensor_buft_overrides", r); });
    add(grid.load_mode != defaults.load_mode, "lm", 10, [](R r) { return field_value("load_mode", r); });
    add(run.cpu_moe, "cmoe", 4, [](R r) { return field_value("cpu_moe", r); });
    add(run.k_hadamard, "khad", 4, [](R r) { return field_value("k_hadamard", r); });
    add(run.v_hadamard, "vhad", 4, [](R r) { return field_value("v_hadamard", r); });
    add(run.merge_qkv, "mqkv", 4, [](R r) { return field_value("mqkv", r); });
    add(run.merge_up_gate, "muge", 4, [](R r) { return field_value("muge", r); });
    add(run.repack, "rtr", 3, [](R r) { return field_value("rtr", r); });
    add(!run.fused_moe, "fmoe", 4, [](R r) { return field_value("fused_moe", r); });
    add(run.no_fused_up_gate, "no-fug", 6, [](R r) { return field_value("no_fused_up_gate", r); });
    add(run.no_fused_sum, "no-mmad", 7, [](R r) { return field_value("no_fused_sum", r); });
    add(run.no_ooae, "no-ooae", 7, [](R r) { return field_value("no_ooae", r); });
    add(run.no_op_offload, "nopo", 4, [](R r) { return field_value("no_op_offload", r); });
    add(run.fit_target != usual.fit_target, "fitt", 10, [](R r) { return field_value("fit_target", r); });
    add(run.fit_min_ctx != usual.fit_min_ctx, "fitc", 11, [](R r) { return field_value("fit_min_ctx", r); });
    add(true, "test", 15, [](R r) { return r.test.label(); });
    add(true, "t/s", 20, [](R r) {
      const std::vector<double> rates = r.tokens_per_second();
      return strf("%.2f ± %.2f", mean(rates), deviation(rates));
    });
  }

  void begin() override {
    std::string head = "|";
    std::string rule = "|";
    for (const Column& column : columns_) {
      head += strf(" %*s |", column.width, column.title.c_str());
      const auto dashes = static_cast<std::size_t>(std::abs(column.width) - 1);
      rule += " " + std::string(dashes, '-') + (column.width > 0 ? ":" : "-") + " |";
    }
    write(head + "\n" + rule + "\n");
  }

  void print(const Result& result) override {
    std::string line = "|";
    for (const Column& column : columns_) {
      const int extra = column.title == "t/s" ? 1 : 0;  // the plus-minus sign has two bytes
      line += strf(" %*s |", column.width + extra, column.value(result).c_str());
    }
    write(line + "\n");
    build_ = result.subject.build_commit + strf(" (%d)", result.subject.build_number);
  }

  void end() override { write("\nbuild: " + build_ + "\n"); }

 private:
  static std::string size_text(std::uint64_t bytes) {
    const double mib = static_cast<double>(bytes) / (1024.0 * 1024.0);
    return mib < 1024.0 ? strf("%.2f MiB", mib) : strf("%.2f GiB", mib / 1024.0);
  }
  static std::string params_text(std::uint64_t n) {
    return n < 1000000000ull ? strf("%.2f M", static_cast<double>(n) / 1e6)
                             : strf("%.2f B", static_cast<double>(n) / 1e9);
  }

  std::vector<Column> columns_;
  std::string build_;
};

}  // namespace

std::unique_ptr<Printer> make_printer(Format format, std::FILE* stream, const Grid& grid, const Grid& defaults,
                                      const RunFacts& run) {
  switch (format) {
    case Format::csv:
      return std::make_unique<CsvPrinter>(stream);
    case Format::json:
      return std::make_unique<JsonPrinter>(stream);
    case Format::jsonl:
      return std::make_unique<JsonlPrinter>(stream);
    case Format::md:
      return std::make_unique<MarkdownPrinter>(stream, grid, defaults, run);
    case Format::sql:
      return std::make_unique<SqlPrinter>(stream);
    case Format::none:
      break;
  }
  return nullptr;
}

}  // namespace bench
