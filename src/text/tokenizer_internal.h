/* tokenizer_internal.h: the tokenizer as tokenizer.c builds it and tokenizer_encode.c uses it. */
#ifndef ES_TEXT_TOKENIZER_INTERNAL_H
#define ES_TEXT_TOKENIZER_INTERNAL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/split.h"
#include "text/tables.h"
#include "text/tokenizer_source.h"

/* Immutable once es_tokenizer_build() returns it. */
struct es_tokenizer {
    int32_t size;
    unsigned char *kind;   /* [size] es_token_kind */
    uint32_t *piece;       /* [size + 1] where each token's bytes begin in `bytes` */
    char *bytes;           /* what the tokens stand for, one after the other */
    es_bpe bpe;
    es_name_table words;   /* bytes of ordinary tokens → token */
    es_name_table names;   /* bytes of added tokens → token */
    es_added_set added[2]; /* found in the text as it comes [0], in the normalised text [1] */
    es_splitter splitter;
    bool nfc, ignore_merges, add_bos, add_eos;
    es_token bos, eos;
};

/** The 256 code points that stand for bytes in vocabulary files, and back. */
#define ES_ALPHABET_END 324
typedef struct es_byte_alphabet {
    int16_t byte[ES_ALPHABET_END]; /**< code point → byte, or −1 */
} es_byte_alphabet;
es_byte_alphabet es_byte_alphabet_make(void);

#endif
