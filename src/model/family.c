/* family.c: the table of families. */
#include "model/family.h"

#include <string.h>

static const es_family families[] = {
    {.name = "qwen3_5", .hf_types = {"qwen3_5", "qwen3_5_text"}, .gguf = "qwen35", .hybrid = true, .attention_gate = true,
     .qk_norm = true, .norm_plus_one = true, .gguf_tiled_heads = true, .partial_rotary = 0.25},
    {.name = "qwen3_5_moe", .hf_types = {"qwen3_5_moe", "qwen3_5_moe_text"}, .gguf = "qwen35moe", .hybrid = true, .moe = true,
     .shared_expert = true, .renormalise = true, .attention_gate = true, .qk_norm = true, .norm_plus_one = true,
     .gguf_tiled_heads = true, .partial_rotary = 0.25},
    {.name = "qwen3_next", .hf_types = {"qwen3_next"}, .gguf = "qwen3next", .hybrid = true, .moe = true, .shared_expert = true,
     .attention_gate = true, .qk_norm = true, .norm_plus_one = true, .fused_qkvz = true, .partial_rotary = 0.25},
    {.name = "qwen3", .hf_types = {"qwen3"}, .gguf = "qwen3", .qk_norm = true, .partial_rotary = 1},
    {.name = "qwen3_moe", .hf_types = {"qwen3_moe"}, .gguf = "qwen3moe", .moe = true, .qk_norm = true, .partial_rotary = 1},
    {.name = "qwen2", .hf_types = {"qwen2"}, .gguf = "qwen2", .qkv_bias = true, .partial_rotary = 1},
    {.name = "llama", .hf_types = {"llama"}, .gguf = "llama", .gguf_interleaved_rope = true, .partial_rotary = 1},
};
#define FAMILIES (sizeof families / sizeof *families)

const es_family *es_family_of_hf(const char *model_type)
{
    for (size_t i = 0; i < FAMILIES; i++)
        for (const char *const *t = families[i].hf_types; *t; t++)
            if (strcmp(*t, model_type) == 0) return &families[i];
    return NULL;
}

const es_family *es_family_of_gguf(const char *architecture, size_t bytes)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (strlen(families[i].gguf) == bytes && memcmp(families[i].gguf, architecture, bytes) == 0) return &families[i];
    return NULL;
}

const char *es_family_list(void)
{
    return "qwen3_5, qwen3_5_moe, qwen3_next, qwen3, qwen3_moe, qwen2, llama";
}
