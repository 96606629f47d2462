/* device.c: recording operations, and the thin calls through a device's table. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

void es_program_add(es_program *program, es_op op)
{
    if (program->failed) return;
    if (program->count == program->capacity) {
        const int32_t capacity = program->capacity ? program->capacity * 2 : 64;
        es_op *grown = realloc(program->op, (size_t)capacity * sizeof *grown);
        if (!grown) {
            program->failed = true;
            return;
        }
        program->op = grown;
        program->capacity = capacity;
    }
    program->op[program->count++] = op;
}

void es_program_free(es_program *program)
{
    free(program->op);
    *program = (es_program){0};
}

const char *es_op_name(es_op_kind kind)
{
    static const char *const names[ES_OP_KINDS] = {
        "embed", "rope table", "rmsnorm", "matmul", "swiglu", "attention prepare", "attention", "attention merge",
        "delta prepare", "delta scan", "delta finish", "moe route", "moe group", "moe product", "moe combine",
        "pick",
    };
    return kind >= 0 && kind < ES_OP_KINDS ? names[kind] : "unknown";
}

void es_device_close(es_device *device)
{
    if (device) device->ops->close(device);
}

es_status es_device_alloc(es_device *device, size_t bytes, es_buffer **buffer)
{
    return device->ops->alloc(device, bytes, buffer);
}

es_status es_device_import(es_device *device, const void *host, size_t bytes, es_buffer **buffer)
{
    return device->ops->import(device, host, bytes, buffer);
}

void es_device_release(es_device *device, es_buffer *buffer)
{
    if (buffer) device->ops->release(device, buffer);
}

es_status es_device_write(es_device *device, es_buffer *buffer, size_t offset, const void *host, size_t bytes)
{
    return device->ops->write(device, buffer, offset, host, bytes);
}

es_status es_device_read(es_device *device, const es_buffer *buffer, size_t offset, void *host, size_t bytes)
{
    return device->ops->read(device, buffer, offset, host, bytes);
}

const void *es_device_peek(es_device *device, const es_buffer *buffer, size_t offset, size_t bytes)
{
    return device->ops->peek(device, buffer, offset, bytes);
}

es_status es_device_copy(es_device *device, es_buffer *buffer, size_t from, size_t to, size_t bytes)
{
    return device->ops->copy(device, buffer, from, to, bytes);
}

void es_device_populate(es_device *device, es_buffer *buffer, size_t offset, size_t bytes)
{
    if (device->ops->populate) device->ops->populate(device, buffer, offset, bytes);
}

es_status es_device_submit(es_device *device, const es_program *program, const es_batch *batch)
{
    return device->ops->submit(device, program, batch);
}

es_kv_type es_kv_type_resolve(es_kv_type asked, es_numeric numeric)
{
    if (asked != ES_KV_AUTO) return asked;
    return numeric == ES_NUMERIC_F32 ? ES_KV_F32 : ES_KV_BF16;
}

es_dtype es_kv_dtype(es_kv_type type)
{
    switch (type) {
    case ES_KV_F32: return ES_F32;
    case ES_KV_F16: return ES_F16;
    case ES_KV_Q8_0: return ES_Q8_0;
    default: return ES_BF16;
    }
}

size_t es_kv_page_bytes(const es_attn_shape *shape, es_kv_type type)
{
    const int64_t elements = (int64_t)shape->kv_heads * shape->page * shape->head_dim;
    return (size_t)es_dtype_bytes(es_kv_dtype(type), elements);
}

es_status es_kv_type_parse(const char *name, es_kv_type *type)
{
    for (es_kv_type t = ES_KV_AUTO; t <= ES_KV_F16; t++)
        if (strcmp(name, es_kv_type_name(t)) == 0) {
            *type = t;
            return ES_OK;
        }
    return es_fail(ES_INVALID, "keys and values of type \"%s\" do not exist; auto, f32, bf16, f16 and q8_0 do", name);
}

const char *es_kv_type_name(es_kv_type type)
{
    static const char *const names[] = {"auto", "f32", "bf16", "q8_0", "f16"};
    return type >= ES_KV_AUTO && type <= ES_KV_F16 ? names[type] : "unknown";
}

es_status es_numeric_parse(const char *name, es_numeric *numeric)
{
    for (es_numeric n = ES_NUMERIC_AUTO; n <= ES_NUMERIC_BF16DP; n++)
        if (strcmp(name, es_numeric_name(n)) == 0) {
            *numeric = n;
            return ES_OK;
        }
    return es_fail(ES_INVALID, "numeric mode \"%s\" does not exist; auto, f32, bf16, bf16dp and int8 do", name);
}

const char *es_numeric_name(es_numeric numeric)
{
    static const char *const names[] = {"auto", "f32", "bf16", "int8", "bf16dp"};
    return numeric >= ES_NUMERIC_AUTO && numeric <= ES_NUMERIC_BF16DP ? names[numeric] : "unknown";
}
