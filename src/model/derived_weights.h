#pragma once

#include "ggml/device.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

/// Makes the weights that a model needs beside those of its file: for latent attention the transposed key matrix (the
/// file has it in one of two forms, Tandem uses both), for M-RoPE the divisors that keep some pairs unrotated. Also
/// gives flat head matrices their three axes. Throws DeviceError.
void derive_weights(const Hparams& hparams, ggml::Device& cpu, ModelWeights& weights);

/// The same weights by name, type and shape only, for an outline of the model: their placement has no bytes.
void outline_derived_weights(const Hparams& hparams, ModelWeights& weights);

}  // namespace llama
