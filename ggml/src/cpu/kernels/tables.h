#pragma once

#include "cpu/kernels/kernels.h"

/// One table per ISA level, each in a unit of its own flags. Only select.cpp may touch them: reading a table is safe
/// anywhere, calling through one needs a CPU that has the level.
namespace ggml::cpu {

/// False in the build with the toy type of the tests, which only multiplies: the kernels of every type of cache would
/// be compiled again for nobody.
#ifdef TANDEM_EXTRA_DECODERS
inline constexpr bool kHasAttention = false;
#else
inline constexpr bool kHasAttention = true;
#endif

extern const KernelTable kTableScalar;
extern const KernelTable kTableAvx2;
extern const KernelTable kTableAvx512;
extern const KernelTable kTableAvx512Vnni;
extern const KernelTable kTableAvx512Vbmi;

}  // namespace ggml::cpu
