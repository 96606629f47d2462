/* random_tokenizer.h: a byte-level BPE vocabulary of any size, for models that have none. */
#ifndef ES_MODEL_RANDOM_TOKENIZER_H
#define ES_MODEL_RANDOM_TOKENIZER_H

#include "model/gguf_write.h"

/** Put tokens, types, merges, special tokens and a chat template. The vocabulary must be at least 1,024 and at most 475,000:
 *  the bytes, then words of two, three and four small letters, each made by a merge, and three special tokens at the end. */
void es_random_tokenizer_put(es_gguf_writer *w, int32_t vocabulary, const char *split);

#endif
