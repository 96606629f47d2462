/* template_arena.c: memory, counters and text of one rendering.
 *
 * A template may be hostile, so everything it can make grow is counted here and nowhere else: steps, depth, bytes of text,
 * bytes of memory. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_value.h"

#define BLOCK_BYTES ((size_t)32 * 1024)

typedef struct tpl_block {
    struct tpl_block *next;
    size_t used, bytes;
    _Alignas(16) char data[];
} tpl_block;

void *tpl_arena_take(tpl_arena *arena, size_t bytes)
{
    if (bytes > arena->left || bytes > SIZE_MAX / 2) return NULL;
    const size_t size = (bytes + 15) & ~(size_t)15;
    tpl_block *block = arena->blocks;
    if (!block || block->bytes - block->used < size) {
        const size_t want = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        tpl_block *fresh = malloc(sizeof *fresh + want);
        if (!fresh) return NULL;
        *fresh = (tpl_block){.next = block, .used = 0, .bytes = want};
        /* A big piece gets a block of its own behind the current one, which keeps its free room. */
        if (block && size > BLOCK_BYTES) {
            fresh->next = block->next;
            block->next = fresh;
        } else {
            arena->blocks = fresh;
        }
        block = fresh;
    }
    void *piece = block->data + block->used;
    block->used += size;
    arena->left -= size < arena->left ? size : arena->left;
    memset(piece, 0, bytes);
    return piece;
}

void tpl_arena_free(tpl_arena *arena)
{
    for (tpl_block *block = arena->blocks; block;) {
        tpl_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (tpl_arena){0};
}

void *tpl_take(tpl_run *run, size_t count, size_t size)
{
    if (run->status) return NULL;
    void *piece = size && count > SIZE_MAX / size ? NULL : tpl_arena_take(&run->arena, count * size);
    if (!piece) tpl_fail(run, ES_INVALID, "the template needs more memory than a rendering may use");
    return piece;
}

void tpl_fail(tpl_run *run, es_status status, const char *format, ...)
{
    if (run->status) return;
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    run->status = es_fail(status, "template %s line %u: %s", run->name, run->line, text);
}

bool tpl_step(tpl_run *run, uint64_t cost)
{
    if (run->status) return false;
    if (run->steps < cost) {
        tpl_fail(run, ES_INVALID, "the template takes more steps than a rendering may; it may never end");
        return false;
    }
    run->steps -= cost;
    return true;
}

bool tpl_enter(tpl_run *run)
{
    if (run->status) return false;
    if (run->depth == 0) {
        tpl_fail(run, ES_INVALID, "expressions, blocks or macro calls are nested too deeply");
        return false;
    }
    run->depth--;
    return true;
}

void tpl_leave(tpl_run *run)
{
    run->depth++;
}

void tpl_put(tpl_run *run, tpl_builder *out, const char *data, size_t bytes)
{
    if (run->status || bytes == 0) return;
    if (bytes > run->output) {
        tpl_fail(run, ES_INVALID, "the template builds more text than a rendering may");
        return;
    }
    if (bytes > out->capacity - out->bytes) {
        size_t capacity = out->capacity < 32 ? 64 : out->capacity * 2;
        while (capacity - out->bytes < bytes) capacity *= 2;
        char *grown = tpl_take(run, capacity, 1);
        if (!grown) return;
        if (out->bytes) memcpy(grown, out->data, out->bytes);
        out->data = grown;
        out->capacity = capacity;
    }
    memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
    run->output -= bytes;
    tpl_step(run, bytes / 256);
}

void tpl_puts(tpl_run *run, tpl_builder *out, const char *text)
{
    tpl_put(run, out, text, strlen(text));
}

void tpl_put_string(tpl_run *run, tpl_builder *out, const tpl_string *string)
{
    tpl_put(run, out, string->data, string->bytes);
}

void tpl_put_point(tpl_run *run, tpl_builder *out, uint32_t c)
{
    char b[4];
    size_t n;
    if (c < 0x80) {
        b[0] = (char)c, n = 1;
    } else if (c < 0x800) {
        b[0] = (char)(0xC0 | c >> 6), b[1] = (char)(0x80 | (c & 0x3F)), n = 2;
    } else if (c < 0x10000) {
        b[0] = (char)(0xE0 | c >> 12), b[1] = (char)(0x80 | (c >> 6 & 0x3F)), b[2] = (char)(0x80 | (c & 0x3F)), n = 3;
    } else {
        b[0] = (char)(0xF0 | c >> 18), b[1] = (char)(0x80 | (c >> 12 & 0x3F));
        b[2] = (char)(0x80 | (c >> 6 & 0x3F)), b[3] = (char)(0x80 | (c & 0x3F)), n = 4;
    }
    tpl_put(run, out, b, n);
}

tpl_value tpl_built(tpl_run *run, tpl_builder *out)
{
    return tpl_text(run, out->data ? out->data : "", out->bytes);
}
