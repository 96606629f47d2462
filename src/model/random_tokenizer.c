/* random_tokenizer.c: token 256 + i is the i-th word over a to z, short ones first; it merges the word without its last letter
 * with that letter. So every token but the special ones can be reached, and text can be read back. */
#include "model/random_tokenizer.h"

#include <string.h>

#define LETTERS 26
enum { BYTES = 256, SPECIAL = 3, NORMAL = 1, CONTROL = 3, MOST_WORD = 8 };
static const char *const special[SPECIAL] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

/* The printable character that stands for a byte, as UTF-8: itself where it prints, else the next one from U+0100. */
static void byte_character(int byte, char out[3])
{
    int code = byte, next = 256;
    for (int b = 0; b <= byte; b++) {
        const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        code = prints ? b : next++;
    }
    if (code < 128) {
        out[0] = (char)code, out[1] = '\0';
        return;
    }
    out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), out[2] = '\0';
}

/* The i-th word of two letters or more. */
static void word(int64_t i, char out[MOST_WORD])
{
    int letters = 2;
    int64_t count = LETTERS * LETTERS;
    for (; i >= count; letters++, count *= LETTERS) i -= count;
    out[letters] = '\0';
    while (letters-- > 0) {
        out[letters] = (char)('a' + i % LETTERS);
        i /= LETTERS;
    }
}

static void put_merge(es_gguf_writer *w, const char *made)
{
    char merge[MOST_WORD + 2];
    const size_t last = strlen(made) - 1;
    memcpy(merge, made, last);
    merge[last] = ' ', merge[last + 1] = made[last], merge[last + 2] = '\0';
    es_gguf_put_item(w, merge);
}

static const char chat_template[] =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void es_random_tokenizer_put(es_gguf_writer *w, int32_t vocabulary, const char *split)
{
    const int32_t words = vocabulary - BYTES - SPECIAL;
    char text[MOST_WORD];
    es_gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    es_gguf_put_text(w, "tokenizer.ggml.pre", split);
    es_gguf_begin_texts(w, "tokenizer.ggml.tokens", (uint64_t)vocabulary);
    for (int b = 0; b < BYTES; b++) {
        byte_character(b, text);
        es_gguf_put_item(w, text);
    }
    for (int32_t i = 0; i < words; i++) {
        word(i, text);
        es_gguf_put_item(w, text);
    }
    for (int i = 0; i < SPECIAL; i++) es_gguf_put_item(w, special[i]);
    es_gguf_begin_integers(w, "tokenizer.ggml.token_type", (uint64_t)vocabulary);
    for (int32_t i = 0; i < vocabulary; i++) es_gguf_put_integer(w, i < vocabulary - SPECIAL ? NORMAL : CONTROL);
    es_gguf_begin_texts(w, "tokenizer.ggml.merges", (uint64_t)words);
    for (int32_t i = 0; i < words; i++) {
        word(i, text);
        put_merge(w, text);
    }
    es_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)(vocabulary - SPECIAL));
    es_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)(vocabulary - 1));
    es_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    es_gguf_put_text(w, "tokenizer.chat_template", chat_template);
}
