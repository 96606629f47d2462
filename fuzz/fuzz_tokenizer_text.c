/* fuzz_tokenizer_text.c: any bytes can be encoded, and come back as they were.
 *
 * The first byte chooses the split pattern, normalisation and flags; the rest is the text. The vocabulary is the 256 single
 * bytes, a few merges and added tokens of every kind. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "text/split.h"
#include "text/tokenizer_source.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MERGES = 12, ADDED = 6, TOKENS = 256 + MERGES + ADDED };

static es_tokenizer *make(es_split split, bool nfc, bool ignore_merges)
{
    static const char *const left[MERGES] = {"a",        "aa",       "aaaa",     "t",        "th", "i",
                                             "\xC3\x83", "\xC3\xA2", "\xC4\xA0", "\xC4\xA0", "1",  "\xC4\x8A"};
    static const char *const right[MERGES] = {"a",        "aa",       "aaaa",     "h", "e", "n",
                                              "\xC2\xA9", "\xC4\xA2", "\xC4\xA0", "a", "2", "\xC4\x8A"};
    static const char *const added[ADDED] = {"<l>", "<r>", "<w>", "word", "\xC3\xA9<", " <l>"};
    char text[256 + MERGES][8];
    es_token_source tokens[TOKENS] = {{0}};
    es_merge_source merges[MERGES];
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        es_text t = {0};
        es_text_put_codepoint(&t, (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++);
        memcpy(text[b], t.data, t.bytes);
        tokens[b] = (es_token_source){.text = text[b], .bytes = t.bytes};
        es_text_free(&t);
    }
    for (int i = 0; i < MERGES; i++) {
        const size_t l = strlen(left[i]), r = strlen(right[i]);
        memcpy(text[256 + i], left[i], l);
        memcpy(text[256 + i] + l, right[i], r);
        tokens[256 + i] = (es_token_source){.text = text[256 + i], .bytes = l + r};
        merges[i] = (es_merge_source){.left = left[i], .left_bytes = l, .right = right[i], .right_bytes = r};
    }
    for (int i = 0; i < ADDED; i++)
        tokens[256 + MERGES + i] = (es_token_source){.text = added[i], .bytes = strlen(added[i]), .normalized = i == 4,
                                                     .kind = i % 2 ? ES_TOKEN_USER : ES_TOKEN_CONTROL, .single_word = i == 3};
    const es_tokenizer_source source = {
        .where = "fuzz", .tokens = tokens, .size = TOKENS, .merges = merges, .merge_count = MERGES, .split = split, .nfc = nfc,
        .pattern = "[\\p{L}\\p{M}]+|\\p{N}{1,2}|\\s+", .ignore_merges = ignore_merges, .bos = 256, .eos = ES_NO_TOKEN};
    es_tokenizer *t = NULL;
    if (es_tokenizer_build(&source, &t) != ES_OK) abort();
    return t;
}

/* What a decoder of the whole would give: bytes that are no UTF-8 as U+FFFD. */
static void replaced(const uint8_t *data, size_t size, es_text *out)
{
    for (size_t at = 0; at < size;) {
        uint32_t c = 0;
        const int n = es_utf8_step(data + at, size - at, &c);
        es_text_put_codepoint(out, n > 0 ? c : 0xFFFD);
        at += n > 0 ? (size_t)n : n < 0 ? (size_t)-n : size - at;
    }
}

static void check(const es_tokenizer *t, const uint8_t *data, size_t size, unsigned flags, bool exact)
{
    es_token *tokens = NULL;
    size_t count = 0;
    if (es_tokenizer_encode(t, (const char *)data, size, flags, &tokens, &count) != ES_OK) abort();
    es_detokenizer *d = NULL;
    if (es_detokenizer_open(t, true, &d) != ES_OK) abort();
    es_text back = {0}, bytes = {0}, wanted = {0};
    const char *piece = NULL;
    size_t n = 0;
    for (size_t i = 0; i <= count; i++) {
        if ((i < count ? es_detokenizer_add(d, tokens[i], &piece, &n) : es_detokenizer_finish(d, &piece, &n)) != ES_OK)
            abort();
        if (es_utf8_valid((const unsigned char *)piece, n) != n) abort();
        es_text_append(&back, piece, n);
        if (i < count && (piece = es_tokenizer_piece(t, tokens[i], &n))) es_text_append(&bytes, piece, n);
    }
    replaced(data, size, &wanted);
    if (exact && (bytes.bytes != size || (size && memcmp(bytes.data, data, size) != 0))) abort();
    if (exact && (back.bytes != wanted.bytes || (back.bytes && memcmp(back.data, wanted.data, back.bytes) != 0))) abort();
    es_text_free(&back);
    es_text_free(&bytes);
    es_text_free(&wanted);
    es_detokenizer_close(d);
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static es_tokenizer *made[32];
    if (size == 0) return 0;
    const unsigned choice = data[0], kind = choice & 31;
    const bool nfc = choice & 8;
    if (!made[kind]) made[kind] = make((es_split)(choice % 8 % 6), nfc, choice & 16);
    check(made[kind], data + 1, size - 1, choice >> 5 & 1, !nfc);
    return 0;
}
