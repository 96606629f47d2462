/* tokenizer.c: checks a vocabulary and builds the tables that encoding needs.
 *
 * Vocabulary files write a token's bytes in an alphabet of 256 printable characters (GPT-2's). Here everything is turned into
 * plain bytes once, so that encoding and decoding never see that alphabet. */
#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

/* A trie walk costs up to this much at each byte of a text. */
#define ADDED_BYTES_MAX 1024

es_byte_alphabet es_byte_alphabet_make(void)
{
    /* Printable Latin-1 characters stand for themselves; the other 68 bytes, in order, for U+0100 and up. */
    es_byte_alphabet a;
    int next = 256;
    for (int c = 0; c < ES_ALPHABET_END; c++) a.byte[c] = -1;
    for (int b = 0; b < 256; b++) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        a.byte[itself ? b : next++] = (int16_t)b;
    }
    return a;
}

/* The bytes of an ordinary token into `out` (at most `bytes` of them); −1 when it is not written in the alphabet. */
static int64_t alphabet_decode(const es_byte_alphabet *a, const char *text, size_t bytes, char *out)
{
    int64_t n = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c = 0;
        const int length = es_utf8_step((const unsigned char *)text + at, bytes - at, &c);
        if (length <= 0 || c >= ES_ALPHABET_END || a->byte[c] < 0) return -1;
        out[n++] = (char)a->byte[c];
        at += (size_t)length;
    }
    return n;
}

static bool is_added(const es_token_source *t)
{
    return t->text && (t->kind == ES_TOKEN_CONTROL || t->kind == ES_TOKEN_USER);
}

/* Sizes and numbers, before anything is allocated from them. */
static es_status check_source(const es_tokenizer_source *s, size_t *bytes)
{
    if (s->size <= 0) return es_fail(ES_BAD_FILE, "%s: the vocabulary is empty", s->where);
    if (s->merge_count >= INT32_MAX) return es_fail(ES_BAD_FILE, "%s: %zu merges are too many", s->where, s->merge_count);
    const struct {
        const char *name;
        es_token token;
    } named[] = {{"beginning-of-sequence", s->bos}, {"end-of-sequence", s->eos}, {"unknown", s->has_unknown ? s->unknown : 0}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i].token != ES_NO_TOKEN && (named[i].token < 0 || named[i].token >= s->size))
            return es_fail(ES_BAD_FILE, "%s: the %s token is number %d, the vocabulary has %d tokens", s->where, named[i].name,
                           (int)named[i].token, (int)s->size);
    size_t total = 0;
    for (int32_t i = 0; i < s->size; i++) {
        const es_token_source *t = &s->tokens[i];
        if (!t->text) continue;
        if (t->bytes > INT32_MAX - total) return es_fail(ES_BAD_FILE, "%s: the tokens' texts are too long together", s->where);
        if (is_added(t) && t->bytes > ADDED_BYTES_MAX)
            return es_fail(ES_UNSUPPORTED, "%s: added token %d has %zu bytes; at most %d are supported", s->where, (int)i,
                           t->bytes, ADDED_BYTES_MAX);
        total += t->bytes;
    }
    *bytes = total;
    return ES_OK;
}

/* What each token stands for, and the two tables from bytes to token. */
static es_status add_pieces(es_tokenizer *t, const es_tokenizer_source *s, size_t bytes)
{
    t->size = s->size;
    t->kind = malloc((size_t)s->size);
    t->piece = malloc(((size_t)s->size + 1) * sizeof *t->piece);
    t->bytes = malloc(bytes + 1);
    if (!t->kind || !t->piece || !t->bytes || !es_name_table_open(&t->words, (size_t)s->size) ||
        !es_name_table_open(&t->names, (size_t)s->size))
        return es_fail(ES_NO_MEMORY, "%s: no memory for %d tokens", s->where, (int)s->size);

    const es_byte_alphabet alphabet = es_byte_alphabet_make();
    for (int b = 0; b < 256; b++) t->bpe.byte[b] = ES_NO_TOKEN;
    size_t at = 0;
    for (int32_t i = 0; i < s->size; i++) {
        const es_token_source *source = &s->tokens[i];
        t->kind[i] = (unsigned char)(source->text ? source->kind : ES_TOKEN_UNUSED);
        t->piece[i] = (uint32_t)at;
        if (!source->text) continue;

        char *piece = t->bytes + at;
        int64_t n = is_added(source) ? -1 : alphabet_decode(&alphabet, source->text, source->bytes, piece);
        const bool ordinary = n >= 0;
        if (!ordinary) {
            n = (int64_t)source->bytes;
            memcpy(piece, source->text, source->bytes);
        }
        at += (size_t)n;
        if (is_added(source))
            es_name_table_add(&t->names, piece, (size_t)n, i);
        else if (source->kind == ES_TOKEN_NORMAL)
            es_name_table_add(&t->words, piece, (size_t)n, i);
        if (ordinary && n == 1 && source->kind == ES_TOKEN_NORMAL && t->bpe.byte[(unsigned char)*piece] == ES_NO_TOKEN)
            t->bpe.byte[(unsigned char)*piece] = i;
    }
    t->piece[s->size] = (uint32_t)at;
    return ES_OK;
}

/* Merges are written as texts; `vocabulary` finds the tokens they mean. */
static es_status add_merges(es_tokenizer *t, const es_tokenizer_source *s, const es_name_table *vocabulary)
{
    if (!es_pair_table_open(&t->bpe.merges, s->merge_count))
        return es_fail(ES_NO_MEMORY, "%s: no memory for %zu merges", s->where, s->merge_count);
    for (size_t i = 0; i < s->merge_count; i++) {
        const es_merge_source *m = &s->merges[i];
        const es_token left = es_name_table_find(vocabulary, m->left, m->left_bytes);
        const es_token right = es_name_table_find(vocabulary, m->right, m->right_bytes);
        const es_token made = es_name_table_find2(vocabulary, m->left, m->left_bytes, m->right, m->right_bytes);
        if (left < 0 || right < 0 || made < 0)
            return es_fail(ES_BAD_FILE, "%s: merge %zu joins \"%.*s\" and \"%.*s\", but the vocabulary lacks %s", s->where, i,
                           (int)(m->left_bytes < 99 ? m->left_bytes : 99), m->left,
                           (int)(m->right_bytes < 99 ? m->right_bytes : 99), m->right,
                           left < 0 ? "the first" : right < 0 ? "the second" : "the two together");
        es_pair_table_add(&t->bpe.merges, es_pair_key(left, right), (int32_t)i, made);
    }
    return ES_OK;
}

static es_status index_merges(es_tokenizer *t, const es_tokenizer_source *s)
{
    es_name_table vocabulary = {0};
    if (!es_name_table_open(&vocabulary, (size_t)s->size))
        return es_fail(ES_NO_MEMORY, "%s: no memory for %d tokens", s->where, (int)s->size);
    for (int32_t i = 0; i < s->size; i++)
        if (s->tokens[i].text) es_name_table_add(&vocabulary, s->tokens[i].text, s->tokens[i].bytes, i);
    const es_status status = add_merges(t, s, &vocabulary);
    es_name_table_close(&vocabulary);
    return status;
}

/* The added tokens that are looked for in the text as it comes (which = 0) or normalised (1). */
static es_status index_added(es_tokenizer *t, const es_tokenizer_source *s, int which)
{
    size_t count = 0, bytes = 0;
    for (int32_t i = 0; i < s->size; i++) {
        if (!is_added(&s->tokens[i]) || s->tokens[i].normalized != (which == 1)) continue;
        count++;
        bytes += s->tokens[i].bytes * (t->nfc ? 3 : 1); /* NFC lengthens UTF-8 at most threefold */
    }
    ES_TRY(es_added_open(&t->added[which], count, bytes));

    es_text normal = {0};
    es_status status = ES_OK;
    for (int32_t i = 0; i < s->size && status == ES_OK; i++) {
        const es_token_source *source = &s->tokens[i];
        if (!is_added(source) || source->normalized != (which == 1)) continue;
        const es_added_token token = {.token = i, .special = source->kind == ES_TOKEN_CONTROL, .lstrip = source->lstrip,
                                      .rstrip = source->rstrip, .single_word = source->single_word};
        es_text_clear(&normal);
        if (which == 1 && t->nfc)
            status = es_nfc_append((const unsigned char *)source->text, source->bytes, &normal);
        else
            es_text_append(&normal, source->text, source->bytes);
        if (status == ES_OK && (normal.failed || !es_added_add(&t->added[which], normal.data, normal.bytes, &token)))
            status = es_fail(ES_NO_MEMORY, "%s: no memory for added token %d", s->where, (int)i);
    }
    es_text_free(&normal);
    return status;
}

static es_status fill(es_tokenizer *t, const es_tokenizer_source *s)
{
    size_t bytes = 0;
    ES_TRY(check_source(s, &bytes));
    t->nfc = s->nfc;
    t->ignore_merges = s->ignore_merges;
    t->add_bos = s->add_bos;
    t->add_eos = s->add_eos;
    t->bos = s->bos;
    t->eos = s->eos;
    t->bpe.unknown = s->has_unknown ? s->unknown : ES_NO_TOKEN;
    t->bpe.fuse_unknown = s->fuse_unknown;
    ES_TRY(es_splitter_open(s->split, s->pattern, s->where, &t->splitter));
    ES_TRY(add_pieces(t, s, bytes));
    ES_TRY(index_merges(t, s));
    ES_TRY(index_added(t, s, 0));
    return index_added(t, s, 1);
}

es_status es_tokenizer_build(const es_tokenizer_source *source, es_tokenizer **tokenizer)
{
    es_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return es_fail(ES_NO_MEMORY, "%s: no memory for a tokenizer", source->where);
    const es_status status = fill(t, source);
    if (status != ES_OK) {
        es_tokenizer_close(t);
        return status;
    }
    *tokenizer = t;
    return ES_OK;
}

void es_tokenizer_close(es_tokenizer *t)
{
    if (!t) return;
    es_splitter_close(&t->splitter);
    es_added_close(&t->added[0]);
    es_added_close(&t->added[1]);
    es_name_table_close(&t->words);
    es_name_table_close(&t->names);
    es_pair_table_close(&t->bpe.merges);
    free(t->kind);
    free(t->piece);
    free(t->bytes);
    free(t);
}

int32_t es_tokenizer_size(const es_tokenizer *tokenizer)
{
    return tokenizer->size;
}

const char *es_tokenizer_piece(const es_tokenizer *tokenizer, es_token token, size_t *bytes)
{
    if (token < 0 || token >= tokenizer->size) return NULL;
    *bytes = tokenizer->piece[token + 1] - tokenizer->piece[token];
    return tokenizer->bytes + tokenizer->piece[token];
}

bool es_tokenizer_is_special(const es_tokenizer *tokenizer, es_token token)
{
    return token >= 0 && token < tokenizer->size && tokenizer->kind[token] == ES_TOKEN_CONTROL;
}

es_token es_tokenizer_find(const es_tokenizer *tokenizer, const char *text)
{
    const size_t bytes = strlen(text);
    const es_token added = es_name_table_find(&tokenizer->names, text, bytes);
    return added != ES_NO_TOKEN ? added : es_name_table_find(&tokenizer->words, text, bytes);
}

es_token es_tokenizer_bos(const es_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

es_token es_tokenizer_eos(const es_tokenizer *tokenizer)
{
    return tokenizer->eos;
}
