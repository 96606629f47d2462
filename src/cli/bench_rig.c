/* bench_rig.c: see bench_rig.h. */
#include "cli/bench_rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cli/bench_limits.h"
#include "device/random_blocks.h"

enum { PIECE = 1 << 20 }; /* bytes of random numbers that are written again and again */

static es_status open_lists(es_rig *rig)
{
    const es_rig_sizes *s = &rig->sizes;
    const size_t sequences = (size_t)s->sequences, rows = (size_t)s->rows;
    rig->sequence_pages = (s->context + s->page - 1) / s->page;
    rig->span = calloc(sequences, sizeof *rig->span);
    rig->page = calloc(sequences * (size_t)rig->sequence_pages, sizeof *rig->page);
    rig->tokens = calloc(rows, sizeof *rig->tokens);
    rig->outputs = calloc(rows, sizeof *rig->outputs);
    rig->pick = calloc(sequences, sizeof *rig->pick);
    rig->picked = calloc(sequences, sizeof *rig->picked);
    if (!rig->span || !rig->page || !rig->tokens || !rig->outputs || !rig->pick || !rig->picked)
        return es_fail(ES_NO_MEMORY, "no memory for the lists of %d sequences", s->sequences);
    for (int64_t i = 0; i < s->sequences * rig->sequence_pages; i++) rig->page[i] = (int32_t)i;
    es_bits bits = {11};
    for (int32_t i = 0; i < s->rows; i++)
        rig->tokens[i] = (int32_t)(es_bits_next(&bits) % (uint64_t)rig->model->config.vocabulary);
    return es_sampler_open(rig->model->config.vocabulary, &rig->sampler);
}

static es_status open_network(es_rig *rig)
{
    const es_rig_sizes *s = &rig->sizes;
    const es_config *c = &rig->model->config;
    const es_device_options options = {
        .threads = s->threads, .rows = s->rows, .spans = s->sequences, .context = s->context, .columns = rig->counts.columns,
        .numeric = s->numeric, .kv_type = s->kv_type, .attention = s->attention, .random_weights = s->random_weights, .watch = s->watch,
        .copy_weights = es_device_copies_weights(s->device, s->weights, (size_t)rig->model->info.weight_bytes),
        .attn = c->attention_layers ? (es_attn_shape){c->query_heads, c->kv_heads, c->head_dim, s->page} : (es_attn_shape){0},
    };
    ES_TRY(es_device_open(s->device, &options, &rig->device));
    const es_network_sizes sizes = {.rows = s->rows, .outputs = s->sequences, .slots = s->sequences, .page = s->page,
                                    .pages = s->sequences * rig->sequence_pages, .numeric = s->numeric, .kv_type = s->kv_type};
    return es_network_open(rig->model, rig->device, &sizes, &rig->network);
}

es_status es_rig_open(const es_model *model, const es_rig_sizes *sizes, es_rig *rig)
{
    *rig = (es_rig){.model = model, .sizes = *sizes};
    if (sizes->numeric == ES_NUMERIC_AUTO) rig->sizes.numeric = es_device_numeric(sizes->device, model->weights);
    rig->sizes.kv_type = es_kv_type_resolve(sizes->kv_type, rig->sizes.numeric);
    es_status status = es_network_check(model, &rig->counts);
    if (status == ES_OK) status = open_lists(rig);
    if (status == ES_OK) status = open_network(rig);
    if (status != ES_OK) es_rig_close(rig);
    return status;
}

void es_rig_close(es_rig *rig)
{
    if (rig->network.model) es_network_close(&rig->network);
    es_device_close(rig->device);
    free(rig->span);
    free(rig->page);
    free(rig->tokens);
    free(rig->outputs);
    free(rig->pick);
    free(rig->picked);
    es_sampler_close(&rig->sampler);
    *rig = (es_rig){0};
}

static es_status write_over(es_rig *rig, es_slice slice, size_t bytes, const unsigned char *piece)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        ES_TRY(es_device_write(rig->device, slice.buffer, slice.offset + at, piece, bytes - at < PIECE ? bytes - at : PIECE));
    return ES_OK;
}

/* Keys and values of a page hold all its tokens: whole pages are written, which is as good. */
es_status es_rig_fill(es_rig *rig, int64_t tokens)
{
    const es_config *c = &rig->model->config;
    const es_rig_sizes *s = &rig->sizes;
    unsigned char *piece = malloc(PIECE);
    if (!piece) return es_fail(ES_NO_MEMORY, "no memory for random keys");
    es_bits bits = {13};
    es_random_kv(&bits, s->kv_type, PIECE, 1.0f, piece);
    const es_attn_shape shape = {c->query_heads, c->kv_heads, c->head_dim, s->page};
    const size_t page = es_kv_page_bytes(&shape, s->kv_type);
    es_status status = ES_OK;
    for (int32_t i = 0; i < 2 * c->attention_layers && status == ES_OK && tokens > rig->filled; i++)
        for (int32_t q = 0; q < s->sequences && status == ES_OK; q++) {
            es_slice slice = rig->network.kv[i];
            slice.offset += (size_t)(q * rig->sequence_pages) * page;
            status = write_over(rig, slice, (size_t)((tokens + s->page - 1) / s->page) * page, piece);
        }
    es_random_blocks(&bits, ES_F32, PIECE / 4, 0.1f, piece);
    const size_t state = (size_t)c->delta.value_heads * (size_t)c->delta.key_dim * (size_t)c->delta.value_dim * sizeof(float);
    for (int32_t i = 0; i < c->delta_layers && status == ES_OK; i++) {
        const size_t conv = (ES_CONV_TAPS - 1) * (size_t)es_delta_channels(&c->delta) * sizeof(float);
        status = write_over(rig, rig->network.delta_state[i], state * (size_t)s->sequences, piece);
        if (status == ES_OK) status = write_over(rig, rig->network.conv_state[i], conv * (size_t)s->sequences, piece);
    }
    free(piece);
    if (tokens > rig->filled) rig->filled = tokens;
    return status;
}

/* The head, and a token for each sequence, as the engine chooses it. */
static es_status choose(es_rig *rig, es_rig_choice choice, es_batch *batch)
{
    const es_network *network = &rig->network;
    const size_t row_bytes = (size_t)rig->model->config.vocabulary * sizeof(float);
    es_sampling how = es_sampling_defaults();
    how.temperature = 0.1f, how.top_p = 0.95f, how.seed = 1;
    es_sample_input in = {.sampling = &how, .history_count = 1, .top_logprobs = -1};
    for (int32_t q = 0; q < batch->outputs; q++) es_sampler_plan(&in, &rig->pick[q]);
    if (choice == ES_RIG_CHOOSE_PICKED) batch->pick = rig->pick;
    ES_TRY(es_device_submit(rig->device, &network->head, batch));
    if (batch->pick) {
        const size_t bytes = (size_t)batch->outputs * sizeof *rig->picked;
        const void *picked = es_device_peek(rig->device, network->picked.buffer, network->picked.offset, bytes);
        if (!picked) return ES_INTERNAL;
        memcpy(rig->picked, picked, bytes);
    }
    for (int32_t q = 0; q < batch->outputs; q++) {
        es_sample sample;
        const bool enough = batch->pick && rig->picked[q].count <= ES_PICK_MOST;
        in.picked = enough ? &rig->picked[q] : NULL;
        in.logits = NULL;
        if (!enough)
            in.logits = es_device_peek(rig->device, network->logits.buffer, network->logits.offset + (size_t)q * row_bytes,
                                       row_bytes);
        if (!enough && !in.logits) return ES_INTERNAL;
        ES_TRY(es_sampler_choose(&rig->sampler, &in, &sample));
    }
    return ES_OK;
}

es_status es_rig_run(es_rig *rig, const es_rig_step *step)
{
    es_batch batch = {.rows = step->sequences * step->rows, .spans = step->sequences, .tokens = rig->tokens,
                      .span = rig->span, .output_row = rig->outputs};
    for (int32_t q = 0; q < step->sequences; q++) {
        rig->span[q] = (es_span){.first_row = q * step->rows, .rows = step->rows, .start = step->depth, .slot = q,
                                 .pages = rig->page + q * rig->sequence_pages};
        rig->outputs[q] = (q + 1) * step->rows - 1;
    }
    if (step->head) batch.outputs = step->sequences;
    ES_TRY(es_device_submit(rig->device, &rig->network.body, &batch));
    if (step->head && step->choice != ES_RIG_CHOOSE_NOTHING) return choose(rig, step->choice, &batch);
    return step->head ? es_device_submit(rig->device, &rig->network.head, &batch) : ES_OK;
}

es_rig_work es_rig_count(const es_rig *rig, const es_rig_step *step)
{
    const es_config *c = &rig->model->config;
    const double rows = (double)step->rows * step->sequences, outputs = step->head ? step->sequences : 0;
    const double table = (double)c->vocabulary * c->hidden, tables = c->tied ? 1 : 2;
    const double bytes_each = (double)rig->counts.bytes / (double)rig->counts.parameters;
    double body = (double)rig->counts.parameters - tables * table, active = body, read = body;
    if (c->experts) { /* a row passes through few of them, a step touches at most those of its rows */
        double experts = 0;
        for (int32_t i = 0; i < c->layers; i++)
            if (c->sparse[i]) experts += 3.0 * c->experts * c->expert_ffn * c->hidden;
        const double share = (double)c->experts_used / c->experts;
        active -= experts * (1 - share);
        read -= experts * (1 - (share * rows < 1 ? share * rows : 1));
    }
    const double keys = (double)step->depth + (step->rows + 1) / 2.0;
    const double token = (double)es_network_page_bytes(c, rig->sizes.page, rig->sizes.kv_type) / rig->sizes.page;
    const double state = (double)c->delta_layers * c->delta.value_heads * c->delta.key_dim * c->delta.value_dim;
    es_rig_work work = {0};
    work.bytes = (read + (outputs > 0 ? table : 0)) * bytes_each + token * (double)(step->depth + step->rows) * step->sequences +
                 2.0 * (double)es_network_slot_bytes(c) * step->sequences;
    work.products = 2 * (active * rows + table * outputs);
    work.attention = rows * 4.0 * c->attention_layers * c->query_heads * c->head_dim * keys;
    work.others = rows * 7.0 * state;
    return work;
}

es_limit_kind es_rig_arithmetic(const es_rig *rig)
{
    const es_dtype type = rig->model->weights;
    if (rig->sizes.numeric == ES_NUMERIC_F32 || type == ES_F32) return ES_LIMIT_F32;
    if (rig->sizes.numeric == ES_NUMERIC_BF16DP) return ES_LIMIT_BF16DP;
    return rig->sizes.numeric == ES_NUMERIC_BF16 || type == ES_F16 || type == ES_BF16 ? ES_LIMIT_BF16 : ES_LIMIT_INT8;
}

double es_rig_bound(const es_rig *rig, const es_rig_work *work, const es_limits *limits)
{
    const double products = limits->peak[es_rig_arithmetic(rig)].per_second, others = limits->peak[ES_LIMIT_F32].per_second;
    const double reading = work->bytes / limits->read_bytes;
    const double attention = limits->peak[es_limit_of_attention(rig->sizes.kv_type)].per_second;
    double computing = 0;
    if (products > 0) computing += work->products / products;
    if (attention > 0) computing += work->attention / attention;
    if (others > 0) computing += work->others / others;
    return reading > computing ? reading : computing;
}
