/* bpe.c: byte-pair merges, by search for short words and with a heap for long ones.
 *
 * Almost every word has fewer than a dozen bytes, and there nothing beats two small arrays. But a text may hold a word of a
 * megabyte (base64, a DNA string, an attack), so the quadratic search stops at a fixed length. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_WORD 64
#define NO_RANK INT32_MAX

void es_token_list_add(es_token_list *list, es_token token)
{
    if (list->failed) return;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? list->capacity + list->capacity / 2 : 64;
        es_token *data = capacity <= SIZE_MAX / sizeof *data ? realloc(list->data, capacity * sizeof *data) : NULL;
        if (!data) {
            list->failed = true;
            return;
        }
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->count++] = token;
}

/* The word's single-byte tokens; symbols[] has room for `bytes`. */
static size_t first_symbols(const es_bpe *bpe, const unsigned char *word, size_t bytes, es_token *symbols)
{
    size_t n = 0;
    bool after_unknown = false;
    for (size_t i = 0; i < bytes; i++) {
        const es_token token = bpe->byte[word[i]];
        if (token != ES_NO_TOKEN)
            symbols[n++] = token;
        else if (bpe->unknown != ES_NO_TOKEN && !(after_unknown && bpe->fuse_unknown))
            symbols[n++] = bpe->unknown;
        after_unknown = token == ES_NO_TOKEN;
    }
    return n;
}

static void short_word(const es_bpe *bpe, const unsigned char *word, size_t bytes, es_token_list *out)
{
    es_token symbol[SHORT_WORD], made[SHORT_WORD];
    int32_t rank[SHORT_WORD]; /* of the pair (i, i + 1) */
    size_t n = first_symbols(bpe, word, bytes, symbol);

    for (size_t i = 0; i + 1 < n; i++) {
        const es_pair_slot *merge = es_pair_table_find(&bpe->merges, es_pair_key(symbol[i], symbol[i + 1]));
        rank[i] = merge ? merge->first : NO_RANK;
        made[i] = merge ? merge->second : ES_NO_TOKEN;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;

        symbol[best] = made[best];
        for (size_t i = best + 1; i + 1 < n; i++) symbol[i] = symbol[i + 1];
        for (size_t i = best + 1; i + 2 < n; i++) rank[i] = rank[i + 1], made[i] = made[i + 1];
        n--;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const es_pair_slot *merge = es_pair_table_find(&bpe->merges, es_pair_key(symbol[i], symbol[i + 1]));
            rank[i] = merge ? merge->first : NO_RANK;
            made[i] = merge ? merge->second : ES_NO_TOKEN;
        }
    }
    for (size_t i = 0; i < n; i++) es_token_list_add(out, symbol[i]);
}

/* A pair that may merge, as it was when it was found; it is stale once either half has changed. */
typedef struct candidate {
    int32_t rank;
    uint32_t at;
    es_token left, right;
} candidate;

typedef struct long_state {
    const es_bpe *bpe;
    es_token *symbol;      /* [n]; ES_NO_TOKEN where merged into the left neighbour */
    uint32_t *next, *last; /* [n] neighbours; n = none to the right, UINT32_MAX = none to the left */
    candidate *heap;       /* [2n]: n − 1 pairs at first, and each of at most n − 1 merges takes one and brings two */
    size_t heap_count;
    uint32_t n;
} long_state;

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sink(candidate *heap, size_t count, size_t i)
{
    const candidate moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &moving)) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void push(long_state *s, uint32_t at)
{
    if (at == UINT32_MAX || s->next[at] >= s->n) return;
    const es_token left = s->symbol[at], right = s->symbol[s->next[at]];
    const es_pair_slot *merge = es_pair_table_find(&s->bpe->merges, es_pair_key(left, right));
    if (!merge) return;
    const candidate c = {.rank = merge->first, .at = at, .left = left, .right = right};
    size_t i = s->heap_count++;
    for (; i > 0 && before(&c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
}

static void merge_all(long_state *s)
{
    for (uint32_t i = 0; i + 1 < s->n; i++) push(s, i);
    while (s->heap_count) {
        const candidate c = s->heap[0];
        s->heap[0] = s->heap[--s->heap_count];
        if (s->heap_count) sink(s->heap, s->heap_count, 0);

        const uint32_t right = s->next[c.at];
        if (s->symbol[c.at] != c.left || right >= s->n || s->symbol[right] != c.right) continue;
        s->symbol[c.at] = es_pair_table_find(&s->bpe->merges, es_pair_key(c.left, c.right))->second;
        s->symbol[right] = ES_NO_TOKEN;
        s->next[c.at] = s->next[right];
        if (s->next[right] < s->n) s->last[s->next[right]] = c.at;
        push(s, s->last[c.at]);
        push(s, c.at);
    }
}

static es_status long_word(const es_bpe *bpe, const unsigned char *word, size_t bytes, es_token_list *out)
{
    if (bytes >= UINT32_MAX / 2) return es_fail(ES_TOO_LONG, "a word of %zu bytes is too long", bytes);
    const size_t each = sizeof(candidate) * 2 + sizeof(es_token) + sizeof(uint32_t) * 2;
    candidate *memory = malloc(bytes * each);
    if (!memory) return es_fail(ES_NO_MEMORY, "no memory to encode a word of %zu bytes", bytes);

    long_state s = {.bpe = bpe, .heap = memory};
    s.symbol = (es_token *)(memory + bytes * 2);
    s.next = (uint32_t *)(s.symbol + bytes);
    s.last = s.next + bytes;
    s.n = (uint32_t)first_symbols(bpe, word, bytes, s.symbol);
    for (uint32_t i = 0; i < s.n; i++) s.next[i] = i + 1, s.last[i] = i - 1;
    merge_all(&s);
    for (uint32_t i = 0; i < s.n; i = s.next[i]) es_token_list_add(out, s.symbol[i]);
    free(memory);
    return ES_OK;
}

es_status es_bpe_word(const es_bpe *bpe, const unsigned char *word, size_t bytes, es_token_list *out)
{
    if (bytes > SHORT_WORD)
        ES_TRY(long_word(bpe, word, bytes, out));
    else
        short_word(bpe, word, bytes, out);
    return out->failed ? es_fail(ES_NO_MEMORY, "no memory for %zu tokens", out->count) : ES_OK;
}
