/* detokenizer.c: from tokens back to text, one token at a time.
 *
 * A token may end in the middle of a character. Its bytes wait until the next tokens complete it or show that it never will
 * be one; so at any moment what was handed out is valid UTF-8, and all of it together is what decoding at once would give. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

struct es_detokenizer {
    const es_tokenizer *tokenizer;
    bool keep_special;
    unsigned char pending[4]; /* the beginning of a character: at most 3 bytes */
    size_t pending_bytes;
    es_text out;
};

es_status es_detokenizer_open(const es_tokenizer *tokenizer, bool keep_special, es_detokenizer **detokenizer)
{
    es_detokenizer *d = calloc(1, sizeof *d);
    if (!d) return es_fail(ES_NO_MEMORY, "no memory for a detokenizer");
    d->tokenizer = tokenizer;
    d->keep_special = keep_special;
    *detokenizer = d;
    return ES_OK;
}

/* Take in one byte: hand out what it completes or breaks. */
static void take(es_detokenizer *d, unsigned char byte)
{
    d->pending[d->pending_bytes++] = byte;
    while (d->pending_bytes) {
        uint32_t codepoint = 0;
        const int length = es_utf8_step(d->pending, d->pending_bytes, &codepoint);
        if (length == 0) return;
        const size_t used = (size_t)(length > 0 ? length : -length);
        es_text_put_codepoint(&d->out, length > 0 ? codepoint : 0xFFFD);
        d->pending_bytes -= used;
        memmove(d->pending, d->pending + used, d->pending_bytes);
    }
}

static es_status hand_out(es_detokenizer *d, const char **text, size_t *bytes)
{
    if (d->out.failed) return es_fail(ES_NO_MEMORY, "no memory for a token's text");
    *text = d->out.data ? d->out.data : "";
    *bytes = d->out.bytes;
    return ES_OK;
}

es_status es_detokenizer_add(es_detokenizer *d, es_token token, const char **text, size_t *bytes)
{
    size_t n = 0;
    const char *piece = es_tokenizer_piece(d->tokenizer, token, &n);
    if (!piece)
        return es_fail(ES_INVALID, "there is no token %d; the vocabulary has %d", (int)token, (int)d->tokenizer->size);
    es_text_clear(&d->out);
    if (d->keep_special || !es_tokenizer_is_special(d->tokenizer, token)) {
        size_t i = 0;
        while (i < n) {
            /* Whole characters go straight through; only the edges are taken byte by byte. */
            const size_t valid = d->pending_bytes ? 0 : es_utf8_valid((const unsigned char *)piece + i, n - i);
            es_text_append(&d->out, piece + i, valid);
            i += valid;
            if (i < n) take(d, (unsigned char)piece[i++]);
        }
    }
    return hand_out(d, text, bytes);
}

es_status es_detokenizer_finish(es_detokenizer *d, const char **text, size_t *bytes)
{
    es_text_clear(&d->out);
    if (d->pending_bytes) es_text_put_codepoint(&d->out, 0xFFFD);
    d->pending_bytes = 0;
    return hand_out(d, text, bytes);
}

void es_detokenizer_reset(es_detokenizer *d)
{
    d->pending_bytes = 0;
    es_text_clear(&d->out);
}

void es_detokenizer_close(es_detokenizer *d)
{
    if (!d) return;
    es_text_free(&d->out);
    free(d);
}
