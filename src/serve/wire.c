/* wire.c: see wire.h.
 *
 * Each struct that travels has a table of its fields, in the struct's order. The same list builds an initializer with one
 * value per field: when a field is missing from the list, the compiler stops there ("missing initializer"). */
#include "serve/wire.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"

/* ---- the tables ---- */

typedef enum shape {
    PLAIN,   /* a number, or a struct without pointers: as it lies in memory */
    RECORD,  /* the same, for structs */
    FLAG,    /* a bool */
    LIST,    /* a pointer to elements without pointers, or NULL, and the field after it that counts them */
    TEXT,    /* a string, or NULL */
    STRINGS, /* an array of strings, and the field after it that counts them */
    HERE,    /* means something in its own process only: arrives as zero */
} shape;

typedef struct field {
    shape shape;
    size_t offset, size;      /* of the field; LIST: of one element */
    size_t count, count_size; /* where the number of elements lies; 0: none */
} field;

/* FIELD(shape, type, name, counter) */
#define REQUEST_FIELDS(FIELD)                                                                                                 \
    FIELD(LIST, es_request, prompt, prompt_count)                                                                             \
    FIELD(PLAIN, es_request, max_tokens, )                                                                                    \
    FIELD(RECORD, es_request, sampling, )                                                                                     \
    FIELD(LIST, es_request, bias, bias_count)                                                                                 \
    FIELD(LIST, es_request, stop_tokens, stop_token_count)                                                                    \
    FIELD(STRINGS, es_request, stop, stop_count)                                                                              \
    FIELD(LIST, es_request, grammar, grammar_bytes)                                                                           \
    FIELD(TEXT, es_request, grammar_after, )                                                                                  \
    FIELD(FLAG, es_request, grammar_optional, )                                                                               \
    FIELD(FLAG, es_request, ignore_eos, )                                                                                     \
    FIELD(FLAG, es_request, keep_special, )                                                                                   \
    FIELD(FLAG, es_request, logprobs, )                                                                                       \
    FIELD(PLAIN, es_request, top_logprobs, )                                                                                  \
    FIELD(FLAG, es_request, progress, )                                                                                       \
    FIELD(FLAG, es_request, prompt_logprobs, )                                                                                \
    FIELD(PLAIN, es_request, pooling, )                                                                                       \
    FIELD(HERE, es_request, on_event, )                                                                                       \
    FIELD(HERE, es_request, on_logits, )                                                                                      \
    FIELD(PLAIN, es_request, logits_from, )                                                                                   \
    FIELD(HERE, es_request, user, )

#define EVENT_FIELDS(FIELD)                                                                                                   \
    FIELD(PLAIN, es_event, kind, )                                                                                            \
    FIELD(PLAIN, es_event, request, )                                                                                         \
    FIELD(PLAIN, es_event, prompt_done, )                                                                                     \
    FIELD(PLAIN, es_event, token, )                                                                                           \
    FIELD(LIST, es_event, text, text_bytes)                                                                                   \
    FIELD(PLAIN, es_event, logprob, )                                                                                         \
    FIELD(LIST, es_event, top, top_count)                                                                                     \
    FIELD(PLAIN, es_event, finish, )                                                                                          \
    FIELD(TEXT, es_event, stop_string, )                                                                                      \
    FIELD(LIST, es_event, embedding, embedding_count)                                                                         \
    FIELD(PLAIN, es_event, prompt_tokens, )                                                                                   \
    FIELD(PLAIN, es_event, cached_tokens, )                                                                                   \
    FIELD(PLAIN, es_event, completion_tokens, )                                                                               \
    FIELD(PLAIN, es_event, prompt_seconds, )                                                                                  \
    FIELD(PLAIN, es_event, completion_seconds, )                                                                              \
    FIELD(PLAIN, es_event, status, )                                                                                          \
    FIELD(TEXT, es_event, message, )

#define INFO_FIELDS(FIELD)                                                                                                    \
    FIELD(PLAIN, es_engine_info, threads, )                                                                                   \
    FIELD(PLAIN, es_engine_info, parallel, )                                                                                  \
    FIELD(PLAIN, es_engine_info, chunk, )                                                                                     \
    FIELD(PLAIN, es_engine_info, page, )                                                                                      \
    FIELD(PLAIN, es_engine_info, queue, )                                                                                     \
    FIELD(PLAIN, es_engine_info, context, )                                                                                   \
    FIELD(PLAIN, es_engine_info, pages, )                                                                                     \
    FIELD(PLAIN, es_engine_info, memory, )                                                                                    \
    FIELD(PLAIN, es_engine_info, memory_limit, )                                                                              \
    FIELD(PLAIN, es_engine_info, numeric, )                                                                                   \
    FIELD(PLAIN, es_engine_info, kv_type, )                                                                                   \
    FIELD(PLAIN, es_engine_info, decode_seconds, )                                                                            \
    FIELD(PLAIN, es_engine_info, step_budget, )                                                                               \
    FIELD(PLAIN, es_engine_info, checkpoints, )                                                                               \
    FIELD(TEXT, es_engine_info, device, )                                                                                     \
    FIELD(TEXT, es_engine_info, instruction_set, )                                                                            \
    FIELD(TEXT, es_engine_info, fingerprint, )

/* es_engine_stats travels as one RECORD: it must stay free of pointers, and needs no line here. */

#define SIZE_OF(type, name)    sizeof(((type *)0)->name)
#define ONE(shape, type, name) {shape, offsetof(type, name), SIZE_OF(type, name), 0, 0},
#define MANY(shape, type, name, counter)                                                                                      \
    {shape, offsetof(type, name), sizeof *((type *)0)->name, offsetof(type, counter), SIZE_OF(type, counter)},
#define ROW_PLAIN(type, name, counter)   ONE(PLAIN, type, name)
#define ROW_RECORD(type, name, counter)  ONE(RECORD, type, name)
#define ROW_FLAG(type, name, counter)    ONE(FLAG, type, name)
#define ROW_TEXT(type, name, counter)    ONE(TEXT, type, name)
#define ROW_HERE(type, name, counter)    ONE(HERE, type, name)
#define ROW_LIST(type, name, counter)    MANY(LIST, type, name, counter)
#define ROW_STRINGS(type, name, counter) MANY(STRINGS, type, name, counter)
#define ROW(shape, type, name, counter)  ROW_##shape(type, name, counter)

static const field request_fields[] = {REQUEST_FIELDS(ROW)};
static const field event_fields[] = {EVENT_FIELDS(ROW)};
static const field info_fields[] = {INFO_FIELDS(ROW)};
static const field failure_fields[] = {ONE(PLAIN, es_wire_failure, status) ONE(TEXT, es_wire_failure, message)};
static const field hello_fields[] = {ONE(TEXT, es_wire_hello, model) ONE(PLAIN, es_wire_hello, vocabulary)};
static const field stats_fields[] = {
    {RECORD, 0, sizeof(es_engine_stats), 0, 0}
};
static const field key_fields[] = {
    {PLAIN, 0, sizeof(uint64_t), 0, 0}
};

#define VALUE_PLAIN                       0,
#define VALUE_RECORD                      {0},
#define VALUE_FLAG                        false,
#define VALUE_TEXT                        NULL,
#define VALUE_HERE                        0,
#define VALUE_LIST                        NULL, 0,
#define VALUE_STRINGS                     NULL, 0,
#define VALUE(shape, type, name, counter) VALUE_##shape

/* "missing initializer for field" here means: a field was added to the struct and not to the table above. Add its line there,
 * at its place in the struct's order; else it would be lost on the way to the engine. */
static const es_request empty_request = {REQUEST_FIELDS(VALUE)};
static const es_event empty_event = {EVENT_FIELDS(VALUE)};
static const es_engine_info empty_info = {INFO_FIELDS(VALUE)};

/* ---- writing ---- */

enum { HEAD = 8, MARK = 0x5AFE };
#define FIELDS(table) table, sizeof(table) / sizeof *(table)

typedef struct head {
    uint32_t bytes; /* of the body, a multiple of 8 */
    uint16_t kind, mark;
} head;
_Static_assert(sizeof(head) == HEAD, "the head is one unit of 8 bytes");

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static void put_bytes(es_text *out, const void *data, size_t bytes)
{
    static const char zeros[8] = {0};
    if (bytes) es_text_append(out, data, bytes);
    if (bytes % 8) es_text_append(out, zeros, 8 - bytes % 8);
}

static void put_number(es_text *out, uint64_t number)
{
    es_text_append(out, (const char *)&number, sizeof number);
}

/* A string's length plus one, or 0 for none. */
static void put_string(es_text *out, const char *string)
{
    const size_t bytes = string ? strlen(string) + 1 : 0;
    put_number(out, bytes);
    put_bytes(out, string, bytes);
}

/* A list's length plus one, or 0 for none: an empty one is not the same. */
static void put_list(es_text *out, const void *list, size_t count, size_t size)
{
    put_number(out, list ? count + 1 : 0);
    put_bytes(out, list, list ? count * size : 0);
}

static const void *pointer_at(const char *base, size_t offset)
{
    const void *pointer;
    memcpy(&pointer, base + offset, sizeof pointer);
    return pointer;
}

static size_t count_at(const char *base, const field *f)
{
    size_t wide;
    int narrow;
    if (f->count_size == sizeof wide) {
        memcpy(&wide, base + f->count, sizeof wide);
        return wide;
    }
    memcpy(&narrow, base + f->count, sizeof narrow);
    return narrow > 0 ? (size_t)narrow : 0;
}

static void put_field(es_text *out, const char *base, const field *f)
{
    const size_t count = f->count_size ? count_at(base, f) : 0;
    switch (f->shape) {
    case PLAIN:
    case RECORD:
    case FLAG: put_bytes(out, base + f->offset, f->size); break;
    case LIST: put_list(out, pointer_at(base, f->offset), count, f->size); break;
    case TEXT: put_string(out, pointer_at(base, f->offset)); break;
    case STRINGS:
        put_number(out, count);
        for (size_t i = 0; i < count; i++) put_string(out, ((const char *const *)pointer_at(base, f->offset))[i]);
        break;
    case HERE: break;
    }
}

static void put_struct(es_text *out, const void *base, const field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) put_field(out, base, &fields[i]);
}

static size_t begin(es_text *out)
{
    const size_t start = out->bytes;
    const head empty = {0};
    es_text_append(out, (const char *)&empty, sizeof empty);
    return start;
}

static bool end(es_text *out, size_t start, es_wire_kind kind)
{
    const size_t bytes = out->bytes - start - HEAD;
    if (out->failed || bytes > ES_WIRE_MOST) {
        /* forget the half-written message; the buffer stays usable */
        out->bytes = start;
        out->failed = false;
        return false;
    }
    const head h = {(uint32_t)bytes, (uint16_t)kind, MARK};
    memcpy(out->data + start, &h, sizeof h);
    return true;
}

bool es_wire_put_submit(es_text *out, uint64_t key, const es_request *request)
{
    const size_t start = begin(out);
    put_number(out, key);
    put_struct(out, request, FIELDS(request_fields));
    return end(out, start, ES_WIRE_SUBMIT);
}

bool es_wire_put_key(es_text *out, es_wire_kind kind, uint64_t key)
{
    const size_t start = begin(out);
    put_number(out, key);
    return end(out, start, kind);
}

bool es_wire_put_event(es_text *out, const es_event *event)
{
    const size_t start = begin(out);
    put_struct(out, event, FIELDS(event_fields));
    return end(out, start, ES_WIRE_EVENT);
}

bool es_wire_put_stats(es_text *out, const es_engine_stats *stats)
{
    const size_t start = begin(out);
    put_struct(out, stats, FIELDS(stats_fields));
    return end(out, start, ES_WIRE_STATS);
}

bool es_wire_put_hello(es_text *out, const es_wire_hello *hello)
{
    const size_t start = begin(out);
    put_struct(out, hello, FIELDS(hello_fields));
    put_struct(out, &hello->engine, FIELDS(info_fields));
    return end(out, start, ES_WIRE_HELLO);
}

bool es_wire_put_failed(es_text *out, es_status status, const char *message)
{
    const es_wire_failure failure = {status, message};
    const size_t start = begin(out);
    put_struct(out, &failure, FIELDS(failure_fields));
    return end(out, start, ES_WIRE_FAILED);
}

/* ---- reading ---- */

typedef struct reader {
    const char *data;
    size_t left;
    const char **strings; /* room for ES_WIRE_STRINGS */
    bool bad;
} reader;

static const void *take_bytes(reader *r, size_t bytes)
{
    if (r->bad || padded(bytes) > r->left) {
        r->bad = true;
        return NULL;
    }
    const void *data = r->data;
    r->data += padded(bytes);
    r->left -= padded(bytes);
    return data;
}

static uint64_t take_number(reader *r)
{
    uint64_t number = 0;
    const void *data = take_bytes(r, sizeof number);
    if (data) memcpy(&number, data, sizeof number);
    return number;
}

/* A number of elements of at least `size` bytes each, which can all still be there. */
static size_t take_count(reader *r, size_t size)
{
    const uint64_t count = take_number(r);
    if (count > r->left / size) r->bad = true;
    return r->bad ? 0 : (size_t)count;
}

static const char *take_string(reader *r)
{
    const size_t bytes = take_count(r, 1);
    const char *string = bytes ? take_bytes(r, bytes) : NULL;
    if (string && memchr(string, '\0', bytes) != string + bytes - 1) r->bad = true;
    return r->bad ? NULL : string;
}

static void set_count(char *base, const field *f, size_t count)
{
    const int narrow = (int)count;
    if (f->count_size == sizeof count)
        memcpy(base + f->count, &count, sizeof count);
    else
        memcpy(base + f->count, &narrow, sizeof narrow);
}

static void set_pointer(char *base, const field *f, const void *pointer)
{
    memcpy(base + f->offset, &pointer, sizeof pointer);
}

static void take_list(reader *r, char *base, const field *f)
{
    const uint64_t number = take_number(r), count = number ? number - 1 : 0;
    if (count > r->left / f->size || (f->count_size < sizeof count && count > INT32_MAX)) r->bad = true;
    const void *data = take_bytes(r, r->bad ? 0 : (size_t)count * f->size);
    if (r->bad) return;
    set_pointer(base, f, number ? data : NULL);
    set_count(base, f, (size_t)count);
}

static void take_strings(reader *r, char *base, const field *f)
{
    const size_t count = take_count(r, 8);
    if (count > ES_WIRE_STRINGS) r->bad = true;
    for (size_t i = 0; i < count && !r->bad; i++) {
        r->strings[i] = take_string(r);
        if (!r->strings[i]) r->bad = true;
    }
    if (r->bad) return;
    set_pointer(base, f, count ? r->strings : NULL);
    set_count(base, f, count);
}

static void take_field(reader *r, char *base, const field *f)
{
    const void *data;
    switch (f->shape) {
    case PLAIN:
    case RECORD:
        data = take_bytes(r, f->size);
        if (data) memcpy(base + f->offset, data, f->size);
        break;
    case FLAG:
        data = take_bytes(r, 1);
        if (data) base[f->offset] = *(const char *)data != 0;
        break;
    case LIST: take_list(r, base, f); break;
    case TEXT: set_pointer(base, f, take_string(r)); break;
    case STRINGS: take_strings(r, base, f); break;
    case HERE: break;
    }
}

static void take_struct(reader *r, void *base, const field *fields, size_t count)
{
    for (size_t i = 0; i < count && !r->bad; i++) take_field(r, base, &fields[i]);
}

static void take_body(reader *r, es_wire_message *m)
{
    switch (m->kind) {
    case ES_WIRE_SUBMIT:
        m->request = empty_request;
        take_struct(r, &m->key, FIELDS(key_fields));
        take_struct(r, &m->request, FIELDS(request_fields));
        break;
    case ES_WIRE_CANCEL:
    case ES_WIRE_PAUSE:
    case ES_WIRE_RESUME: take_struct(r, &m->key, FIELDS(key_fields)); break;
    case ES_WIRE_HELLO:
        m->hello = (es_wire_hello){.engine = empty_info};
        take_struct(r, &m->hello, FIELDS(hello_fields));
        take_struct(r, &m->hello.engine, FIELDS(info_fields));
        if (!m->hello.model || !m->hello.engine.fingerprint || !m->hello.engine.instruction_set || !m->hello.engine.device)
            r->bad = true;
        break;
    case ES_WIRE_FAILED:
        m->failed = (es_wire_failure){0};
        take_struct(r, &m->failed, FIELDS(failure_fields));
        if (!m->failed.message || m->failed.status >= ES_OK) r->bad = true;
        break;
    case ES_WIRE_EVENT:
        m->event = empty_event;
        take_struct(r, &m->event, FIELDS(event_fields));
        if ((unsigned)m->event.kind > ES_EVENT_ERROR || (unsigned)m->event.finish > ES_FINISH_CANCELLED) r->bad = true;
        break;
    case ES_WIRE_STATS: take_struct(r, &m->stats, FIELDS(stats_fields)); break;
    case ES_WIRE_KINDS: r->bad = true; break;
    }
}

ptrdiff_t es_wire_take(const char *data, size_t bytes, es_wire_message *message)
{
    head h;
    if (bytes < HEAD) return 0;
    memcpy(&h, data, sizeof h);
    if (h.mark != MARK || h.kind < ES_WIRE_SUBMIT || h.kind >= ES_WIRE_KINDS || h.bytes > ES_WIRE_MOST || h.bytes % 8)
        return -1;
    if (bytes - HEAD < h.bytes) return 0;
    reader r = {.data = data + HEAD, .left = h.bytes, .strings = message->strings};
    message->kind = (es_wire_kind)h.kind;
    take_body(&r, message);
    return r.bad || r.left ? -1 : (ptrdiff_t)(HEAD + h.bytes);
}
