#pragma once

#include <memory>

#include "ggml/device.h"

namespace llama::golden {

/// The device that a program of whole-model tests is about; each program links one definition. Null: not here.
[[nodiscard]] std::unique_ptr<ggml::Device> make_test_device();

}  // namespace llama::golden
