/* retyped.h: the tiny models of the tests with any type of weights.
 *
 * The oracle models are float32. What is only compared with itself need not say anything sensible: each matrix is replaced, in
 * memory, by random blocks of the wanted type that spread as its own numbers did. Where a type's blocks of 256 do not fit the
 * rows, Q8_0 stands in, as in public files. Two more models, of 256 columns throughout, hold types of 256 in every matrix. */
#ifndef ES_TESTS_RETYPED_H
#define ES_TESTS_RETYPED_H

#include <math.h>
#include <unistd.h>

#include "device/cpu/decode.h"
#include "model/model.h"
#include "device/random_blocks.h"
#include "model/random_model.h"
#include "model/tensor_set.h"
#include "oracle.h"

static const char *const es_retyped_families[] = {
    "qwen3_5", "qwen3_5_moe", "qwen3_next", "qwen3", "qwen3_moe", "qwen2", "llama", "tiny-hybrid", "tiny-dense",
};
enum { ES_RETYPED_FAMILIES = sizeof es_retyped_families / sizeof *es_retyped_families };

typedef struct es_retyped {
    es_model *model;
    es_tensor_set *set; /**< NULL: the model's own */
    void *blocks[512];  /**< what the set points to */
    int count;
} es_retyped;

static inline float es_retyped_spread(const es_tensor *t, int64_t elements)
{
    float *values = malloc((size_t)elements * sizeof *values);
    if (!values) fail_msg("no memory for %s", t->name);
    es_decode_ref(t->type)(t->data, values, elements);
    double sum = 0;
    for (int64_t i = 0; i < elements; i++) sum += (double)values[i] * (double)values[i];
    free(values);
    return (float)sqrt(sum / (double)elements);
}

/* A matrix becomes blocks; vectors and convolutions stay as they are. */
static inline es_tensor es_retyped_tensor(es_retyped *r, const es_tensor *t, es_dtype type, es_bits *bits)
{
    es_tensor to = *t;
    int64_t elements = 1;
    for (int i = 0; i < t->rank; i++) elements *= t->shape[i];
    if (t->rank < 2 || strstr(t->name, "conv1d")) return to;
    if (t->shape[t->rank - 1] % es_dtype_get_info(type)->block) type = ES_Q8_0;
    to.type = type;
    to.bytes = es_dtype_bytes(type, elements);
    unsigned char *data = malloc(to.bytes + 64); /* kernels may read a little past a row, as in a mapping */
    if (!data || r->count == (int)(sizeof r->blocks / sizeof *r->blocks)) fail_msg("no room for %s", t->name);
    es_random_blocks(bits, type, elements / es_dtype_get_info(type)->block, es_retyped_spread(t, elements), data);
    r->blocks[r->count++] = data;
    to.data = data;
    return to;
}

static inline es_model *es_retyped_random(const char *shape, es_dtype type)
{
    char path[] = "/tmp/es-retyped-XXXXXX", name[16];
    es_model *model = NULL;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    snprintf(name, sizeof name, "%s", es_dtype_get_info(type)->name);
    for (char *c = name; *c; c++) *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
    if (es_random_model_write(es_model_shape_find(shape), name, 7, path) != ES_OK || es_model_open(path, &model) != ES_OK)
        fail_msg("%s of %s: %s", shape, name, es_error_message());
    unlink(path);
    return model;
}

/** A family's model with matrices of this type; F32 leaves an oracle model as it is. */
static inline es_retyped *es_retyped_open(int family, es_dtype type)
{
    es_retyped *r = calloc(1, sizeof *r);
    assert_non_null(r);
    const char *name = es_retyped_families[family];
    if (strncmp(name, "tiny-", 5) == 0) {
        r->model = es_retyped_random(name, type);
        return r;
    }
    r->model = es_oracle_model(name);
    if (type == ES_F32) return r;
    es_bits bits = {17};
    r->set = es_tensor_set_new();
    assert_non_null(r->set);
    for (size_t i = 0; i < es_tensor_count(r->model->tensors); i++) {
        const es_tensor to = es_retyped_tensor(r, es_tensor_at(r->model->tensors, i), type, &bits);
        assert_int_equal(es_tensor_set_add(r->set, name, &to), ES_OK);
    }
    assert_int_equal(es_tensor_set_seal(r->set, name), ES_OK);
    r->model->tensors = r->set;
    r->model->weights = type;
    return r;
}

static inline void es_retyped_close(es_retyped *r)
{
    if (!r) return;
    es_model_close(r->model);
    es_tensor_set_close(r->set);
    for (int i = 0; i < r->count; i++) free(r->blocks[i]);
    free(r);
}

#endif
