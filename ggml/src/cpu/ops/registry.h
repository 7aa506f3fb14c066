#pragma once

#include "cpu/bound_op.h"

/// Every implementation of this folder; registry.cpp lists them per op, best first.
namespace ggml::cpu {

extern const OpImpl kEmbed, kNorm, kLinear, kQkv, kRope, kAttention, kFfn, kMoeRoute, kMoeFfn, kSample, kMla, kDeltaNet;
extern const OpImpl kGetRows, kQuantiseAct, kMulMat, kMulMatId, kExpertProduct, kNormalise, kAdd, kMul, kUnary, kGated,
    kRotate, kSoftmax, kTopK, kGather, kKvAppend, kAttnDense, kWeightedSum, kPick, kCopy, kSlice, kConcat, kMulMatHeads,
    kConv1d, kDeltaRule, kPool, kHadamard;

}  // namespace ggml::cpu
