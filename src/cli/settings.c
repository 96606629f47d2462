/* settings.c: the option tables shared by the commands; see settings.h. */
#include "cli/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"

const es_option es_model_options[] = {
    {"model", 'm', ES_OPTION_TEXT, "MODEL", offsetof(es_model_settings, path), .positional = true,
     .help = "a .gguf file (the first part of a split one), a Hugging Face folder, or hf:ORG/NAME if it was pulled [$ES_MODEL or the default]"},
    {0}};

#define FIELD(name) offsetof(es_engine_settings, name)
const es_option es_engine_option_rows[] = {
    {"device", 0, ES_OPTION_CHOICE, "auto|cpu|cuda", FIELD(device), .fallback = "auto", .environment = "ES_DEVICE",
     .help = "where to compute; auto takes a GPU only when evenshare doctor trusts its kernels"},
    {"ctx", 'c', ES_OPTION_SIZE, "N", FIELD(context), .min = 1, .max = 1 << 30,
     .help = "most tokens of one sequence, prompt and answer [the model's, or what fits the memory]"},
    {"threads", 't', ES_OPTION_INT, "N", FIELD(threads), .min = 1, .max = 4096,
     .help = "threads that compute [the CPUs this process may use]"},
    {"parallel", 0, ES_OPTION_INT, "N", FIELD(parallel), .min = 1, .max = 65536, .help = "sequences at once [4]"},
    {"chunk", 0, ES_OPTION_INT, "N", FIELD(chunk), .min = 1, .max = 65536, .help = "most prompt tokens in one step [256]"},
    {"page", 0, ES_OPTION_INT, "N", FIELD(page), .min = 16, .max = 512,
     .help = "tokens in one page of the cache, a power of two [64]"},
    {"memory", 0, ES_OPTION_SIZE, "BYTES", FIELD(memory), .min = 1, .max = ES_ANY,
     .help = "bytes for caches and workspaces, like 512M or 8G [from the machine's or cgroup's limit]"},
    {"reserve", 0, ES_OPTION_SIZE, "N", FIELD(reserve), .min = 1, .max = 1 << 30,
     .help = "tokens of memory promised to an answer without max_tokens; beyond, it may be moved out for a while for an older one [4096]"},
    {"step-budget", 0, ES_OPTION_FLOAT, "MS", FIELD(step_budget), .min = 0, .max = 1e6,
     .help = "milliseconds that a step may take while someone generates; prompts are cut to fit; 0 is no bound [three measured decode steps, 20 at least]"},
    {"cache", 0, ES_OPTION_SIZE, "BYTES", FIELD(cache), .min = 1, .max = ES_ANY,
     .help = "bytes for recurrent states kept to go on from [an eighth of --memory]; hybrid models only"},
    {"cache-dir", 0, ES_OPTION_TEXT, "DIR", FIELD(cache_dir),
     .help = "folder in which what was computed for prompts outlives the process; it holds what people have asked, so it must be yours alone [none]"},
    {"cache-disk", 0, ES_OPTION_SIZE, "BYTES", FIELD(cache_disk), .min = 1, .max = ES_ANY,
     .help = "bytes of files in --cache-dir at most [2G]"},
    {"no-cache", 0, ES_OPTION_FLAG, NULL, FIELD(no_cache), .help = "compute every prompt from its first token"},
    {"numeric", 0, ES_OPTION_TEXT, "MODE", FIELD(numeric),
     .help = "numeric mode, auto, f32, bf16, bf16dp or int8: it fixes every rounding, so the same mode gives the same bits [auto; score: f32]"},
    {"kv-type", 0, ES_OPTION_CHOICE, "auto|f32|bf16|f16|q8_0", FIELD(kv_type), .fallback = "auto",
     .help = "how keys and values are kept; auto is f32 in mode f32, else bf16. f16 rounds them eight times as finely as bf16 and q8_0 takes half of its memory, both on the CPU only. It decides bits, as the mode does"},
    {"attention", 0, ES_OPTION_CHOICE, "auto|v1|v2", FIELD(attention), .fallback = "auto",
     .help = "who walks a long sequence: one thread (v1) or all of them (v2); changes no bit of an answer"},
    {"weights", 0, ES_OPTION_CHOICE, "auto|mapped|copied", FIELD(weights), .fallback = "auto",
     .help = "a CPU reads copied weights faster, in huge pages; mapped ones are there at once and shared between processes; auto copies where memory is plenty. Changes no bit of an answer"},
    {"allow-slow", 0, ES_OPTION_FLAG, NULL, FIELD(allow_slow),
     .help = "start even if kernels that cannot be trusted leave only ones that are several times slower (evenshare doctor)"},
    {0}};
#undef FIELD

#define FIELD(name) offsetof(es_sampling_settings, name)
const es_option es_sampling_option_rows[] = {
    {"max-tokens", 'n', ES_OPTION_INT, "N", FIELD(max_tokens), .min = -1, .max = ES_ANY,
     .help = "most tokens of the answer; -1 is what fits the context [-1]"},
    {"temp", 0, ES_OPTION_FLOAT, "T", FIELD(temperature), .min = 0, .max = 100,
     .help = "temperature; 0 always takes the likeliest token [the model's]"},
    {"top-k", 0, ES_OPTION_INT, "K", FIELD(top_k), .min = 0, .max = INT32_MAX,
     .help = "choose among the K likeliest; 0 is all [the model's]"},
    {"top-p", 0, ES_OPTION_FLOAT, "P", FIELD(top_p), .min = 0, .max = 1,
     .help = "choose among the likeliest that together reach P; 1 is all [the model's]"},
    {"min-p", 0, ES_OPTION_FLOAT, "P", FIELD(min_p), .min = 0, .max = 1,
     .help = "choose among those at least P times as likely as the likeliest; 0 is all [the model's]"},
    {"seed", 's', ES_OPTION_INT, "N", FIELD(seed), .min = 0, .max = ES_ANY,
     .help = "seed of the random choice: the same seed gives the same answer [drawn anew]"},
    {"repeat-penalty", 0, ES_OPTION_FLOAT, "R", FIELD(repeat_penalty), .min = 0.01, .max = 100,
     .help = "makes tokens seen before less likely; 1 is off [the model's]"},
    {"repeat-window", 0, ES_OPTION_INT, "N", FIELD(repeat_window), .min = -1, .max = INT32_MAX,
     .help = "last tokens that the repeat penalty looks at; -1 is all"},
    {"frequency-penalty", 0, ES_OPTION_FLOAT, "F", FIELD(frequency_penalty), .min = -100, .max = 100,
     .help = "lowers a token's logit by F for each time it occurs in the answer [0]"},
    {"presence-penalty", 0, ES_OPTION_FLOAT, "F", FIELD(presence_penalty), .min = -100, .max = 100,
     .help = "lowers a token's logit by F when it occurs in the answer [0]"},
    {"stop", 0, ES_OPTION_LIST, "TEXT", FIELD(stop), .help = "ends the answer before TEXT; may be given several times"},
    {"ignore-eos", 0, ES_OPTION_FLAG, NULL, FIELD(ignore_eos), .help = "go on where the model would end its answer"},
    {0}};
#undef FIELD

es_weights es_weights_of(const char *name)
{
    return !name || strcmp(name, "auto") == 0 ? ES_WEIGHTS_AUTO : strcmp(name, "copied") == 0 ? ES_WEIGHTS_COPIED : ES_WEIGHTS_MAPPED;
}

es_device_kind es_device_kind_of(const char *name)
{
    if (name && strcmp(name, "cuda") == 0) return ES_DEVICE_CUDA;
    return name && strcmp(name, "cpu") == 0 ? ES_DEVICE_CPU : ES_DEVICE_AUTO;
}

static int64_t or_zero(int64_t value)
{
    return value == ES_UNSET ? 0 : value;
}

es_status es_engine_settings_apply(const es_engine_settings *settings, es_engine_options *options)
{
    es_engine_options out = {
        .context = or_zero(settings->context),
        .threads = (int)or_zero(settings->threads),
        .parallel = (int)or_zero(settings->parallel),
        .chunk = (int)or_zero(settings->chunk),
        .page = (int)or_zero(settings->page),
        .memory = (size_t)or_zero(settings->memory),
        .cache = (size_t)or_zero(settings->cache),
        .reserve = or_zero(settings->reserve),
        .cache_dir = settings->cache_dir,
        .cache_disk = (size_t)or_zero(settings->cache_disk),
        .no_cache = settings->no_cache,
        .device = es_device_kind_of(settings->device),
    };
    if (out.page & (out.page - 1))
        return es_fail(ES_INVALID, "--page %d: must be a power of two from 16 to 512", out.page);
    if (out.no_cache && out.cache_dir) return es_fail(ES_INVALID, "--no-cache and --cache-dir cannot both be wanted");
    /* The engine's 0 is "measure it", and negative "no bound". */
    if (!isnan(settings->step_budget)) out.step_budget = settings->step_budget > 0 ? settings->step_budget * 1e-3 : -1;
    if (settings->numeric) ES_TRY(es_numeric_parse(settings->numeric, &out.numeric));
    if (settings->kv_type) ES_TRY(es_kv_type_parse(settings->kv_type, &out.kv_type));
    if (settings->attention && strcmp(settings->attention, "v1") == 0) out.attention = ES_ATTENTION_V1;
    if (settings->attention && strcmp(settings->attention, "v2") == 0) out.attention = ES_ATTENTION_V2;
    out.weights = es_weights_of(settings->weights);
    *options = out;
    return ES_OK;
}

static uint64_t draw_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)time(NULL);
    return seed >> 11; /* so that it can be typed again, and JSON keeps it */
}

static void set_float(double value, float *field)
{
    if (!isnan(value)) *field = (float)value;
}

void es_sampling_settings_apply(const es_sampling_settings *settings, es_request *request)
{
    es_sampling *sampling = &request->sampling;
    set_float(settings->temperature, &sampling->temperature);
    set_float(settings->top_p, &sampling->top_p);
    set_float(settings->min_p, &sampling->min_p);
    set_float(settings->repeat_penalty, &sampling->repetition_penalty);
    set_float(settings->frequency_penalty, &sampling->frequency_penalty);
    set_float(settings->presence_penalty, &sampling->presence_penalty);
    if (settings->top_k != ES_UNSET) sampling->top_k = (int32_t)settings->top_k;
    if (settings->repeat_window != ES_UNSET) sampling->repetition_window = (int32_t)settings->repeat_window;
    sampling->seed = settings->seed != ES_UNSET ? (uint64_t)settings->seed : draw_seed();
    request->max_tokens = settings->max_tokens != ES_UNSET ? settings->max_tokens : -1;
    request->stop = settings->stop.items;
    request->stop_count = settings->stop.count;
    request->ignore_eos = settings->ignore_eos;
}

int es_command_fail(const es_command *command, es_status status)
{
    const char *message = es_error_message();
    fprintf(stderr, "evenshare %s: %s\n", command->name, *message ? message : es_status_name(status));
    return es_status_exit_code(status);
}
