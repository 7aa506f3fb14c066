#pragma once

#include "memory.h"

/// One function per primitive; each reads node.src and writes node.dst.
namespace ggml::reference {

// elementwise.cpp
void quantise_act(Memory& m, const Node& node);
void normalise(Memory& m, const Node& node);
void add(Memory& m, const Node& node);
void mul(Memory& m, const Node& node);
void unary(Memory& m, const Node& node);
void gated(Memory& m, const Node& node);
void rotate(Memory& m, const Node& node);
void softmax(Memory& m, const Node& node);
void copy(Memory& m, const Node& node);
void slice(Memory& m, const Node& node);
void concat(Memory& m, const Node& node);

// products.cpp
void get_rows(Memory& m, const Node& node);
void mul_mat(Memory& m, const Node& node);
void mul_mat_heads(Memory& m, const Node& node);
void mul_mat_id(Memory& m, const Node& node);
void weighted_sum(Memory& m, const Node& node);

// selection.cpp
void top_k(Memory& m, const Node& node);
void gather(Memory& m, const Node& node);
void pick(Memory& m, const Node& node);

// attention.cpp
void kv_append(Memory& m, const Node& node);
void attn_dense(Memory& m, const Node& node);
void hadamard(Memory& m, const Node& node);

// recurrent.cpp
void conv1d(Memory& m, const Node& node);
void delta_rule(Memory& m, const Node& node);
void pool(Memory& m, const Node& node);

}  // namespace ggml::reference
