// The only place that asks the CPU what it can do.
#include <cpuid.h>

#include <array>
#include <string>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tables.h"
#include "ggml/error.h"

namespace ggml::cpu {
namespace {

struct Level {
  const KernelTable* table;
  bool (*supported)() noexcept;
};

/// Half-precision conversions. Clang 14 has no name for them in __builtin_cpu_supports.
bool has_f16c() noexcept {
  constexpr unsigned kF16c = 1u << 29;  // CPUID leaf 1, ECX
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kF16c) != 0;
}

// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi2");
}
[[maybe_unused]] bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
[[maybe_unused]] bool has_vnni() noexcept {
  return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
[[maybe_unused]] bool has_vbmi() noexcept {
  return has_vnni() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
         __builtin_cpu_supports("avx512bf16");
}
bool always() noexcept {
  return true;
}

constexpr std::array kLevels{
#ifndef TANDEM_NO_AVX512
    Level{&kTableAvx512Vbmi, has_vbmi}, Level{&kTableAvx512Vnni, has_vnni}, Level{&kTableAvx512, has_avx512},
#endif
    Level{&kTableAvx2, has_avx2},       Level{&kTableScalar, always},
};

struct Available {
  std::array<const KernelTable*, kLevels.size()> tables{};
  std::size_t count = 0;
  Available() {
    for (const Level& level : kLevels) {
      if (level.supported()) tables[count++] = level.table;
    }
  }
};

std::string names_of_available() {
  std::string names;
  for (const KernelTable* table : available_tables()) {
    if (!names.empty()) names += ", ";
    names += table->name;
  }
  return names;
}

}  // namespace

std::span<const KernelTable* const> available_tables() noexcept {
  static const Available available;
  return {available.tables.data(), available.count};
}

const KernelTable& select_table(std::string_view forced) {
  if (forced.empty()) return *available_tables().front();
  for (const KernelTable* table : available_tables()) {
    if (forced == table->name) return *table;
  }
  for (const Level& level : kLevels) {
    if (forced != level.table->name) continue;
    throw Error(ErrorCode::invalid_argument,
                std::string("GGML_CPU_ISA=") + std::string(forced) + ": this CPU lacks " + level.table->description,
                "this CPU has: " + names_of_available());
  }
  throw Error(ErrorCode::invalid_argument, std::string("GGML_CPU_ISA=") + std::string(forced) + ": no such ISA level",
              "this CPU has: " + names_of_available());
}

}  // namespace ggml::cpu
