/* identity.c: see identity.h. */
#include "model/identity.h"

#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"

#define SAMPLES 16
#define SAMPLE  64 /* bytes */

static uint64_t add(uint64_t hash, const void *data, size_t bytes)
{
    return es_hash(hash, data, bytes);
}

static uint64_t add_text(uint64_t hash, const char *text)
{
    return add(hash, text, strlen(text));
}

static uint64_t add_config(uint64_t hash, const es_config *c)
{
    const int64_t numbers[] = {
        c->from_gguf,         c->layers,        c->hidden,          c->vocabulary,  c->ffn,
        c->query_heads,       c->kv_heads,      c->head_dim,        c->rope_pairs,  c->delta.key_heads,
        c->delta.value_heads, c->delta.key_dim, c->delta.value_dim, c->delta.tiled, c->experts,
        c->experts_used,      c->expert_ffn,    c->shared_ffn,      c->renormalise, c->tied,
    };
    const float reals[] = {c->eps, c->expert_scale};
    hash = add_text(hash, c->family->name);
    hash = add(hash, numbers, sizeof numbers);
    hash = add(hash, reals, sizeof reals);

    hash = add(hash, c->attention, (size_t)c->layers);
    hash = add(hash, c->sparse, (size_t)c->layers);
    const es_rope_config *r = &c->rope;
    const double rope[] = {
        r->kind,      r->theta,     r->factor,           r->low_freq_factor, r->high_freq_factor, r->original_context,
        r->beta_fast, r->beta_slow, r->attention_factor, r->mscale,          r->mscale_all_dim,   r->truncate};
    return add(hash, rope, sizeof rope);
}

static uint64_t add_tensor(uint64_t hash, const es_tensor *t)
{
    const int32_t form[] = {(int32_t)t->type, t->rank};
    hash = add_text(hash, t->name);
    hash = add(hash, form, sizeof form);
    hash = add(hash, t->shape, sizeof t->shape);
    if (t->bytes <= SAMPLES * SAMPLE) return add(hash, t->data, t->bytes);
    for (size_t i = 0; i < SAMPLES; i++)
        hash = add(hash, (const unsigned char *)t->data + (t->bytes - SAMPLE) / (SAMPLES - 1) * i, SAMPLE);
    return hash;
}

uint64_t es_model_identity(const es_model *model)
{
    struct stat status;
    uint64_t hash = add_config(1, &model->config);
    for (size_t i = 0; i < es_tensor_count(model->tensors); i++) hash = add_tensor(hash, es_tensor_at(model->tensors, i));
    if (stat(model->path, &status) == 0) {
        const int64_t file[] = {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
        hash = add(hash, file, sizeof file);
    }
    return hash;
}
