/* evenshare/tokenizer.h: text to tokens and back, byte for byte as the model was trained.
 *
 *   es_token *tokens; size_t count;
 *   es_tokenizer_encode(tokenizer, text, strlen(text), ES_ENCODE_SPECIAL, &tokens, &count);
 *   ...
 *   es_detokenizer *d;                          // for a stream: never cuts a character in two
 *   es_detokenizer_open(tokenizer, 0, &d);
 *   const char *piece; size_t bytes;
 *   es_detokenizer_add(d, token, &piece, &bytes);
 *
 * A tokenizer is immutable once open: any number of threads may use it. Detokenizers belong to one thread each. */
#ifndef EVENSHARE_TOKENIZER_H
#define EVENSHARE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evenshare/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** A token's number in its vocabulary, 0 to size − 1. */
typedef int32_t es_token;
#define ES_NO_TOKEN ((es_token)-1)

typedef struct es_tokenizer es_tokenizer;
typedef struct es_detokenizer es_detokenizer;

enum {
    ES_ENCODE_SPECIAL = 1, /**< special tokens written in the text ("<|im_end|>") become themselves; else they are plain text */
    ES_ENCODE_BOS = 2,     /**< put the beginning-of-sequence token first, where the model's own tokenizer does so */
    ES_ENCODE_EOS = 4,     /**< put the end-of-sequence token last, where the model's own tokenizer does so */
};

/** Tokens in the vocabulary, added ones included. */
int32_t es_tokenizer_size(const es_tokenizer *tokenizer);

/** Encode `bytes` bytes of text (any bytes; invalid UTF-8 is encoded byte by byte). *tokens is the caller's (free()).
 *  ES_NO_MEMORY; ES_TOO_LONG past 2^31 − 1 bytes. */
es_status es_tokenizer_encode(const es_tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags,
                              es_token **tokens, size_t *count);

/** The bytes a token stands for (not NUL-terminated; may be part of a character). NULL for a number out of range. */
const char *es_tokenizer_piece(const es_tokenizer *tokenizer, es_token token, size_t *bytes);

/** True for control tokens ("<|im_end|>"), which are not part of a readable answer. */
bool es_tokenizer_is_special(const es_tokenizer *tokenizer, es_token token);

/** The token whose text is exactly `text`, or ES_NO_TOKEN. */
es_token es_tokenizer_find(const es_tokenizer *tokenizer, const char *text);

/** The model's beginning- and end-of-sequence tokens, or ES_NO_TOKEN where it has none. */
es_token es_tokenizer_bos(const es_tokenizer *tokenizer);
es_token es_tokenizer_eos(const es_tokenizer *tokenizer);

/** Start an incremental detokenizer. With `keep_special` special tokens are written out too. */
es_status es_detokenizer_open(const es_tokenizer *tokenizer, bool keep_special, es_detokenizer **detokenizer);
/** Add one token. *text gets the characters completed by it (valid UTF-8, perhaps empty), valid until the next call.
 *  Bytes that can no longer become a character come out as U+FFFD. */
es_status es_detokenizer_add(es_detokenizer *detokenizer, es_token token, const char **text, size_t *bytes);
/** What an unfinished character leaves at the end (U+FFFD or nothing). */
es_status es_detokenizer_finish(es_detokenizer *detokenizer, const char **text, size_t *bytes);
/** Back to the state just opened, keeping its memory. */
void es_detokenizer_reset(es_detokenizer *detokenizer);
void es_detokenizer_close(es_detokenizer *detokenizer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
