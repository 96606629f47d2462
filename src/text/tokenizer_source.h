/* tokenizer_source.h: what a vocabulary is made of, whichever file it came from.
 *
 * tokenizer.json and GGUF metadata both fill in an es_tokenizer_source; es_tokenizer_build() knows only this. */
#ifndef ES_TEXT_TOKENIZER_SOURCE_H
#define ES_TEXT_TOKENIZER_SOURCE_H

#include "base/error.h"
#include "evenshare/tokenizer.h"

/** How text is cut into words before merges apply. */
typedef enum es_split {
    ES_SPLIT_GPT2,    /**< GPT-2's pattern (GGUF "gpt-2", "gpt2") */
    ES_SPLIT_SMOLLM,  /**< single digits first, then GPT-2's pattern (GGUF "smollm") */
    ES_SPLIT_LLAMA3,  /**< Llama 3's pattern (GGUF "llama-bpe", "llama3"): digits in threes */
    ES_SPLIT_QWEN2,   /**< GGUF "qwen2", "deepseek-r1-qwen": single digits */
    ES_SPLIT_QWEN35,  /**< GGUF "qwen35": qwen2's, with \p{M} in words */
    ES_SPLIT_DEFAULT, /**< GGUF "default": punctuation, then GPT-2's pattern, then numbers, then digits in threes */
    ES_SPLIT_REGEX,   /**< any other pattern, matched by PCRE2 (tokenizer.json only) */
} es_split;

typedef enum es_token_kind { ES_TOKEN_NORMAL, ES_TOKEN_CONTROL, ES_TOKEN_USER, ES_TOKEN_UNUSED } es_token_kind;

/** One entry of the vocabulary. `text` is in the byte-to-unicode alphabet for NORMAL ones, literal for CONTROL and USER. */
typedef struct es_token_source {
    const char *text;
    size_t bytes;
    es_token_kind kind;
    bool lstrip, rstrip, single_word; /**< of an added token, as tokenizer.json has them */
    bool normalized;                  /**< of an added token: found in the normalised text */
} es_token_source;

/** A merge: the two halves in the byte-to-unicode alphabet. */
typedef struct es_merge_source {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} es_merge_source;

/** Strings stay owned by whoever filled this in; es_tokenizer_build() copies what it keeps. */
typedef struct es_tokenizer_source {
    const char *where;               /**< file name for messages */
    const es_token_source *tokens;   /**< [size], index = token number; text NULL = a hole */
    int32_t size;
    const es_merge_source *merges;   /**< [merge_count], best first */
    size_t merge_count;
    es_split split;
    const char *pattern;             /**< for ES_SPLIT_REGEX */
    bool nfc;                        /**< normalise to NFC first */
    bool ignore_merges;              /**< a whole word that is a token needs no merges (Llama 3) */
    bool add_bos, add_eos;           /**< the model's own tokenizer puts BOS first, EOS last */
    es_token bos, eos;               /**< or ES_NO_TOKEN */
    bool has_unknown, fuse_unknown;  /**< `unknown` stands for a byte without a token (else it is dropped); one for a run */
    es_token unknown;                /**< read only with has_unknown */
} es_tokenizer_source;

/** Check and index a vocabulary. ES_BAD_FILE when pieces contradict each other. The result is the caller's. */
es_status es_tokenizer_build(const es_tokenizer_source *source, es_tokenizer **tokenizer);
/** Read a Hugging Face tokenizer.json (`config_path`: tokenizer_config.json beside it, for bos/eos, or NULL). */
es_status es_tokenizer_open_json(const char *path, const char *config_path, es_tokenizer **tokenizer);
/** The same from memory, `where` naming it in messages; config NULL = none. */
es_status es_tokenizer_read_json(const char *where, const char *data, size_t bytes, const char *config, size_t config_bytes,
                                 es_tokenizer **tokenizer);
/** Split kind of a GGUF `tokenizer.ggml.pre` name; ES_UNSUPPORTED names those that are known. */
es_status es_split_from_gguf(const char *pre, es_split *split);
void es_tokenizer_close(es_tokenizer *tokenizer);

#endif
