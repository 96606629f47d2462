/* attn_bf16_avx512.c: attention over bfloat16 keys and values with AVX-512. What it does stands in attn_bf16_body.h. */
#include "device/cpu/x86/vector_avx512.h"
#include "device/cpu/x86/attn_bf16_body.h"

void es_attn_bf16_avx512(es_kernels *kernels)
{
    kernels->attn_tile_bf16 = attn_tile_bf16;
}
