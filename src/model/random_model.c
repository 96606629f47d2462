/* random_model.c: a GGUF of random weights, streamed: one row of a matrix is all that is in memory.
 *
 * The list of tensors is walked three times: to count them, to describe them, to write their bytes. Names and shapes are
 * those of the public converter; values are such that every activation stays finite. */
#include "model/random_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/gguf_write.h"
#include "device/random_blocks.h"
#include "model/random_tokenizer.h"

static const es_model_shape shapes[] = {
    {"qwen3.5-0.8b", "qwen35", "qwen35", 1024, 24, 3584, 8, 2, 256, 64, 16, 16, 128, 248320, 262144, 1e7f, true, 0, 0, 0, 0},
    {"qwen3.5-2b", "qwen35", "qwen35", 2048, 24, 6144, 8, 2, 256, 64, 16, 16, 128, 248320, 262144, 1e7f, true, 0, 0, 0, 0},
    {"qwen3.5-4b", "qwen35", "qwen35", 2560, 32, 9216, 16, 4, 256, 64, 16, 32, 128, 248320, 262144, 1e7f, true, 0, 0, 0, 0},
    {"qwen3.5-9b", "qwen35", "qwen35", 4096, 32, 12288, 16, 4, 256, 64, 16, 32, 128, 248320, 262144, 1e7f, false, 0, 0, 0, 0},
    {"qwen3.6-35b-a3b", "qwen35moe", "qwen35", 2048, 40, 0, 16, 2, 256, 64, 16, 32, 128, 248320, 262144, 1e7f, false, 256, 8, 512, 512},
    {"qwen3-0.6b", "qwen3", "qwen2", 1024, 28, 3072, 16, 8, 128, 128, 0, 0, 0, 151936, 40960, 1e6f, true, 0, 0, 0, 0},
    {"tiny-hybrid", "qwen35", "qwen35", 256, 4, 512, 4, 2, 64, 16, 2, 4, 64, 2048, 8192, 1e7f, true, 0, 0, 0, 0},
    {"tiny-experts", "qwen35moe", "qwen35", 256, 4, 0, 4, 2, 64, 16, 2, 4, 64, 2048, 8192, 1e7f, false, 16, 4, 256, 256},
    {"tiny-dense", "qwen3", "qwen2", 256, 3, 512, 4, 2, 64, 64, 0, 0, 0, 2048, 8192, 1e6f, false, 0, 0, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, FULL_EVERY = 4, TAPS = 4 };

const es_model_shape *es_model_shape_find(const char *name)
{
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

const char *es_model_shape_list(void)
{
    return "qwen3.5-0.8b, qwen3.5-2b, qwen3.5-4b, qwen3.5-9b, qwen3.6-35b-a3b, qwen3-0.6b, tiny-hybrid, tiny-experts, tiny-dense";
}

/* A mix names the type of most matrices, and what the public quantiser makes of the others. `file_type` is GGUF's number. */
typedef struct mix {
    const char *name;
    es_dtype most, output, qkv, better; /* better: attn_v and ffn_down in the layers where precision pays */
    uint32_t file_type;
} mix;

static const mix mixes[] = {
    {"f32", ES_F32, ES_F32, ES_F32, ES_F32, 0},         {"f16", ES_F16, ES_F16, ES_F16, ES_F16, 1},
    {"bf16", ES_BF16, ES_BF16, ES_BF16, ES_BF16, 32},   {"q8_0", ES_Q8_0, ES_Q8_0, ES_Q8_0, ES_Q8_0, 7},
    {"q4_0", ES_Q4_0, ES_Q4_0, ES_Q4_0, ES_Q4_0, 2},    {"q4_1", ES_Q4_1, ES_Q4_1, ES_Q4_1, ES_Q4_1, 3},
    {"q5_0", ES_Q5_0, ES_Q5_0, ES_Q5_0, ES_Q5_0, 8},    {"q5_1", ES_Q5_1, ES_Q5_1, ES_Q5_1, ES_Q5_1, 9},
    {"q4_k", ES_Q4_K, ES_Q4_K, ES_Q4_K, ES_Q4_K, 14},   {"q5_k", ES_Q5_K, ES_Q5_K, ES_Q5_K, ES_Q5_K, 16},
    {"q6_k", ES_Q6_K, ES_Q6_K, ES_Q6_K, ES_Q6_K, 18},   {"q4_k_m", ES_Q4_K, ES_Q6_K, ES_Q5_K, ES_Q6_K, 15},
};
enum { MIXES = sizeof mixes / sizeof *mixes };

const char *es_model_mix_list(void)
{
    return "f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k|q4_k_m";
}

typedef struct making {
    const es_model_shape *shape;
    const mix *mix;
    es_gguf_writer *writer;
    bool bytes;         /* write the tensors' bytes; else describe them */
    bool outline;       /* leave holes where matrices are */
    es_bits bits;
    unsigned char *row; /* room for one row */
} making;

static void write_row(making *m, es_dtype type, int64_t columns, float spread)
{
    es_random_blocks(&m->bits, type, columns / es_dtype_get_info(type)->block, spread, m->row);
    es_gguf_write_data(m->writer, m->row, es_dtype_bytes(type, columns));
}

static void name_in(char full[96], int layer, const char *name)
{
    if (layer >= 0) snprintf(full, 96, "blk.%d.%s.weight", layer, name);
    else snprintf(full, 96, "%s.weight", name);
}

static void matrix_bytes(making *m, es_dtype type, int64_t rows, int64_t columns)
{
    if (m->outline) es_gguf_write_hole(m->writer, es_dtype_bytes(type, rows * columns));
    for (int64_t r = 0; r < rows && !m->outline; r++) write_row(m, type, columns, 0.02f);
    es_gguf_write_pad(m->writer);
}

static void matrix(making *m, int layer, const char *name, es_dtype type, int64_t rows, int64_t columns)
{
    char full[96];
    name_in(full, layer, name);
    if (m->bytes) matrix_bytes(m, type, rows, columns);
    else es_gguf_put_tensor(m->writer, full, type, rows, columns);
}

/* One matrix for each expert. */
static void matrices(making *m, int layer, const char *name, es_dtype type, int64_t rows, int64_t columns)
{
    char full[96];
    name_in(full, layer, name);
    if (m->bytes) matrix_bytes(m, type, m->shape->experts * rows, columns);
    else es_gguf_put_matrices(m->writer, full, type, m->shape->experts, rows, columns);
}

/* Float32 values between two bounds; rows = 0: a vector. The name is whole but for the layer. */
static void values(making *m, int layer, const char *name, int64_t rows, int64_t columns, float low, float high)
{
    char full[96];
    if (layer >= 0) snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    else snprintf(full, sizeof full, "%s", name);
    if (!m->bytes) {
        es_gguf_put_tensor(m->writer, full, ES_F32, rows, columns);
        return;
    }
    for (int64_t i = 0; i < columns * (rows ? rows : 1); i++) {
        const float value = es_bits_between(&m->bits, low, high);
        es_gguf_write_data(m->writer, &value, sizeof value);
    }
    es_gguf_write_pad(m->writer);
}

/* The first and last eighth of the layers, and each third one between. */
static bool is_better(int layer, int layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static void attention_tensors(making *m, int i, bool gated)
{
    const es_model_shape *s = m->shape;
    const mix *x = m->mix;
    const int64_t q = (int64_t)s->query_heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    matrix(m, i, "attn_q", x->most, gated ? 2 * q : q, s->hidden);
    matrix(m, i, "attn_k", x->most, kv, s->hidden);
    matrix(m, i, "attn_v", is_better(i, s->layers) ? x->better : x->most, kv, s->hidden);
    matrix(m, i, "attn_output", x->most, s->hidden, q);
    values(m, i, "attn_q_norm.weight", 0, s->head_dim, 0.8f, 1.2f);
    values(m, i, "attn_k_norm.weight", 0, s->head_dim, 0.8f, 1.2f);
}

static void delta_tensors(making *m, int i)
{
    const es_model_shape *s = m->shape;
    const int64_t keys = (int64_t)s->key_heads * s->key_dim, v = (int64_t)s->value_heads * s->key_dim, all = 2 * keys + v;
    matrix(m, i, "attn_qkv", m->mix->qkv, all, s->hidden);
    matrix(m, i, "attn_gate", m->mix->most, v, s->hidden);
    matrix(m, i, "ssm_alpha", m->mix->most, s->value_heads, s->hidden);
    matrix(m, i, "ssm_beta", m->mix->most, s->value_heads, s->hidden);
    values(m, i, "ssm_conv1d.weight", all, TAPS, -0.4f, 0.4f);
    values(m, i, "ssm_dt.bias", 0, s->value_heads, -4.0f, -1.0f);
    values(m, i, "ssm_a", 0, s->value_heads, -8.0f, -0.5f);
    values(m, i, "ssm_norm.weight", 0, s->key_dim, 0.8f, 1.2f);
    matrix(m, i, "ssm_out", m->mix->most, s->hidden, v);
}

static void dense_tensors(making *m, int i)
{
    const es_model_shape *s = m->shape;
    matrix(m, i, "ffn_gate", m->mix->most, s->ffn, s->hidden);
    matrix(m, i, "ffn_up", m->mix->most, s->ffn, s->hidden);
    matrix(m, i, "ffn_down", is_better(i, s->layers) ? m->mix->better : m->mix->most, s->hidden, s->ffn);
}

/* The router stays in float32, as in published files. */
static void expert_tensors(making *m, int i)
{
    const es_model_shape *s = m->shape;
    const es_dtype down = is_better(i, s->layers) ? m->mix->better : m->mix->most;
    matrix(m, i, "ffn_gate_inp", ES_F32, s->experts, s->hidden);
    matrices(m, i, "ffn_gate_exps", m->mix->most, s->expert_ffn, s->hidden);
    matrices(m, i, "ffn_up_exps", m->mix->most, s->expert_ffn, s->hidden);
    matrices(m, i, "ffn_down_exps", down, s->hidden, s->expert_ffn);
    matrix(m, i, "ffn_gate_shexp", m->mix->most, s->shared_ffn, s->hidden);
    matrix(m, i, "ffn_up_shexp", m->mix->most, s->shared_ffn, s->hidden);
    matrix(m, i, "ffn_down_shexp", down, s->hidden, s->shared_ffn);
    values(m, i, "ffn_gate_inp_shexp.weight", 0, s->hidden, -0.02f, 0.02f);
}

static void all_tensors(making *m)
{
    const es_model_shape *s = m->shape;
    matrix(m, -1, "token_embd", s->tied ? m->mix->output : m->mix->most, s->vocabulary, s->hidden);
    values(m, -1, "output_norm.weight", 0, s->hidden, 0.8f, 1.2f);
    if (!s->tied) matrix(m, -1, "output", m->mix->output, s->vocabulary, s->hidden);
    for (int i = 0; i < s->layers; i++) {
        const bool hybrid = s->key_heads > 0;
        values(m, i, "attn_norm.weight", 0, s->hidden, 0.8f, 1.2f);
        if (!hybrid || (i + 1) % FULL_EVERY == 0) attention_tensors(m, i, hybrid);
        else delta_tensors(m, i);
        values(m, i, hybrid ? "post_attention_norm.weight" : "ffn_norm.weight", 0, s->hidden, 0.8f, 1.2f);
        if (s->experts) expert_tensors(m, i);
        else dense_tensors(m, i);
    }
}

static const char *key(const making *m, const char *rest, char *room, size_t bytes)
{
    snprintf(room, bytes, "%s.%s", m->shape->architecture, rest);
    return room;
}

static void put_shape_keys(making *m)
{
    const es_model_shape *s = m->shape;
    es_gguf_writer *w = m->writer;
    const struct {
        const char *key;
        int32_t value;
    } always[] = {
        {"block_count", s->layers}, {"context_length", s->context}, {"embedding_length", s->hidden},
        {"feed_forward_length", s->ffn}, {"attention.head_count", s->query_heads}, {"attention.head_count_kv", s->kv_heads},
        {"attention.key_length", s->head_dim}, {"attention.value_length", s->head_dim}, {"rope.dimension_count", s->rotated},
        {"vocab_size", s->vocabulary},
    }, delta[] = {
        {"full_attention_interval", FULL_EVERY}, {"ssm.conv_kernel", TAPS}, {"ssm.state_size", s->key_dim},
        {"ssm.group_count", s->key_heads}, {"ssm.time_step_rank", s->value_heads},
        {"ssm.inner_size", s->value_heads * s->key_dim},
    }, experts[] = {
        {"expert_count", s->experts}, {"expert_used_count", s->experts_used}, {"expert_feed_forward_length", s->expert_ffn},
        {"expert_shared_feed_forward_length", s->shared_ffn},
    };
    char room[96];
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        es_gguf_put_u32(w, key(m, always[i].key, room, sizeof room), (uint32_t)always[i].value);
    es_gguf_put_f32(w, key(m, "attention.layer_norm_rms_epsilon", room, sizeof room), 1e-6f);
    es_gguf_put_f32(w, key(m, "rope.freq_base", room, sizeof room), s->theta);
    for (size_t i = 0; i < sizeof experts / sizeof *experts && s->experts; i++)
        es_gguf_put_u32(w, key(m, experts[i].key, room, sizeof room), (uint32_t)experts[i].value);
    if (!s->key_heads) return;
    for (size_t i = 0; i < sizeof delta / sizeof *delta; i++)
        es_gguf_put_u32(w, key(m, delta[i].key, room, sizeof room), (uint32_t)delta[i].value);
    const int32_t pairs = s->rotated / 2, sections[4] = {pairs - 2 * (pairs / 3), pairs / 3, pairs / 3, 0};
    es_gguf_put_u32_array(w, key(m, "rope.dimension_sections", room, sizeof room), sections, 4);
}

static void describe(es_gguf_writer *w, void *user)
{
    making *m = user;
    m->writer = w;
    char title[64];
    snprintf(title, sizeof title, "random %s", m->shape->name);
    es_gguf_put_text(w, "general.architecture", m->shape->architecture);
    es_gguf_put_text(w, "general.name", title);
    es_gguf_put_u32(w, "general.file_type", m->mix->file_type);
    es_gguf_put_u32(w, "general.quantization_version", 2);
    put_shape_keys(m);
    es_random_tokenizer_put(w, m->shape->vocabulary, m->shape->split);
    all_tensors(m);
}

static const mix *find_mix(const char *type)
{
    for (int i = 0; i < MIXES; i++)
        if (strcmp(mixes[i].name, type) == 0) return &mixes[i];
    return NULL;
}

static int64_t widest(const es_model_shape *s)
{
    const int64_t q = (int64_t)s->query_heads * s->head_dim, v = (int64_t)s->value_heads * s->key_dim;
    int64_t most = s->hidden > s->ffn ? s->hidden : s->ffn;
    if (q > most) most = q;
    if (s->expert_ffn > most) most = s->expert_ffn;
    return v > most ? v : most;
}

static es_status write_model(const es_model_shape *shape, const char *type, uint64_t seed, bool outline, const char *path)
{
    const mix *chosen = find_mix(type);
    if (!chosen) return es_fail(ES_INVALID, "type %s: not one of %s", type, es_model_mix_list());
    FILE *file = fopen(path, "wb");
    if (!file) return es_fail(ES_IO, "%s: cannot be written", path);
    making m = {.shape = shape, .mix = chosen, .outline = outline, .bits = {seed},
                .row = malloc((size_t)widest(shape) * sizeof(float))};
    es_status status = ES_OK;
    if (!m.row) {
        status = es_fail(ES_NO_MEMORY, "no memory for a row of weights");
    } else {
        es_gguf_writer w;
        es_gguf_write_head(file, describe, &m, &w);
        m.writer = &w;
        m.bytes = true;
        all_tensors(&m);
        if (w.failed) status = es_fail(ES_IO, "%s: cannot be written whole; is the disk full?", path);
    }
    free(m.row);
    if (fclose(file) != 0 && status == ES_OK) status = es_fail(ES_IO, "%s: cannot be written whole; is the disk full?", path);
    struct stat info; /* a device is not ours to remove */
    if (status != ES_OK && stat(path, &info) == 0 && S_ISREG(info.st_mode)) unlink(path);
    return status;
}

es_status es_random_model_write(const es_model_shape *shape, const char *type, uint64_t seed, const char *path)
{
    return write_model(shape, type, seed, false, path);
}

es_status es_random_model_outline(const es_model_shape *shape, const char *type, const char *path)
{
    return write_model(shape, type, 1, true, path);
}
