#include "cuda/kernels/prompt_attention.cuh"

template bool ggml::cuda::launch_prompt_attention<64>(const AttentionArgs&, const PromptGrid&, CUstream_st*);
