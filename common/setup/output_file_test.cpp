#include "common/setup/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "ggml/error.h"

namespace common {
namespace {

class OutputFile : public ::testing::Test {
 protected:
  OutputFile() : folder_(std::filesystem::temp_directory_path() / ("tandem-output-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~OutputFile() override { std::filesystem::remove_all(folder_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] std::string make(const std::string& name) const {
    std::ofstream(folder_ / name) << name;
    return folder_ / name;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

TEST_F(OutputFile, MayBeNewOrReplaceAFileThatIsNotRead) {
  const std::vector<std::string> inputs{make("model"), "", path("absent")};
  EXPECT_NO_THROW(check_output(path("new"), inputs));
  EXPECT_NO_THROW(check_output(make("old"), inputs));
}

TEST_F(OutputFile, IsNoInputNotEvenByAnotherName) {
  const std::vector<std::string> inputs{make("text"), make("model")};
  std::filesystem::create_symlink(path("model"), path("link"));
  EXPECT_THROW(check_output(path("model"), inputs), ggml::Error);
  EXPECT_THROW(check_output(path("link"), inputs), ggml::Error);
  EXPECT_THROW(check_output(path(".") + "/text", inputs), ggml::Error);
}

TEST_F(OutputFile, IsAPlainFile) {
  EXPECT_THROW(check_output(path(""), {}), ggml::Error);  // the folder
  EXPECT_THROW(check_output("/dev/null", {}), ggml::Error);
  EXPECT_THROW(check_output("", {}), ggml::Error);
}

}  // namespace
}  // namespace common
