#include "model/model_text.h"

#include <cmath>

#include "ggml/log.h"

namespace llama {

namespace {

std::string count_text(std::uint64_t n) {
  const double value = static_cast<double>(n);
  if (n >= 1000000000) {
    const double billions = value / 1e9;
    const double tenths = std::round(billions * 10.0) / 10.0;
    const bool whole = billions >= 10.0 || tenths == std::floor(tenths);
    return ggml::strf(whole ? "%.0fB" : "%.1fB", whole ? std::round(billions) : tenths);
  }
  if (n >= 1000000) return ggml::strf("%.0fM", std::round(value / 1e6));
  return ggml::strf("%.0fK", std::round(value / 1e3));
}

struct FileTypeName {
  std::uint32_t number;
  const char* name;
};

constexpr FileTypeName kFileTypes[] = {
    {0, "all F32"},       {1, "F16"},           {2, "Q4_0"},           {3, "Q4_1"},          {7, "Q8_0"},
    {8, "Q5_0"},          {9, "Q5_1"},          {10, "Q2_K - Medium"}, {11, "Q3_K - Small"}, {12, "Q3_K - Medium"},
    {13, "Q3_K - Large"}, {14, "Q4_K - Small"}, {15, "Q4_K - Medium"}, {16, "Q5_K - Small"}, {17, "Q5_K - Medium"},
    {18, "Q6_K"},         {19, "IQ2_XXS"},      {20, "IQ2_XS"},        {21, "Q2_K - Small"}, {22, "IQ3_XS"},
    {23, "IQ3_XXS"},      {24, "IQ1_S"},        {25, "IQ4_NL"},        {26, "IQ3_S"},        {27, "IQ3_M"},
    {28, "IQ2_S"},        {29, "IQ2_M"},        {30, "IQ4_XS"},        {31, "IQ1_M"},        {32, "BF16"},
    {36, "TQ1_0"},        {37, "TQ2_0"},        {38, "MXFP4 MoE"},     {39, "NVFP4"},        {40, "Q1_0"},
    {41, "Q2_0"},         {135, "Q6_0"},        {138, "IQ2_K"},        {139, "IQ3_K"},       {140, "IQ4_K"},
    {141, "IQ5_K"},       {142, "IQ6_K"},       {145, "IQ4_KS"},       {146, "IQ3_KL"},      {147, "IQ2_KS"},
    {148, "IQ4_KSS"},     {149, "Q8_KV"},       {150, "IQ5_KS"},       {151, "IQ2_KT"},      {152, "IQ3_KT"},
    {153, "IQ4_KT"},      {154, "IQ3_KS"},      {155, "IQ2_KL"},       {156, "IQ1_KT"},
};

}  // namespace

std::string size_label(std::uint64_t n_params, std::uint64_t n_active) {
  const std::string all = count_text(n_params);
  return n_active < n_params ? all + ".A" + count_text(n_active) : all;
}

std::string file_type_text(std::uint32_t file_type) {
  constexpr std::uint32_t kGuessed = 1024;  // added when the type was guessed from the tensors
  const std::uint32_t number = file_type & ~kGuessed;
  for (const FileTypeName& row : kFileTypes)
    if (row.number == number) return std::string(row.name) + ((file_type & kGuessed) != 0 ? " (guessed)" : "");
  return "unknown (" + std::to_string(file_type) + ")";
}

}  // namespace llama
