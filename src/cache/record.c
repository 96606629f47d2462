/* record.c: see record.h. */
#include "cache/record.h"

#include <string.h>

#include "base/hash.h"

#define MAGIC   "evshpfx1"
#define MOST_ID (UINT64_MAX / 2) /* whoever counts on from there does not come to the end */

typedef struct head {
    char magic[8];
    uint64_t checksum; /* of all that follows it */
    uint64_t key[2];
    uint64_t id, parent;
    uint32_t kind, thin;
    uint32_t count, has_state;
    uint64_t page_bytes, state_bytes; /* of the parts that follow; 0: none */
} head;
_Static_assert(sizeof(head) == 80, "no padding: the bytes are a file's");

#define CHECKED offsetof(head, key)

/* Tokens are padded to whole 64-bit words, so that what follows is aligned. */
static size_t token_bytes(int32_t count)
{
    return ((size_t)count * sizeof(es_token) + 7) / 8 * 8;
}

size_t es_record_bytes(const es_record_shape *shape, const es_record *r)
{
    return sizeof(head) + token_bytes(r->count) + (r->count ? shape->page_bytes : 0) + (r->state ? shape->state_bytes : 0);
}

size_t es_record_most(const es_record_shape *shape, es_record_kind kind)
{
    return sizeof(head) + token_bytes(shape->page) + shape->page_bytes + (kind == ES_RECORD_MARK ? shape->state_bytes : 0);
}

size_t es_record_head(void)
{
    return sizeof(head);
}

void es_record_lay_out(const es_record_shape *shape, const es_record *r, unsigned char *out, unsigned char **page,
                       unsigned char **state)
{
    head h = {
        .key = {shape->key[0], shape->key[1]},
        .id = r->id,
        .parent = r->parent,
        .kind = r->kind,
        .thin = r->thin,
        .count = (uint32_t)r->count,
        .has_state = r->state != NULL,
        .page_bytes = r->count ? shape->page_bytes : 0,
        .state_bytes = r->state ? shape->state_bytes : 0
    };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(out, &h, sizeof h);
    unsigned char *at = out + sizeof h;
    memset(at, 0, token_bytes(r->count));
    if (r->count) memcpy(at, r->tokens, (size_t)r->count * sizeof *r->tokens);
    at += token_bytes(r->count);
    *page = h.page_bytes ? at : NULL;
    *state = h.state_bytes ? at + h.page_bytes : NULL;
}

void es_record_seal(unsigned char *out, size_t bytes)
{
    const uint64_t checksum = es_hash(1, out + CHECKED, bytes - CHECKED);
    memcpy(out + offsetof(head, checksum), &checksum, sizeof checksum);
}

static es_status read_head(const es_record_shape *shape, const unsigned char *data, size_t bytes, head *h)
{
    if (bytes < sizeof *h) return es_fail(ES_BAD_FILE, "it is cut short");
    memcpy(h, data, sizeof *h);
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0) return es_fail(ES_UNSUPPORTED, "it is no file of this format");
    if (h->key[0] != shape->key[0] || h->key[1] != shape->key[1])
        return es_fail(ES_UNSUPPORTED, "it belongs to another model, numeric mode, type of keys and values, or build");
    const bool node = h->kind == ES_RECORD_NODE;
    if (h->kind > ES_RECORD_MARK || h->thin > 1 || h->has_state > 1 || h->id == 0 || h->id > MOST_ID || h->parent >= h->id ||
        h->count > (uint32_t)shape->page || (h->count == (uint32_t)shape->page) != node || (node && h->has_state) ||
        (h->has_state && !shape->state_bytes) || h->page_bytes != (h->count ? shape->page_bytes : 0) ||
        h->state_bytes != (h->has_state ? shape->state_bytes : 0) || (h->count == 0 && !h->has_state))
        return es_fail(ES_BAD_FILE, "its head makes no sense");
    return ES_OK;
}

es_status es_record_peek(const es_record_shape *shape, const unsigned char *data, size_t bytes, es_record *record)
{
    head h;
    ES_TRY(read_head(shape, data, bytes, &h));
    *record =
        (es_record){.kind = (es_record_kind)h.kind, .id = h.id, .parent = h.parent, .thin = h.thin, .count = (int32_t)h.count};
    return ES_OK;
}

es_status es_record_parse(const es_record_shape *shape, const unsigned char *data, size_t bytes, es_record *record)
{
    head h;
    ES_TRY(read_head(shape, data, bytes, &h));
    const size_t tokens = token_bytes((int32_t)h.count);
    if (bytes != sizeof h + tokens + h.page_bytes + h.state_bytes)
        return es_fail(ES_BAD_FILE, "its length is not what its head says");
    if (es_hash(1, data + CHECKED, bytes - CHECKED) != h.checksum) return es_fail(ES_BAD_FILE, "its checksum is wrong");
    ES_TRY(es_record_peek(shape, data, bytes, record));
    const unsigned char *at = data + sizeof h;
    record->tokens = (const es_token *)(const void *)at;
    for (int32_t i = 0; i < record->count; i++)
        if (record->tokens[i] < 0 || record->tokens[i] >= shape->vocabulary)
            return es_fail(ES_BAD_FILE, "it holds token %d, which there is not", record->tokens[i]);
    record->page = h.page_bytes ? at + tokens : NULL;
    record->state = h.state_bytes ? at + tokens + h.page_bytes : NULL;
    return ES_OK;
}
