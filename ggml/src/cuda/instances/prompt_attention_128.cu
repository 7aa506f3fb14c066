#include "cuda/kernels/prompt_attention.cuh"

template bool ggml::cuda::launch_prompt_attention<128>(const AttentionArgs&, const PromptGrid&, CUstream_st*);
