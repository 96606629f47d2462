/* backend_text.h: the part of a backend that needs a model's words and no engine; the first member of those that have one. */
#ifndef ES_SERVE_BACKEND_TEXT_H
#define ES_SERVE_BACKEND_TEXT_H

#include "serve/backend.h"

typedef struct es_backend_words {
    const es_model *model;
    es_backend_info info;
} es_backend_words;

/** Fill in `words` from the model, and the functions of `backend` that need no more; self is `words`. */
void es_backend_words_init(es_backend_words *words, const es_model *model, es_backend *backend);

#endif
