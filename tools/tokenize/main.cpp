// llama-tokenize: shows the tokens that a model makes of a text.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "common/args/args.h"
#include "common/args/option.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "llama/vocab.h"

namespace {

std::string read_stdin() {
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin)) text.append(buffer.data(), n);
  if (std::ferror(stdin) != 0) throw ggml::Error(ggml::ErrorCode::io, "standard input could not be read");
  return text;
}

void print_ids(const std::vector<llama::Token>& tokens) {
  std::string line = "[";
  for (const llama::Token token : tokens) {
    if (line.size() > 1) line += ", ";
    line += std::to_string(token);
  }
  std::puts((line + "]").c_str());
}

// The pieces are bytes, and a character may be spread over several lines: they are written as they are.
void print_pieces(const llama::Vocab& vocab, const std::vector<llama::Token>& tokens) {
  for (const llama::Token token : tokens) {
    const std::string_view piece = vocab.piece(token, llama::SpecialText::show);
    std::printf("%6d -> '", token);
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fputs("'\n", stdout);
  }
}

void run(const common::Settings& settings) {
  const common::TokenizeSettings& wanted = settings.tokenize;
  const ggml::gguf::File file = ggml::gguf::File::open(settings.model.path);
  const llama::Vocab vocab = llama::Vocab::load(file.metadata(), settings.model.path);
  std::string text = settings.prompt.prompt;
  if (wanted.from_stdin) {
    text = read_stdin();
    if (settings.prompt.escape) text = common::unescape(text);
  }
  const std::vector<llama::Token> tokens = vocab.tokenize(
      text, {.add_special = vocab.add_bos() && !wanted.no_bos, .parse_special = !wanted.no_parse_special});
  if (wanted.ids) {
    print_ids(tokens);
  } else {
    print_pieces(vocab, tokens);
  }
  if (wanted.show_count) std::printf("Total number of tokens: %zu\n", tokens.size());
  if (std::fflush(stdout) != 0) throw ggml::Error(ggml::ErrorCode::io, "standard output could not be written");
}

}  // namespace

int main(int argc, char** argv) {
  const common::Parsed parsed = common::parse_or_exit(common::Tool::tokenize, argc, argv);
  try {
    run(parsed.settings);
  } catch (const ggml::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "hint: %s\n", error.hint().c_str());
    return 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
