#pragma once

// What every ISA unit includes before its body. Only headers whose inline functions no unit calls (or intrinsics, which
// are static): no <vector>, <algorithm>, <functional>.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/kernels/act.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/scratch.h"
#include "ggml/kv_layout.h"
#include "quant/blocks.h"
#include "quant/grids.h"
