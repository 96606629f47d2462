/* Bytes from the other process: messages are taken until one is not whole or none at all, and everything a message points to
 * is read. What was read is written again and must read the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static unsigned read_all(const void *data, size_t bytes)
{
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += ((const unsigned char *)data)[i];
    return sum;
}

static unsigned look_at(const es_wire_message *m)
{
    unsigned sum = 0;
    if (m->kind == ES_WIRE_SUBMIT) {
        const es_request *r = &m->request;
        sum += read_all(r->prompt, r->prompt_count * sizeof *r->prompt) + read_all(r->bias, r->bias_count * sizeof *r->bias) +
               read_all(r->stop_tokens, r->stop_token_count * sizeof *r->stop_tokens) + r->ignore_eos + r->progress;
        for (size_t i = 0; i < r->stop_count; i++) sum += (unsigned)strlen(r->stop[i]);
    } else if (m->kind == ES_WIRE_EVENT) {
        const es_event *e = &m->event;
        sum += read_all(e->text, e->text_bytes) + read_all(e->top, (size_t)e->top_count * sizeof *e->top);
        if (e->stop_string) sum += (unsigned)strlen(e->stop_string);
        if (e->message) sum += (unsigned)strlen(e->message);
    } else if (m->kind == ES_WIRE_HELLO) {
        sum += (unsigned)(strlen(m->hello.model) + strlen(m->hello.engine.fingerprint) +
                          strlen(m->hello.engine.instruction_set) + strlen(m->hello.engine.device));
    } else if (m->kind == ES_WIRE_FAILED) {
        sum += (unsigned)strlen(m->failed.message);
    }
    return sum;
}

static bool write_again(const es_wire_message *m, es_text *out)
{
    switch (m->kind) {
    case ES_WIRE_SUBMIT: return es_wire_put_submit(out, m->key, &m->request);
    case ES_WIRE_CANCEL:
    case ES_WIRE_PAUSE:
    case ES_WIRE_RESUME: return es_wire_put_key(out, m->kind, m->key);
    case ES_WIRE_HELLO: return es_wire_put_hello(out, &m->hello);
    case ES_WIRE_FAILED: return es_wire_put_failed(out, m->failed.status, m->failed.message);
    case ES_WIRE_EVENT: return es_wire_put_event(out, &m->event);
    case ES_WIRE_STATS: return es_wire_put_stats(out, &m->stats);
    case ES_WIRE_KINDS: break;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *copy = malloc(bytes + 1); /* aligned, and its end is watched */
    if (!copy) return 0;
    memcpy(copy, data, bytes);
    es_wire_message m, again;
    es_text out = {0};
    for (size_t at = 0; at < bytes;) {
        const ptrdiff_t used = es_wire_take(copy + at, bytes - at, &m);
        if (used <= 0) break;
        if ((size_t)used > bytes - at || used % 8) abort();
        at += (size_t)used;
        es_text_clear(&out);
        if (!write_again(&m, &out)) abort();
        if (es_wire_take(out.data, out.bytes, &again) != (ptrdiff_t)out.bytes || look_at(&m) != look_at(&again)) abort();
    }
    es_text_free(&out);
    free(copy);
    return 0;
}
