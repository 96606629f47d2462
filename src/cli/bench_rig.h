/* bench_rig.h: a model on a device without an engine: steps of a chosen shape at a chosen depth, one after the other.
 *
 * The caches of the depth are filled with random numbers, not computed: what a step costs does not depend on what they hold,
 * and a prompt of 100,000 tokens would take minutes. */
#ifndef ES_CLI_BENCH_RIG_H
#define ES_CLI_BENCH_RIG_H

#include "cli/bench.h"
#include "device/cpu/limits.h"
#include "engine/sampler.h"
#include "evenshare/engine.h"
#include "model/network.h"

/** Ceilings of all steps to come. */
typedef struct es_rig_sizes {
    int32_t sequences, rows; /**< rows: of one step, all sequences together */
    int64_t context;         /**< of one sequence */
    int32_t page;
    int threads;
    es_numeric numeric;
    es_kv_type kv_type;
    es_attention attention;
    es_weights weights;
    es_device_kind device;   /**< resolved */
    bool random_weights;     /**< of the device's own making */
    es_op_watch watch;       /**< is told what each operation took */
} es_rig_sizes;

typedef struct es_rig {
    const es_model *model;
    es_rig_sizes sizes;
    es_loader counts; /**< parameters and bytes of the weights */
    es_device *device;
    es_network network;
    es_span *span;
    int32_t *page, *tokens, *outputs;
    es_pick *pick;
    es_picked *picked;
    es_sampler sampler;
    int64_t sequence_pages, filled;
} es_rig;

/** Whether a step chooses a token for each sequence, and from what. The logits of random weights are flat: at temperature 0.1
 *  with top-p 0.95 they are as peaked as a trained model's. */
typedef enum es_rig_choice {
    ES_RIG_CHOOSE_NOTHING,
    ES_RIG_CHOOSE_PICKED, /**< from what the device picks, as the engine does */
    ES_RIG_CHOOSE_ROW     /**< from the whole row, as the engine does where it is changed or reported */
} es_rig_choice;

/** What one step works on: every sequence has `rows` new tokens after `depth` computed ones. */
typedef struct es_rig_step {
    int64_t depth;
    int32_t sequences, rows;
    bool head; /**< logits of each sequence's last row */
    es_rig_choice choice; /**< with `head` */
} es_rig_step;

/** What a step has to do at least. */
typedef struct es_rig_work {
    double bytes;            /**< weights once, keys and values of every sequence once, states in and out */
    double products, attention, others; /**< operations: of products with weights; of attention; of the recurrence */
} es_rig_work;

es_status es_rig_open(const es_model *model, const es_rig_sizes *sizes, es_rig *rig);
void es_rig_close(es_rig *rig);
/** Fill the caches of all sequences up to `tokens` with random numbers, and the states. */
es_status es_rig_fill(es_rig *rig, int64_t tokens);
es_status es_rig_run(es_rig *rig, const es_rig_step *step);
es_rig_work es_rig_count(const es_rig *rig, const es_rig_step *step);
/** The arithmetic of most products, by mode and weight type. */
es_limit_kind es_rig_arithmetic(const es_rig *rig);
/** Seconds that the work takes at least, by the limits of the machine. */
double es_rig_bound(const es_rig *rig, const es_rig_work *work, const es_limits *limits);

#endif
