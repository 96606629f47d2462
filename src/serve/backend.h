/* backend.h: what the server needs from an engine, as messages.
 *
 * The server knows no es_engine: it sends requests (plain data, no callbacks) and cancellations, and gets events. Today the
 * functions below call into the same process; a socket between two processes can stand there without a change above. Every
 * request carries a key chosen by the server; events name it, and nothing else ties the two together.
 *
 * Threads: info, render, encode and piece may be called from any thread at once; submit and cancel from the loop thread
 * (they must not wait for a step); stats from any thread. Events come on the engine's thread. */
#ifndef ES_SERVE_BACKEND_H
#define ES_SERVE_BACKEND_H

#include "evenshare/engine.h"

typedef struct es_backend_info {
    const char *model;       /**< name for /v1/models where no alias is given */
    const char *fingerprint; /**< for system_fingerprint */
    int64_t context;         /**< most tokens of one sequence */
    int32_t vocabulary;
    bool has_chat, has_tokenizer;
    es_sampling sampling;    /**< what the model recommends */
} es_backend_info;

typedef struct es_backend {
    void *self;
    const es_backend_info *(*info)(void *self);
    /** As es_model_render_chat(). */
    es_status (*render)(void *self, const char *variables_json, char **text);
    /** As es_tokenizer_encode(). */
    es_status (*encode)(void *self, const char *text, size_t bytes, unsigned flags, es_token **tokens, size_t *count);
    /** As es_tokenizer_piece(); NULL without a tokenizer. */
    const char *(*piece)(void *self, es_token token, size_t *bytes);
    /** Where events go from now on; event->request is the key. Called once, before the first submit. */
    void (*listen)(void *self, es_event_fn on_event, void *user);
    /** As es_engine_submit(); request->on_event, on_logits and user are ignored. */
    es_status (*submit)(void *self, uint64_t key, const es_request *request);
    /** As es_engine_cancel(), by key. */
    void (*cancel)(void *self, uint64_t key);
    es_engine_stats (*stats)(void *self);
} es_backend;

/** A backend over an engine in this process. `model` and `engine` must outlive it; close the engine before freeing it. */
es_status es_backend_open_engine(const es_model *model, es_engine *engine, es_backend *backend);
void es_backend_close_engine(es_backend *backend);

#endif
