#include "cuda/kernels/prompt_attention.cuh"

template bool ggml::cuda::launch_prompt_attention<256>(const AttentionArgs&, const PromptGrid&, CUstream_st*);
