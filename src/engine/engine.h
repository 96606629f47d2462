/* engine.h: the inside of es_engine, shared by engine.c (its life and its mailbox), room.c (who has a place and pages) and
 * step.c (what a step does). */
#ifndef ES_ENGINE_ENGINE_H
#define ES_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "cache/prefix.h"
#include "engine/ahead.h"
#include "engine/claims.h"
#include "engine/constraint.h"
#include "engine/sampler.h"
#include "engine/saves.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "model/network.h"

typedef struct es_engine_counters {
    _Atomic uint64_t steps, prompt_tokens, completion_tokens, cached_tokens, finished, failed, cancelled;
    _Atomic uint64_t preemptions, recomputed_tokens, cache_hits, cache_misses, budget_overruns;
    _Atomic uint64_t disk_read, disk_written, disk_failed;
    _Atomic uint64_t step_bucket[ES_STEP_BUCKETS], all_steps_nanoseconds;
    _Atomic int64_t states_used;
    _Atomic int32_t running, waiting;
    _Atomic int64_t pages_used, pages_held;
    _Atomic uint64_t step_nanoseconds, budget_nanoseconds; /* of the last step; of the next */
    _Atomic uint64_t step_began; /* on the engine's clock; 0: between steps */
    _Atomic int32_t step_sequences, step_rows, step_prompt_rows;
    _Atomic int64_t step_depth;
} es_engine_counters;

struct es_engine {
    const es_model *model;
    es_engine_info info;
    char fingerprint[64];
    es_device *device;
    es_network network;
    es_pages pages, slots;
    es_prefix *prefix;
    es_saves saves;             /**< the engine's thread alone, once it runs */
    es_ahead ahead;             /**< makes memory present for pages and states to come */
    bool recurrent, no_cache;
    size_t page_bytes, state_bytes;
    bool own_budget;            /**< the step budget is the engine's own choice, not an option's */
    double decode_seconds;      /**< what steps without a prompt take these days */
    es_sampler sampler;
    es_constraints constraints;
    es_sequence_limits limits;
    es_scheduler scheduler;
    es_clock clock;
    es_engine_counters counters;
    int queue;

    /* The engine's thread alone. */
    uint64_t overrun_told; /**< when a step that overran its budget was last logged */
    es_sequence **running;      /**< [parallel], oldest first */
    int32_t running_count;
    es_sequence *waiting, **waiting_tail; /**< admitted in order */
    es_sequence *set_aside;               /**< paused by es_engine_pause(), without a place */
    int32_t *step_tokens, *output_rows;   /**< [rows] */
    es_sequence **output_owner;           /**< [rows] */
    int32_t *pooled_rows, pooled_count;   /**< [rows] whose final states become embeddings */
    es_sequence **pooled_owner;           /**< [rows] */
    es_pick *picks;                       /**< [outputs of one run of the head] */
    es_picked *picked;                    /**< likewise */
    es_span *spans;                       /**< [parallel] */
    es_job *jobs;                         /**< [parallel] */
    es_claim *claims;                     /**< [parallel + 1] */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake, ended;
    es_sequence *mail, **mail_tail;       /**< submitted, not yet seen by the engine */
    es_sequence **live;                   /**< [live_capacity] every accepted sequence that has not ended */
    int32_t live_count, live_capacity;
    uint64_t next_id;
    bool stop;
    bool recall;                          /**< one that is set aside may be cancelled, or go on */
    pthread_t thread;
    bool started;
};

/** Before each step: let in who waits and fits, give pages to those that grow, move out or pause who must make room. room.c. */
void es_engine_make_room(es_engine *engine);
/** Move out, and keep out of the queue, whoever was asked to pause; put back into it whoever may go on. */
void es_engine_set_aside(es_engine *engine);
/** Give back a sequence's pages and slot; what it has computed should have been kept before. */
void es_engine_release_memory(es_engine *engine, es_sequence *sequence);
/** Set the counters of pages and states. */
void es_engine_count_memory(es_engine *engine);
/** Put a sequence among the waiting, in order of age. */
void es_engine_wait_again(es_engine *engine, es_sequence *sequence);

/** One step of the running sequences: compute, choose, tell. step.c. */
void es_engine_step(es_engine *engine);
/** Keep what a sequence has computed for those that begin alike, itself perhaps. Its own state becomes the mark. */
void es_engine_keep(es_engine *engine, es_sequence *sequence);
/** It no longer runs. */
void es_engine_leave(es_engine *engine, es_sequence *sequence);
/** Time a decode step and a short prompt, as the cost model's beginning; set the step budget (0: three decode steps; negative:
 *  none). Before the engine's thread starts. */
es_status es_engine_measure(es_engine *engine, double budget);
/** End a sequence with its last event, and give back what it holds. */
void es_engine_finish(es_engine *engine, es_sequence *sequence, es_finish finish, const char *stop);
void es_engine_fail(es_engine *engine, es_sequence *sequence, es_status status);

#endif
