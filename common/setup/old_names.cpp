#include "common/setup/old_names.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/error.h"

namespace common {
namespace {

void say(std::string_view old_name, std::string_view new_name) {
  std::fprintf(stderr, "warning: %.*s is an old name; this is %.*s\n", static_cast<int>(old_name.size()),
               old_name.data(), static_cast<int>(new_name.size()), new_name.data());
}

/// Does not come back. The program's own file is found whatever folder or PATH it was started from.
[[noreturn]] void become_server(int argc, const char* const* argv) {
  std::error_code failed;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  std::string program =
      (std::filesystem::path(failed ? argv[0] : self).parent_path() / tool_name(Tool::server)).string();
  std::vector<char*> words{program.data()};
  for (int i = 1; i < argc; ++i) words.push_back(const_cast<char*>(argv[i]));  // exec changes nothing in them
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  throw ggml::Error(ggml::ErrorCode::io, "error: " + program + " cannot be started: " + std::strerror(errno),
                    "main with --port or --host is the server, which is expected beside it.");
}

bool is_for_server(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--port" || word == "--host") return true;
  return false;
}

}  // namespace

void follow_old_name(Tool tool, int argc, const char* const* argv) {
  if (argc < 1) return;
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  if (tool == Tool::cli && name == "main") {
    const bool server = is_for_server(argc, argv);
    say(name, tool_name(server ? Tool::server : tool));
    if (server) become_server(argc, argv);
  }
  if (tool == Tool::bench && name == "benchmark") say(name, tool_name(tool));
}

}  // namespace common
