#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "models/adapter_fixture.h"

/// LoRA files that do not fit the model, and scales that fit no adapter.
namespace llama {
namespace {

using ggml::ErrorCode;
using ggml::Shape;
using golden::Lora;
using golden::small_context;
using golden::Values;

class AdapterFiles : public golden::AdapterFixture {
 protected:
  void SetUp() override {
    use("llama");
    ASSERT_NE(golden_, nullptr);
  }
  [[nodiscard]] std::string problem_of(const std::string& adapter) const {
    ModelParams params;
    params.path = base_path_;
    params.adapters = {adapter};
    return problem(params);
  }
  /// Sets an extent of a tensor in a file, whatever that makes of it.
  static void set_extent(const std::string& path, const std::string& tensor, std::size_t axis, std::uint64_t extent) {
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::size_t name = bytes.find(tensor);
    ASSERT_NE(name, std::string::npos);
    const std::size_t extents = name + tensor.size() + sizeof(std::uint32_t);  // behind their number
    std::memcpy(bytes.data() + extents + axis * sizeof(extent), &extent, sizeof(extent));
    std::ofstream(path, std::ios::binary) << bytes;
  }
};

TEST_F(AdapterFiles, ThatDoNotFitGiveOneErrorWithAllProblems) {
  struct Case {
    const char* what;
    std::function<void(Lora&)> edit;
    std::vector<std::string> expected;
  };
  const auto erase = [](Lora& l, const std::string& name) {
    std::erase_if(l.tensors, [&](const Values& t) { return t.name == name; });
  };
  const auto reshape = [](Lora& l, const std::string& name, const Shape& shape) {
    Values& t = l.at(name);
    t.shape = shape;
    t.data.assign(static_cast<std::size_t>(shape.elements()), 0.0f);
  };
  const auto add = [](Lora& l, const std::string& name, const Shape& shape) {
    l.tensors.push_back({name, shape, std::vector<float>(static_cast<std::size_t>(shape.elements()), 0.0f)});
  };
  const Case cases[] = {
      {"a model",
       [](Lora& l) { l.metadata.set_string("general.type", "model"); },
       {"general.type: 'adapter' expected, file has 'model'"}},
      {"another kind of adapter",
       [](Lora& l) { l.metadata.set_string("adapter.type", "ia3"); },
       {"adapter.type: 'lora' expected, file has 'ia3'"}},
      {"for another architecture",
       [](Lora& l) { l.metadata.set_string("general.architecture", "qwen2"); },
       {"general.architecture: 'llama' expected, file has 'qwen2'"}},
      {"no alpha", [](Lora& l) { l.metadata.erase("adapter.lora.alpha"); }, {"adapter.lora.alpha: missing"}},
      {"alpha is text", [](Lora& l) { l.metadata.set_string("adapter.lora.alpha", "8"); }, {"adapter.lora.alpha"}},
      {"alpha is no number",
       [](Lora& l) { l.metadata.set_f32("adapter.lora.alpha", NAN); },
       {"adapter.lora.alpha: a finite number expected"}},
      {"alpha is infinite",
       [](Lora& l) { l.metadata.set_f32("adapter.lora.alpha", INFINITY); },
       {"adapter.lora.alpha: a finite number expected"}},
      {"switched on by a text",
       [](Lora& l) {
         const std::int32_t tokens[] = {1, 2};
         l.metadata.set_i32s("adapter.alora.invocation_tokens", tokens);
       },
       {"adapter.alora.invocation_tokens"}},
      {"empty", [](Lora& l) { l.tensors.clear(); }, {"the file has no tensors"}},
      {"half a pair and a foreign tensor",
       [&](Lora& l) {
         erase(l, "blk.0.attn_q.weight.lora_b");
         erase(l, "blk.0.attn_k.weight.lora_a");
         add(l, "blk.0.attn_norm.weight", Shape(8));
       },
       {"3 problems", "blk.0.attn_q.weight.lora_b: missing", "blk.0.attn_k.weight.lora_a: missing",
        "blk.0.attn_norm.weight: not a tensor of an adapter"}},
      {"tensors that the model lacks",
       [&](Lora& l) {
         add(l, "blk.99.attn_q.weight.lora_a", Shape(128, 4));
         add(l, "blk.99.attn_q.weight.lora_b", Shape(4, 128));
         add(l, "blk.0.attn_norm.weight.lora_a", Shape(128, 4));
         add(l, "blk.0.attn_norm.weight.lora_b", Shape(4, 1));
       },
       {"2 problems", "blk.99.attn_q.weight: the model has no such tensor",
        "blk.0.attn_norm.weight: this version applies no adapters"}},
      {"other shapes",
       [&](Lora& l) {
         reshape(l, "blk.0.attn_q.weight.lora_a", Shape(64, 4));
         reshape(l, "blk.0.attn_q.weight.lora_b", Shape(5, 128));
         reshape(l, "token_embd.weight.lora_a", Shape(4, 3));
       },
       {"3 problems", "blk.0.attn_q.weight.lora_a: 128 x 4 expected", "file has 64 x 4",
        "blk.0.attn_q.weight.lora_b: 4 x 128 expected", "token_embd.weight.lora_a: 4 x "}},
      {"an absurd rank",
       [&](Lora& l) {
         reshape(l, "blk.0.attn_q.weight.lora_a", Shape(128, 4096));
         reshape(l, "blk.0.attn_q.weight.lora_b", Shape(4096, 128));
       },
       {"blk.0.attn_q.weight: rank from 1 to 128 expected", "file has 4096"}},
      {"a NaN",
       [](Lora& l) { l.at("blk.0.attn_q.weight.lora_a").data[3] = std::numeric_limits<float>::quiet_NaN(); },
       {"blk.0.attn_q.weight.lora_a (adapter 0): NaN or infinity"}},
  };
  EXPECT_EQ(problem_of(lora(4, 8.0f, 9).write(file("good.gguf"))), "");
  for (const Case& c : cases) {
    Lora edited = lora(4, 8.0f, 9);
    c.edit(edited);
    const std::string text = problem_of(edited.write(file("bad.gguf")));
    for (const std::string& part : c.expected)
      EXPECT_NE(text.find(part), std::string::npos) << c.what << ": " << part << "\n" << text;
    EXPECT_NE(text.find("bad.gguf"), std::string::npos) << c.what << ": " << text;
  }
}

/// Latent attention's keys and values are used in two forms, of which one is a copy that is made at load.
TEST_F(AdapterFiles, ForTheKeysAndValuesOfLatentAttentionAreRefused) {
  use("deepseek2-lite");
  if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
  const std::string name = "blk.0.attn_kv_b.weight";
  const std::string text = problem_of(Lora(*base_, {name}, {.rank = 4}).write(file("kv_b.gguf")));
  EXPECT_NE(text.find(name + ": this version applies no adapters"), std::string::npos) << text;
  EXPECT_EQ(problem_of(Lora(*base_, {"blk.0.attn_kv_a_mqa.weight"}, {.rank = 4}).write(file("kv_a.gguf"))), "");
}

TEST_F(AdapterFiles, ThatAreNoSoundGgufFilesSaySo) {
  const std::string path = lora(4, 8.0f, 9).write(file("bad.gguf"));
  const auto size = std::filesystem::file_size(path);
  for (const std::uintmax_t left : {size - 64, size / 2, std::uintmax_t{100}, std::uintmax_t{3}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, left);
    EXPECT_NE(problem_of(path).find("bad.gguf"), std::string::npos) << left << " bytes: " << problem_of(path);
  }
  const std::string no_rank = lora(4, 8.0f, 9).write(file("rank.gguf"));
  set_extent(no_rank, "blk.0.attn_q.weight.lora_a", 1, 0);
  EXPECT_NE(problem_of(no_rank).find("blk.0.attn_q.weight.lora_a"), std::string::npos) << problem_of(no_rank);
  EXPECT_NE(problem_of(base_path_).find("general.type: 'adapter' expected"), std::string::npos)
      << problem_of(base_path_);
  EXPECT_NE(problem_of(file("none.gguf")).find("none.gguf"), std::string::npos);
}

TEST_F(AdapterFiles, ScalesThatFitNoAdapterAreRefused) {
  const auto model = load(base_path_, {lora(2, 2.0f, 10).write(file("1.gguf"))});
  const auto code = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const ggml::Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code([&] { Context(*model, *device_, small_context({1.0f, 2.0f})); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([&] { Context(*model, *device_, small_context({NAN})); }), ErrorCode::invalid_argument);
  Context context(*model, *device_, small_context());
  const SeqId seq = context.create_sequence();
  const Token tokens[] = {1, 2};
  for (const std::vector<float>& bad : {std::vector<float>{1.0f, 0.0f}, std::vector<float>{INFINITY}}) {
    const StepSequence s{seq, tokens, Outputs::last, nullptr, bad};
    EXPECT_EQ(code([&] { (void)context.run({{&s, 1}}); }), ErrorCode::invalid_argument);
  }
  const std::vector<std::string> many(kMaxAdapters + 1, file("1.gguf"));
  EXPECT_EQ(code([&] { (void)load(base_path_, many); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace llama
