#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llama {

/// How the symbols of a BPE vocabulary are spelt.
enum class BpeForm : unsigned char {
  byte_level,   // each byte is a printable character (GPT-2's map)
  marks,        // raw characters with spaces as U+2581, missing ones as byte tokens
  marks_lines,  // the same, and a run of newlines that is a token is taken whole
  raw,          // raw characters, spaces as they are
};

/// One row: what a `tokenizer.ggml.pre` name means.
struct PreTokenizerRow {
  std::string_view name;
  std::string_view group;  // key into the regex groups
  bool clean_spaces = false;
  bool ignore_merges = false;  // a piece that is a token as a whole is taken without merging
  bool add_bos = false;        // default, unless forced
  bool force_bos = false;      // the file's key is not asked
  bool add_sep = false;
  bool nfc = false;         // text is brought to Unicode's normal form C first
  bool default_bos = true;  // whether the algorithm's default BOS id holds
  BpeForm form = BpeForm::byte_level;
};

/// One group: regexes in PCRE2 spelling, applied one after the other inside each piece that the former left.
struct PreTokenizerGroup {
  std::string_view name;
  std::vector<std::string_view> regexes;
};

[[nodiscard]] std::span<const PreTokenizerRow> pre_tokenizer_rows();
[[nodiscard]] std::span<const PreTokenizerGroup> pre_tokenizer_groups();
/// The row of `name`, or null.
[[nodiscard]] const PreTokenizerRow* find_pre_tokenizer(std::string_view name);

/// Cuts text into the pieces that no merge crosses. Immutable and thread-safe.
class Splitter {
 public:
  /// Pre: `group` is one of the table's.
  explicit Splitter(std::string_view group);
  /// Rules of one's own; `name` is for errors. Throws Error(internal) for one that does not compile.
  Splitter(std::string_view name, std::span<const std::string_view> regexes);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  /// Replaces the content of `pieces` by views of `text`, in order and without gaps. Pre: `text` is valid UTF-8.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llama
