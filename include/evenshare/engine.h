/* evenshare/engine.h: sequences in, tokens out.
 *
 *   static void on_event(void *user, const es_event *event)
 *   {
 *       if (event->kind == ES_EVENT_TOKEN) fwrite(event->text, 1, event->text_bytes, stdout);
 *   }
 *   ...
 *   es_engine *engine;
 *   es_engine_open(model, NULL, &engine);
 *   es_request request = es_request_defaults(model);
 *   request.prompt = tokens, request.prompt_count = count, request.on_event = on_event;
 *   uint64_t id;
 *   if (es_engine_submit(engine, &request, &id) == ES_OK) es_engine_wait(engine, id);
 *   es_engine_close(engine);
 *
 * One thread inside the engine runs steps: a step gives every generating sequence one token and advances prompts by what
 * fits. Requests may be submitted and cancelled from any thread. Each accepted request ends in exactly one ES_EVENT_DONE or
 * ES_EVENT_ERROR. Memory is taken when the engine opens; what does not fit is refused when it is submitted. */
#ifndef EVENSHARE_ENGINE_H
#define EVENSHARE_ENGINE_H

#include "evenshare/model.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct es_engine es_engine;

/** A numeric mode fixes every rounding and the order of every sum: same mode, same bits. */
typedef enum es_numeric {
    ES_NUMERIC_AUTO, /**< the fastest trusted one for the model and the machine */
    ES_NUMERIC_F32,  /**< weights as stored, everything else in float32 */
    ES_NUMERIC_BF16, /**< products in bfloat16, sums in the order of AMX tiles */
    ES_NUMERIC_INT8, /**< quantised weights times quantised activations, in integers */
    ES_NUMERIC_BF16DP, /**< as BF16, products in the order of AVX-512's bfloat16 dot product */
} es_numeric;
/** Parse "auto", "f32", "bf16", "int8", "bf16dp"; ES_INVALID names those that exist. */
es_status es_numeric_parse(const char *name, es_numeric *numeric);
const char *es_numeric_name(es_numeric numeric);

/** How keys and values are kept, which fixes the arithmetic of attention too. */
typedef enum es_kv_type {
    ES_KV_AUTO, /**< float32 in numeric mode f32, else bfloat16 */
    ES_KV_F32,
    ES_KV_BF16,
    ES_KV_Q8_0, /**< 8 bits and a scale for each 32 channels of a token's head: half the memory of bf16. CPU only */
    ES_KV_F16,  /**< IEEE binary16, attention in the order of f32. CPU only */
} es_kv_type;
/** Parse "auto", "f32", "bf16", "f16", "q8_0"; ES_INVALID names those that exist. */
es_status es_kv_type_parse(const char *name, es_kv_type *type);
const char *es_kv_type_name(es_kv_type type);

/** Who walks a long sequence in attention: one worker (V1), all of them (V2), or as a cost model says. Never changes a bit. */
typedef enum es_attention { ES_ATTENTION_AUTO, ES_ATTENTION_V1, ES_ATTENTION_V2 } es_attention;

/** Where an engine computes. */
typedef enum es_device_kind {
    ES_DEVICE_AUTO, /**< a GPU whose kernels are trusted (evenshare doctor), else the CPU */
    ES_DEVICE_CPU,
    ES_DEVICE_CUDA, /**< the first NVIDIA GPU; opening fails, with the reason, where there is none */
} es_device_kind;

/** Where weights lie while a CPU computes. Copies can lie in huge pages and are read a fifth to two fifths faster; a mapped file is
 *  there at once, and shared with whoever else maps it. Changes no bit of an answer. */
typedef enum es_weights {
    ES_WEIGHTS_AUTO,   /**< copied where that leaves at least as much memory again */
    ES_WEIGHTS_MAPPED,
    ES_WEIGHTS_COPIED,
} es_weights;

/** How an engine is built. Zero anywhere means the default in brackets. */
typedef struct es_engine_options {
    int threads;            /**< workers [the CPUs this process may use]; a GPU has its own */
    int parallel;           /**< sequences at once [4] */
    int64_t context;        /**< most tokens of one sequence, prompt and answer [the model's, or what fits the memory] */
    int64_t pages;          /**< KV pages at most, shared by all sequences [as many as fit the memory and could be filled] */
    int64_t reserve;        /**< tokens that an answer without max_tokens is promised; beyond, it may be moved out for a while to
                                 make room for an older one [4096] */
    size_t memory;          /**< bytes for KV pages, states and workspaces [from the machine's or cgroup's limit, or from what
                                 the GPU has free] */
    int chunk;              /**< most prompt tokens in one step [256] */
    int page;               /**< tokens per KV page, a power of two from 16 to 512 [64] */
    int queue;              /**< requests waiting for a place before submit says ES_BUSY [1024] */
    double step_budget;     /**< seconds that a step may take while someone generates; negative: no bound [three times the
                                 decode step measured when the engine opens, 20 ms at least] */
    size_t cache;           /**< bytes for recurrent states kept in the prefix cache [an eighth of `memory`]; its KV pages are
                                 those that no sequence needs */
    const char *cache_dir;  /**< folder in which the prefix cache outlives the engine; made where it does not exist [none] */
    size_t cache_disk;      /**< bytes of files there, at most [2 GiB] */
    bool no_cache;          /**< compute every prompt from its first token */
    es_numeric numeric;
    es_kv_type kv_type;
    es_attention attention;
    es_weights weights;
    es_device_kind device;
} es_engine_options;

/** What the engine made of its options. */
typedef struct es_engine_info {
    int threads, parallel, chunk, page, queue;
    int64_t context;             /**< most tokens of one sequence */
    int64_t pages;               /**< KV pages in all */
    size_t memory;               /**< bytes allocated when it opened, weights not counted */
    size_t memory_limit;         /**< the budget they were sized from */
    es_numeric numeric;
    es_kv_type kv_type;          /**< never ES_KV_AUTO */
    double decode_seconds;       /**< of a step with one sequence and an empty context, measured when it opened */
    double step_budget;          /**< seconds; 0: no bound */
    int32_t checkpoints;         /**< recurrent states that the prefix cache can keep */
    const char *device;          /**< "cpu", "cuda" */
    const char *instruction_set; /**< "avx512", "avx2", "reference"; "sm_90" */
    const char *fingerprint;     /**< numeric mode, type of keys and values, and build, for system_fingerprint and cache keys */
} es_engine_info;

/** How a token is chosen from its logits. es_sampling_defaults() gives greedy choice with nothing else switched on. */
typedef struct es_sampling {
    float temperature;        /**< 0 = greedy, ties to the lowest token */
    int32_t top_k;            /**< keep the k likeliest; 0 = all */
    float top_p;              /**< keep the likeliest that together reach p; 1 = all */
    float min_p;              /**< keep those at least this share as likely as the likeliest; 0 = all */
    float repetition_penalty; /**< divides positive, multiplies negative logits of tokens seen; 1 = off */
    float frequency_penalty;  /**< subtracted once per occurrence in the answer; 0 = off */
    float presence_penalty;   /**< subtracted for each token that occurs in the answer; 0 = off */
    int32_t repetition_window;/**< how many last tokens (prompt and answer) repetition_penalty looks at; −1 = all */
    uint64_t seed;            /**< same seed, same model, same history: same tokens */
    uint32_t choice;          /**< which of several answers to one prompt this is: another stream of random numbers */
} es_sampling;
es_sampling es_sampling_defaults(void);

typedef struct es_logit_bias {
    es_token token;
    float bias; /**< added to the token's logit; −100 or less bans it */
} es_logit_bias;

typedef enum es_event_kind {
    ES_EVENT_PROGRESS, /**< prompt tokens done so far */
    ES_EVENT_MOVED,    /**< with `progress`: it lost its place for a while; the next event says that it is back */
    ES_EVENT_PROMPT,   /**< how likely a token of the prompt is after those before it */
    ES_EVENT_TOKEN,    /**< one more token of the answer */
    ES_EVENT_DONE,     /**< the last event: the answer is whole */
    ES_EVENT_ERROR,    /**< the last event: why there is no (whole) answer */
} es_event_kind;

typedef enum es_finish { ES_FINISH_STOP, ES_FINISH_LENGTH, ES_FINISH_CANCELLED } es_finish;

typedef struct es_token_logprob {
    es_token token;
    float logprob; /**< natural logarithm of the probability, before temperature and truncation */
} es_token_logprob;

/** An event. Pointers are valid during the callback only. */
typedef struct es_event {
    es_event_kind kind;
    uint64_t request;
    /* progress */
    int64_t prompt_done;          /**< prompt tokens computed or found in a cache; also prompt_tokens and cached_tokens */
    /* token; prompt, without text: `prompt_done` tokens stand before it */
    es_token token;
    const char *text;             /**< characters that this token completed, stop strings already cut off; may be empty */
    size_t text_bytes;
    float logprob;                /**< of `token`; only with request.logprobs */
    const es_token_logprob *top;  /**< [top_count], likeliest first; only with request.top_logprobs */
    int top_count;
    /* done (text: what was still held back) */
    es_finish finish;
    const char *stop_string;      /**< the stop string that ended it, or NULL */
    const float *embedding;       /**< [embedding_count], with request.pooling: pooled final states, not normalised; else NULL */
    int embedding_count;
    /* done and error (the first two: progress as well) */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    double prompt_seconds, completion_seconds;
    /* error */
    es_status status;
    const char *message;
} es_event;

typedef void (*es_event_fn)(void *user, const es_event *event);
/** Raw logits of one position [vocabulary], float32, before any sampling; valid during the call only. */
typedef void (*es_logits_fn)(void *user, int64_t position, const float *logits, int32_t vocabulary);

/** One request. The engine copies what it needs before es_engine_submit() returns. */
typedef struct es_request {
    const es_token *prompt;      /**< [prompt_count], at least one, each a token of the model */
    size_t prompt_count;
    int64_t max_tokens;          /**< most tokens of the answer; 0 answers nothing (logits and prompt only); −1 = what fits */
    es_sampling sampling;
    const es_logit_bias *bias;   /**< [bias_count] */
    size_t bias_count;
    const es_token *stop_tokens; /**< [stop_token_count] besides the model's own */
    size_t stop_token_count;
    const char *const *stop;     /**< [stop_count] strings that end the answer; they are not part of it */
    size_t stop_count;
    const char *grammar;         /**< GBNF that the answer follows, `grammar_bytes` bytes; NULL: none. Tokens that would break it
                                      are not chosen, and the answer ends when it is whole (docs/api.md) */
    size_t grammar_bytes;
    const char *grammar_after;   /**< the grammar begins behind this text ("</think>", at most 64 bytes) of the answer, special
                                      tokens counted in, and up to two newlines; NULL: at the answer's beginning */
    bool grammar_optional;       /**< an answer may also end without `grammar_after` ever coming */
    bool ignore_eos;             /**< the model's own stop tokens do not end the answer */
    bool keep_special;           /**< write special tokens into the text */
    bool logprobs;               /**< fill event.logprob */
    int top_logprobs;            /**< fill event.top with this many, at most 20 */
    bool progress;               /**< send ES_EVENT_PROGRESS and ES_EVENT_MOVED */
    bool prompt_logprobs;        /**< send ES_EVENT_PROMPT for each prompt token but the first, in order, with logprob and
                                      top_logprobs; then nothing of the prompt is taken from a cache */
    es_pooling pooling;          /**< the prompt's embedding is wanted, in the last event; max_tokens must be 0 then */
    es_event_fn on_event;        /**< called on the engine's thread: must not block; may be NULL */
    es_logits_fn on_logits;      /**< wants logits of prompt positions from `logits_from` on; may be NULL */
    int64_t logits_from;
    void *user;
} es_request;

/** A request with the model's recommended sampling and nothing else set. */
es_request es_request_defaults(const es_model *model);

es_status es_engine_open(const es_model *model, const es_engine_options *options, es_engine **engine);
/** Ends every request (ES_FINISH_CANCELLED) and frees everything. */
void es_engine_close(es_engine *engine);
const es_engine_info *es_engine_get_info(const es_engine *engine);

/** What es_engine_submit() would say of a request to an engine whose sequences have at most `context` tokens: all its refusals
 *  but ES_BUSY and ES_NO_MEMORY. Any thread; needs no engine. */
es_status es_request_check(const es_model *model, int64_t context, const es_request *request);
/** Submit a request. ES_INVALID (a token out of range, ...), ES_TOO_LONG (prompt and max_tokens can never fit),
 *  ES_BUSY (queue full). After ES_OK exactly one done or error event follows. */
es_status es_engine_submit(es_engine *engine, const es_request *request, uint64_t *id);
/** Stop a request within one step; its event still comes. Unknown or finished numbers are fine. */
void es_engine_cancel(es_engine *engine, uint64_t id);
/** Stop working on a request for a while: it gives up its place within one step, keeps what it has computed as long as nobody
 *  needs the room, and goes on with the same bits when `paused` is false again. For whoever cannot take more events now. Unknown
 *  or finished numbers are fine. */
void es_engine_pause(es_engine *engine, uint64_t id, bool paused);
/** Wait until a request has ended. Not from a callback. */
void es_engine_wait(es_engine *engine, uint64_t id);

/** Buckets of the step histogram: bucket i holds the steps that took at most 0.5 ms times 2^i and more than the one before it does;
 *  the last one those that took longer. */
enum { ES_STEP_BUCKETS = 21 };

/** Counters for /health, /metrics and tests; taken without waiting for a step. */
typedef struct es_engine_stats {
    uint64_t steps, prompt_tokens, completion_tokens, finished, failed, cancelled;
    int32_t running, waiting;
    int64_t pages_used, pages_total; /**< used by sequences or held by the prefix cache */
    int64_t pages_held;              /**< used by sequences */
    uint64_t cached_tokens;          /**< prompt tokens that were found in the prefix cache */
    uint64_t preemptions;            /**< times that a sequence was moved out */
    uint64_t recomputed_tokens;      /**< rows computed anew for sequences that came back */
    uint64_t cache_hits, cache_misses; /**< requests of whose prompt something, or nothing, was found in the prefix cache */
    int32_t states_used, states_total; /**< recurrent states of sequences and of the prefix cache; 0: the model has none */
    uint64_t page_bytes, state_bytes;  /**< of one KV page, of one state */
    uint64_t disk_read, disk_written, disk_failed; /**< pieces of the prefix cache in --cache-dir */
    double last_step_seconds, all_steps_seconds;
    uint64_t step_bucket[ES_STEP_BUCKETS];
    uint64_t budget_overruns;        /**< steps that took longer than their budget while somebody generated */
    double step_budget_seconds;      /**< of the next step while someone generates; 0: no bound */
    /* the step that is being computed, for whoever watches over it */
    double step_seconds;             /**< how long it has run so far; 0: none is */
    int32_t step_sequences, step_rows, step_prompt_rows;
    int64_t step_depth;              /**< tokens before its deepest row */
} es_engine_stats;
es_engine_stats es_engine_get_stats(const es_engine *engine);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
