/* tokenizer_encode.c: from text to tokens.
 *
 * In the order the model's own tokenizer works: added tokens are found in the text as it comes; what lies between is
 * normalised; more added tokens are found there; what is left is cut into words, and each word is merged. Bytes that are no
 * UTF-8 cannot be part of a word: each becomes the token of that byte. */
#include <stdlib.h>

#include "text/normalize.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

typedef struct encoder {
    const es_tokenizer *t;
    es_token_list out;
    es_text normal; /* the stretch being encoded, in NFC */
    bool specials;
} encoder;

static es_status encode_word(encoder *e, const unsigned char *word, size_t bytes)
{
    if (e->t->ignore_merges) {
        const es_token whole = es_name_table_find(&e->t->words, (const char *)word, bytes);
        if (whole != ES_NO_TOKEN) {
            es_token_list_add(&e->out, whole);
            return ES_OK;
        }
    }
    return es_bpe_word(&e->t->bpe, word, bytes, &e->out);
}

static es_status encode_words(encoder *e, const unsigned char *text, size_t bytes)
{
    es_split_run run;
    ES_TRY(es_split_start(&e->t->splitter, text, bytes, &run));
    es_status status = ES_OK;
    while (status == ES_OK && run.at < bytes) {
        const size_t begin = run.at;
        status = es_split_next(&run);
        if (status == ES_OK) status = encode_word(e, text + begin, run.at - begin);
    }
    es_split_stop(&run);
    return status;
}

/* Text without added tokens. */
static es_status encode_plain(encoder *e, const unsigned char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const size_t valid = es_utf8_valid(text + at, bytes - at);
        if (valid) ES_TRY(encode_words(e, text + at, valid));
        at += valid;
        if (at < bytes) ES_TRY(es_bpe_word(&e->t->bpe, text + at++, 1, &e->out));
    }
    return ES_OK;
}

static es_status encode_between(encoder *e, const unsigned char *text, size_t bytes, int which);

/* A stretch in which all tokens of added[0] have been found. */
static es_status encode_stretch(encoder *e, const unsigned char *text, size_t bytes)
{
    if (!e->t->nfc || es_nfc_is_plain(text, bytes)) return encode_between(e, text, bytes, 1);
    es_text_clear(&e->normal);
    ES_TRY(es_nfc_append(text, bytes, &e->normal));
    return encode_between(e, (const unsigned char *)e->normal.data, e->normal.bytes, 1);
}

static es_status encode_gap(encoder *e, const unsigned char *text, size_t bytes, int which)
{
    if (bytes == 0) return ES_OK;
    return which == 0 ? encode_stretch(e, text, bytes) : encode_plain(e, text, bytes);
}

/* Added tokens of the set `which`, and what lies between them. */
static es_status encode_between(encoder *e, const unsigned char *text, size_t bytes, int which)
{
    size_t scan = 0, done = 0;
    es_added_match match;
    while (es_added_next(&e->t->added[which], text, bytes, e->specials, &scan, done, &match)) {
        if (match.begin > done) ES_TRY(encode_gap(e, text + done, match.begin - done, which));
        es_token_list_add(&e->out, match.token);
        done = match.end;
    }
    return done < bytes ? encode_gap(e, text + done, bytes - done, which) : ES_OK;
}

es_status es_tokenizer_encode(const es_tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags, es_token **tokens,
                              size_t *count)
{
    if (bytes > INT32_MAX) return es_fail(ES_TOO_LONG, "the text has %zu bytes; at most %d can be encoded", bytes, INT32_MAX);
    encoder e = {.t = tokenizer, .specials = (flags & ES_ENCODE_SPECIAL) != 0};
    if (flags & ES_ENCODE_BOS && tokenizer->add_bos && tokenizer->bos != ES_NO_TOKEN)
        es_token_list_add(&e.out, tokenizer->bos);

    es_status status = encode_between(&e, (const unsigned char *)text, bytes, 0);
    if (flags & ES_ENCODE_EOS && tokenizer->add_eos && tokenizer->eos != ES_NO_TOKEN)
        es_token_list_add(&e.out, tokenizer->eos);
    if (status == ES_OK && !e.out.data) e.out.data = malloc(sizeof *e.out.data); /* no tokens, but something to free */
    if (status == ES_OK && (e.out.failed || !e.out.data)) status = es_fail(ES_NO_MEMORY, "no memory for the text's tokens");
    es_text_free(&e.normal);
    if (status != ES_OK) {
        free(e.out.data);
        return status;
    }
    *tokens = e.out.data;
    *count = e.out.count;
    return ES_OK;
}
