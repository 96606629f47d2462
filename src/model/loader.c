/* loader.c: see loader.h. */
#include "model/loader.h"

#include "device/cpu/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static es_status keep(es_loader *loader, es_buffer *buffer)
{
    if (loader->owned_count == loader->owned_capacity) {
        const size_t capacity = loader->owned_capacity ? loader->owned_capacity * 2 : 256;
        es_buffer **grown = realloc(loader->owned, capacity * sizeof(es_buffer *));
        if (!grown) {
            es_device_release(loader->device, buffer);
            return es_fail(ES_NO_MEMORY, "no memory for the list of buffers");
        }
        loader->owned = grown;
        loader->owned_capacity = capacity;
    }
    loader->owned[loader->owned_count++] = buffer;
    return ES_OK;
}

/* Published hybrid checkpoints are multimodal and nest the text model one level deeper. */
static const char *prefix_of(const es_loader *loader)
{
    static const char *const prefixes[] = {"model.language_model.", "model.", "language_model.model.", ""};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[128];
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (es_tensor_find(loader->model->tensors, name)) return prefixes[i];
    }
    return "model.";
}

/* A leading '/' marks a top-level safetensors name. */
static void name_of(const es_loader *loader, es_role role, char *name, size_t bytes)
{
    name[0] = '\0';
    if (loader->model->config.from_gguf) {
        if (!role.gguf) return;
        if (loader->layer < 0)
            snprintf(name, bytes, "%s", role.gguf);
        else
            snprintf(name, bytes, "blk.%d.%s", loader->layer, role.gguf);
        return;
    }
    if (!role.hf) return;
    if (role.hf[0] == '/')
        snprintf(name, bytes, "%s", role.hf + 1);
    else if (loader->layer < 0)
        snprintf(name, bytes, "%s%s", prefix_of(loader), role.hf);
    else
        snprintf(name, bytes, "%slayers.%d.%s", prefix_of(loader), loader->layer, role.hf);
}

const es_tensor *es_loader_find(es_loader *loader, es_role role)
{
    char name[256];
    name_of(loader, role, name, sizeof name);
    return name[0] ? es_tensor_find(loader->model->tensors, name) : NULL;
}

static es_status missing(const es_loader *loader, es_role role)
{
    char name[256];
    name_of(loader, role, name, sizeof name);
    const char *type = name[0] ? es_tensor_unreadable(loader->model->tensors, name) : NULL;
    if (type)
        return es_fail(ES_UNSUPPORTED, "%s: tensor %s is of type %s; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
                       "Q5_1, Q4_K, Q5_K and Q6_K", loader->model->path, name, type);
    return es_fail(ES_BAD_FILE, "%s: tensor %s is missing; the file is incomplete or of another family", loader->model->path,
                   name[0] ? name : role.hf ? role.hf : role.gguf);
}

static void count_tensor(es_loader *loader, const es_tensor *t, int64_t elements)
{
    const size_t bytes = es_dtype_bytes(t->type, elements);
    loader->parameters += elements;
    loader->bytes += (int64_t)bytes;
    loader->type_bytes[t->type] += (int64_t)bytes;
}

static int64_t elements_of(const es_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i]; /* the readers checked the product */
    return n;
}

static es_status check_shape(const es_loader *loader, const es_tensor *t, int64_t rows, int64_t cols)
{
    const int64_t last = t->rank > 0 ? t->shape[t->rank - 1] : 0;
    if (t->type != ES_I32 && last == cols && elements_of(t) == rows * cols) return ES_OK;
    return es_fail(ES_BAD_FILE, "%s: tensor %s does not hold %" PRId64 " rows of %" PRId64 " weights, as the configuration says",
                   loader->model->path, t->name, rows, cols);
}

static es_status place(es_loader *loader, const void *data, size_t bytes, es_slice *slice)
{
    es_buffer *buffer;
    ES_TRY(es_device_import(loader->device, data, bytes, &buffer));
    ES_TRY(keep(loader, buffer));
    *slice = (es_slice){buffer, 0};
    return ES_OK;
}

static es_status bind(es_loader *loader, const es_tensor *t, int64_t rows, int64_t cols, es_weight *weight)
{
    ES_TRY(check_shape(loader, t, rows, cols));
    count_tensor(loader, t, rows * cols);
    if (cols > loader->columns) loader->columns = cols;
    *weight = (es_weight){{NULL, 0}, t->type, rows, cols};
    return loader->device ? place(loader, t->data, t->bytes, &weight->at) : ES_OK;
}

es_status es_loader_matrix(es_loader *loader, es_role role, int64_t rows, int64_t cols, es_weight *weight)
{
    const es_tensor *t = es_loader_find(loader, role);
    return t ? bind(loader, t, rows, cols, weight) : missing(loader, role);
}

es_status es_loader_scratch(es_loader *loader, int64_t count, size_t size, es_slice *slice)
{
    *slice = (es_slice){0};
    if (!loader->device || count == 0) return ES_OK;
    if (count < 0 || (uint64_t)count > SIZE_MAX / 2 / size) return es_fail(ES_NO_MEMORY, "a buffer past all memory");
    es_buffer *buffer;
    ES_TRY(es_device_alloc(loader->device, (size_t)count * size, &buffer));
    ES_TRY(keep(loader, buffer));
    *slice = (es_slice){buffer, 0};
    return ES_OK;
}

es_status es_loader_values(es_loader *loader, const float *values, int64_t count, es_slice *slice)
{
    ES_TRY(es_loader_scratch(loader, count, sizeof *values, slice));
    return slice->buffer ? es_device_write(loader->device, slice->buffer, 0, values, (size_t)count * sizeof *values) : ES_OK;
}

static es_status read_tensor(es_loader *loader, const es_tensor *t, int64_t count, float **values)
{
    if (t->type == ES_I32 || elements_of(t) != count)
        return es_fail(ES_BAD_FILE, "%s: tensor %s does not hold %" PRId64 " numbers, as the configuration says",
                       loader->model->path, t->name, count);
    float *v = malloc((size_t)count * sizeof *v);
    if (!v) return es_fail(ES_NO_MEMORY, "no memory for tensor %s", t->name);
    es_decode_ref(t->type)(t->data, v, count);
    count_tensor(loader, t, count);
    *values = v;
    return ES_OK;
}

es_status es_loader_read(es_loader *loader, es_role role, int64_t count, float **values)
{
    const es_tensor *t = es_loader_find(loader, role);
    return t ? read_tensor(loader, t, count, values) : missing(loader, role);
}

es_status es_loader_vector(es_loader *loader, es_role role, int64_t count, float add, es_slice *slice)
{
    float *values;
    ES_TRY(es_loader_read(loader, role, count, &values));
    if (add != 0.0f)
        for (int64_t i = 0; i < count; i++) values[i] = values[i] + add;
    const es_status status = es_loader_values(loader, values, count, slice);
    free(values);
    return status;
}

es_status es_loader_optional(es_loader *loader, es_role role, int64_t count, es_slice *slice)
{
    *slice = (es_slice){0};
    return es_loader_find(loader, role) ? es_loader_vector(loader, role, count, 0.0f, slice) : ES_OK;
}

es_status es_loader_permuted(es_loader *loader, es_role role, const int64_t *source, int64_t rows, int64_t cols,
                             es_weight *weight)
{
    const es_tensor *t = es_loader_find(loader, role);
    if (!t) return missing(loader, role);
    ES_TRY(check_shape(loader, t, rows, cols));
    count_tensor(loader, t, rows * cols);
    if (cols > loader->columns) loader->columns = cols;
    const size_t row_bytes = es_dtype_bytes(t->type, cols);
    *weight = (es_weight){{NULL, 0}, t->type, rows, cols};
    ES_TRY(es_loader_scratch(loader, rows, row_bytes, &weight->at));
    if (!loader->device) return ES_OK;
    for (int64_t i = 0; i < rows; i++)
        ES_TRY(es_device_write(loader->device, weight->at.buffer, (size_t)i * row_bytes,
                               (const unsigned char *)t->data + (size_t)source[i] * row_bytes, row_bytes));
    return ES_OK;
}

static es_status bind_each_expert(es_loader *loader, es_role single, int64_t rows, int64_t cols, es_expert_weight *out)
{
    const int32_t experts = loader->model->config.experts;
    if (loader->device) {
        out->each = calloc((size_t)experts, sizeof *out->each);
        if (!out->each) return es_fail(ES_NO_MEMORY, "no memory for the places of %d experts", experts);
    }
    for (int32_t e = 0; e < experts; e++) {
        char name[128];
        snprintf(name, sizeof name, "mlp.experts.%d.%s", e, single.hf);
        es_weight weight;
        ES_TRY(es_loader_matrix(loader, (es_role){name, NULL}, rows, cols, &weight));
        if (e == 0)
            out->weight = weight;
        else if (weight.type != out->weight.type)
            return es_fail(ES_UNSUPPORTED, "%s: the experts of layer %d are of different types", loader->model->path,
                           loader->layer);
        if (out->each) out->each[e] = weight.at;
    }
    return ES_OK;
}

es_status es_loader_experts(es_loader *loader, es_role fused, int64_t first, int64_t height, es_role single, int64_t rows,
                            int64_t cols, es_expert_weight *out)
{
    *out = (es_expert_weight){0};
    const es_tensor *t = es_loader_find(loader, fused);
    if (!t && single.hf && !loader->model->config.from_gguf) return bind_each_expert(loader, single, rows, cols, out);
    if (!t) return missing(loader, fused);
    const int64_t experts = loader->model->config.experts;
    ES_TRY(check_shape(loader, t, experts * height, cols));
    const size_t row_bytes = es_dtype_bytes(t->type, cols);
    count_tensor(loader, t, experts * rows * cols);
    if (cols > loader->columns) loader->columns = cols;
    out->weight = (es_weight){{NULL, 0}, t->type, rows, cols};
    out->stride = height * (int64_t)row_bytes;
    if (!loader->device) return ES_OK;
    ES_TRY(place(loader, t->data, t->bytes, &out->weight.at));
    out->weight.at.offset = (size_t)first * row_bytes;
    return ES_OK;
}
