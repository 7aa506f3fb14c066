#pragma once

#include "llama/sampler.h"

namespace llama {
class Vocab;
}

namespace common::grammar {

/// Throws Error(invalid_argument) with the reason when `mask` allows no token at all: what never can be followed is
/// better refused than begun. Of a mask that is yet to wait for its trigger nothing is known.
void check_can_begin(llama::TokenMask& mask, const llama::Vocab& vocab);

}  // namespace common::grammar
