/* backend.h: what the server needs from an engine, as messages.
 *
 * The server knows no es_engine: it sends requests (plain data, no callbacks) and cancellations, and gets events. The engine
 * lives in a process of its own (backend_process.h) or in this one (es_backend_open_engine()). Every request carries a key
 * chosen by the server; events name it, and nothing else ties the two together.
 *
 * Threads: info, render, encode and piece may be called from any thread at once; submit and cancel from the loop thread
 * (they must not wait for a step); stats and health from any thread. Events come on one other thread. */
#ifndef ES_SERVE_BACKEND_H
#define ES_SERVE_BACKEND_H

#include "evenshare/engine.h"

typedef struct es_backend_info {
    const char *model;       /**< name for /v1/models where no alias is given */
    const char *fingerprint; /**< for system_fingerprint */
    const char *kv_type;     /**< how keys and values are kept, "q8_0"; NULL: unknown */
    int64_t context;         /**< most tokens of one sequence */
    int32_t vocabulary;
    int32_t hidden;          /**< numbers of an embedding */
    es_pooling pooling;      /**< how the model makes them of a text; NONE: it was not made for that */
    bool has_chat, has_tokenizer;
    const char *chat_template; /**< its source; NULL: unknown */
    es_sampling sampling;    /**< what the model recommends */
} es_backend_info;

/** Whether there is an engine. */
typedef struct es_backend_health {
    bool up;
    double seconds;    /**< since it came up, or went down */
    uint64_t restarts; /**< how often it was started again */
    char reason[256];  /**< why it went down last; "" if it never did */
} es_backend_health;

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
    /** As es_engine_pause(), by key. NULL: it cannot. */
    void (*pause)(void *self, uint64_t key, bool paused);
    /** NULL: it is always up. While it is down, submit says ES_UNAVAILABLE. */
    es_backend_health (*health)(void *self);
} es_backend;

/** What a model's words alone can do: info (without fingerprint and context), render, encode and piece; no weight is touched.
 *  The rest is NULL. `model` must outlive it. */
es_status es_backend_open_text(const es_model *model, es_backend *backend);
void es_backend_close_text(es_backend *backend);
/** es_request_check() against that model; `self` is the backend's. */
es_status es_backend_check_text(void *self, int64_t context, const es_request *request);

/** A backend over an engine in this process. `model` and `engine` must outlive it; close the engine before freeing it. */
es_status es_backend_open_engine(const es_model *model, es_engine *engine, es_backend *backend);
void es_backend_close_engine(es_backend *backend);

#endif
