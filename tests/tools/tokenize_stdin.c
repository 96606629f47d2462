/* tokenize_stdin.c: lets a test in another language ask the tokenizer.
 *
 *   tokenize_stdin tokenizer.json [tokenizer_config.json] < questions > answers
 *
 * A question is flags and length (32-bit, this machine's byte order) and the text; its answer is a count and the tokens,
 * then a length and the text that an incremental detokenizer makes of them, special tokens kept.
 * The seconds that opening and answering took go to stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "text/tokenizer_source.h"

static int complain(void)
{
    fprintf(stderr, "error: %s\n", es_error_message());
    return 2;
}

static es_status answer(const es_tokenizer *t, const char *text, uint32_t bytes, uint32_t flags)
{
    es_token *tokens = NULL;
    size_t count = 0;
    ES_TRY(es_tokenizer_encode(t, text, bytes, flags, &tokens, &count));
    const uint32_t n = (uint32_t)count;
    fwrite(&n, 4, 1, stdout);
    fwrite(tokens, sizeof *tokens, count, stdout);

    es_detokenizer *d = NULL;
    es_text all = {0};
    es_status status = es_detokenizer_open(t, true, &d);
    const char *piece = NULL;
    size_t piece_bytes = 0;
    for (size_t i = 0; i <= count && status == ES_OK; i++) {
        status = i < count ? es_detokenizer_add(d, tokens[i], &piece, &piece_bytes)
                           : es_detokenizer_finish(d, &piece, &piece_bytes);
        if (status == ES_OK) es_text_append(&all, piece, piece_bytes);
    }
    if (status == ES_OK) {
        const uint32_t length = (uint32_t)all.bytes;
        fwrite(&length, 4, 1, stdout);
        fwrite(all.data ? all.data : "", 1, all.bytes, stdout);
    }
    es_text_free(&all);
    es_detokenizer_close(d);
    free(tokens);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: tokenize_stdin tokenizer.json [tokenizer_config.json]\n");
        return 2;
    }
    es_tokenizer *t = NULL;
    const es_clock clock = es_clock_monotonic();
    const uint64_t start = es_clock_now(&clock);
    if (es_tokenizer_open_json(argv[1], argc > 2 ? argv[2] : NULL, &t) != ES_OK) return complain();
    const uint64_t opened = es_clock_now(&clock);

    uint32_t head[2];
    es_status status = ES_OK;
    while (status == ES_OK && fread(head, 4, 2, stdin) == 2) {
        char *text = malloc((size_t)head[1] + 1);
        if (text && fread(text, 1, head[1], stdin) == head[1])
            status = answer(t, text, head[1], head[0]);
        else
            status = es_fail(ES_INVALID, "a question is cut short");
        free(text);
    }
    fprintf(stderr, "opened in %.3f s, answered in %.3f s\n", (double)(opened - start) * 1e-9,
            (double)(es_clock_now(&clock) - opened) * 1e-9);
    es_tokenizer_close(t);
    return status == ES_OK ? 0 : complain();
}
