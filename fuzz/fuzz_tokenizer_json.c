/* fuzz_tokenizer_json.c: a tokenizer.json of any bytes is refused with a reason, or becomes a tokenizer that works.
 *
 * The bytes after the first NUL, if there is one, are the tokenizer_config.json. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever the vocabulary, a text can be encoded (or refused), and its tokens lie in it. */
static void use(const es_tokenizer *t)
{
    static const char text[] = "<|a|> don't  Caf\xC3\xA9 e\xCC\x81 123\r\n\xF0\x9F\x98\x80\xFF\tx <b> ";
    es_token *tokens = NULL;
    size_t count = 0;
    if (es_tokenizer_encode(t, text, sizeof text - 1, ES_ENCODE_SPECIAL | ES_ENCODE_BOS, &tokens, &count) != ES_OK) return;
    es_detokenizer *d = NULL;
    if (es_detokenizer_open(t, true, &d) == ES_OK) {
        const char *piece;
        size_t bytes;
        for (size_t i = 0; i < count; i++)
            if (es_detokenizer_add(d, tokens[i], &piece, &bytes) != ES_OK) abort();
        es_detokenizer_close(d);
    }
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data;
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    const size_t bytes = nul ? (size_t)(nul - data) : size;
    const char *config = nul ? (const char *)nul + 1 : NULL;
    es_tokenizer *t = NULL;
    const es_status status = es_tokenizer_read_json("fuzz.json", json, bytes, config, nul ? size - bytes - 1 : 0, &t);
    if (status == ES_OK) {
        use(t);
        es_tokenizer_close(t);
    } else if (!*es_error_message() || status == ES_INTERNAL) {
        abort();
    }
    return 0;
}
