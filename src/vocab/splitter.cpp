#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "ggml/error.h"
#include "ggml/log.h"
#include "pretokenizer.h"
#include "regex/regex_message.h"

namespace llama {

namespace {

struct FreeCode {
  void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* p) const noexcept { pcre2_jit_stack_free(p); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

struct Regex {
  Code code;
  bool jit = false;
};

Regex compile(std::string_view group, std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Regex regex;
  regex.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                 &error, &at, nullptr));
  if (!regex.code) {
    throw ggml::Error(ggml::ErrorCode::internal,
                      ggml::strf("the regular expression of pre-tokenizer group %s does not compile: %s at byte %zu",
                                 std::string(group).c_str(), regex_message(error).c_str(), at),
                      "build with PCRE2 10.40 or newer");
  }
  regex.jit = pcre2_jit_compile(regex.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

// What one call of split() needs besides the compiled code: PCRE2's match data may not be shared between threads.
class Matcher {
 public:
  Matcher() : match_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
    if (!match_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), UINT32_MAX);
    pcre2_set_depth_limit(context_.get(), UINT32_MAX);
    pcre2_set_heap_limit(context_.get(), UINT32_MAX);
  }

  // The first match in `subject` at or after `from`. False when there is none.
  bool find(const Regex& regex, std::string_view subject, std::size_t from, std::size_t& begin, std::size_t& end) {
    const auto text = reinterpret_cast<PCRE2_SPTR>(subject.data());
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (regex.jit) {
      rc = pcre2_jit_match(regex.code.get(), text, subject.size(), from, 0, match_.get(), context_.get());
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT && grow_stack()) {
        rc = pcre2_jit_match(regex.code.get(), text, subject.size(), from, 0, match_.get(), context_.get());
      }
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its backtracking points on the heap
      rc = pcre2_match(regex.code.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_.get(),
                       context_.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) {
      throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                        ggml::strf("splitting %zu bytes of text before tokenization failed: %s", subject.size(),
                                   regex_message(rc).c_str()),
                        "send the text in smaller parts");
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_.get());
    begin = range[0];
    end = range[1];
    return true;
  }

 private:
  // PCRE2's built-in 32 KiB do for prose; patterns that repeat a group keep a frame per character of a huge word. Pages
  // of the reserve are touched only when needed.
  bool grow_stack() {
    if (stack_) return false;
    constexpr std::size_t kFirst = std::size_t{1} << 20;
    constexpr std::size_t kMost = std::size_t{256} << 20;
    stack_.reset(pcre2_jit_stack_create(kFirst, kMost, nullptr));
    if (!stack_) return false;
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    return true;
  }

  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
  std::unique_ptr<pcre2_jit_stack, FreeStack> stack_;
};

std::size_t next_char(std::string_view text, std::size_t i) {
  ++i;
  while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) ++i;
  return i;
}

// Cuts one piece into the matches of `regex` and the gaps between them.
void cut(const Regex& regex, std::string_view piece, Matcher& matcher, std::vector<std::string_view>& out) {
  std::size_t done = 0;  // everything before it is in `out`
  std::size_t from = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  while (from <= piece.size() && matcher.find(regex, piece, from, begin, end)) {
    if (begin > done) out.push_back(piece.substr(done, begin - done));
    if (end > begin) out.push_back(piece.substr(begin, end - begin));
    done = end;
    from = end > begin ? end : next_char(piece, end);  // an empty match cuts but consumes nothing
  }
  if (done < piece.size()) out.push_back(piece.substr(done));
}

}  // namespace

struct Splitter::Impl {
  std::vector<Regex> regexes;
};

namespace {

std::span<const std::string_view> regexes_of(std::string_view group) {
  for (const PreTokenizerGroup& row : pre_tokenizer_groups())
    if (row.name == group) return row.regexes;
  return {};
}

}  // namespace

Splitter::Splitter(std::string_view group) : Splitter(group, regexes_of(group)) {
  TANDEM_ASSERT(!impl_->regexes.empty(), "every pre-tokenizer row names a group of the table");
}

Splitter::Splitter(std::string_view name, std::span<const std::string_view> regexes) : impl_(std::make_unique<Impl>()) {
  for (const std::string_view pattern : regexes) impl_->regexes.push_back(compile(name, pattern));
}

Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  if (text.empty()) return;
  Matcher matcher;
  std::vector<std::string_view> before{text};
  for (const Regex& regex : impl_->regexes) {
    pieces.clear();
    for (const std::string_view piece : before) cut(regex, piece, matcher, pieces);
    if (&regex != &impl_->regexes.back()) before.swap(pieces);
  }
}

}  // namespace llama
