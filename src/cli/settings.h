/* settings.h: the option tables that several commands share, and what becomes of them.
 *
 * A command puts the structs inside its own and names the tables among its groups:
 *
 *   typedef struct settings { es_model_settings model; es_engine_settings engine; es_sampling_settings sampling; } settings;
 *   static const es_option_group groups[] = {
 *       {"Model", es_model_options, offsetof(settings, model)},
 *       {"Engine", es_engine_option_rows, offsetof(settings, engine)},
 *       {"Sampling", es_sampling_option_rows, offsetof(settings, sampling)}, {0}}; */
#ifndef ES_CLI_SETTINGS_H
#define ES_CLI_SETTINGS_H

#include "cli/options.h"
#include "evenshare/engine.h"

typedef struct es_model_settings {
    const char *path; /**< a .gguf or a folder; NULL = the default model */
} es_model_settings;
extern const es_option es_model_options[];

typedef struct es_engine_settings {
    int64_t context, threads, parallel, chunk, page, memory, cache, reserve;
    double step_budget; /**< milliseconds */
    const char *numeric, *kv_type, *attention, *weights, *device;
    const char *cache_dir;
    int64_t cache_disk;
    bool allow_slow, no_cache;
} es_engine_settings;
extern const es_option es_engine_option_rows[];

typedef struct es_sampling_settings {
    int64_t max_tokens, top_k, seed, repeat_window;
    double temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
    es_option_list stop;
    bool ignore_eos;
} es_sampling_settings;
extern const es_option es_sampling_option_rows[];

/** "auto", "cpu" or "cuda", which the option tables make sure of. */
es_device_kind es_device_kind_of(const char *name);
/** The value of --weights; NULL is auto. */
es_weights es_weights_of(const char *name);
/** Into the engine's terms; absent options stay 0, the engine's default. */
es_status es_engine_settings_apply(const es_engine_settings *settings, es_engine_options *options);

/** Over the model's recommended sampling, which `request` holds already. Its stop strings point into `settings`. Without
 *  --seed the seed is drawn from the machine's entropy: the same answer twice takes --seed or --temp 0. */
void es_sampling_settings_apply(const es_sampling_settings *settings, es_request *request);

/** Print es_error_message() for a command; returns the exit code that belongs to `status`. */
int es_command_fail(const es_command *command, es_status status);

#endif
