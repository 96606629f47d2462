/* score.c: how likely a model finds a text.
 *
 * The measure behind every comparison: logits out of the engine that serves, log-softmax in double, so that two engines, two
 * chunkings or two kernels can be held against each other bit by bit. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/logits_file.h"
#include "cli/settings.h"
#include "cli/stream.h"

typedef struct settings {
    es_model_settings model;
    es_engine_settings engine;
    const char *text, *ids, *logits;
    int64_t last, greedy;
    bool special, tokens, json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option rows[] = {
    {"text", 0, ES_OPTION_TEXT, "FILE", FIELD(text), .help = "the text to score; - is standard input"},
    {"ids", 0, ES_OPTION_TEXT, "FILE", FIELD(ids),
     .help = "token numbers to score, parted by white space or commas; - is standard input"},
    {"special", 0, ES_OPTION_FLAG, NULL, FIELD(special), .help = "special tokens written in the text count as such"},
    {"tokens", 0, ES_OPTION_FLAG, NULL, FIELD(tokens), .help = "print each token with its log-probability"},
    {"logits", 0, ES_OPTION_TEXT, "OUT.safetensors", FIELD(logits),
     .help = "write raw logits as one float32 tensor \"logits\" [positions, vocabulary]"},
    {"last", 0, ES_OPTION_SIZE, "N", FIELD(last), .min = 1, .max = ES_ANY,
     .help = "with --logits: of the last N positions only"},
    {"greedy", 0, ES_OPTION_SIZE, "N", FIELD(greedy), .min = 1, .max = ES_ANY,
     .help = "go on with the N likeliest tokens, one after the other"},
    {"json", 0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "print one JSON object"},
    {0}};
#undef FIELD
static const es_option_group groups[] = {{NULL, rows, 0},
                                         {"Model", es_model_options, offsetof(settings, model)},
                                         {"Engine", es_engine_option_rows, offsetof(settings, engine)},
                                         {0}};

/* What a score is made of. Written on the engine's thread until the request has ended. */
typedef struct scoring {
    const es_token *ids;
    int64_t count;
    double *logprobs;      /* [count]: of token i after those before it; element 0 is unused */
    es_logits_file *file;  /* or NULL */
    int64_t file_from;     /* first position in the file */
    es_status file_status;
    char *file_message;    /* owned; what went wrong with the file */
    int64_t not_finite;    /* logits that are NaN or infinite */
} scoring;

/* log softmax(logits)[token] in double; NaN when a logit is. */
static double log_softmax(const float *logits, int32_t n, es_token token, int64_t *not_finite)
{
    double most = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(logits[i])) ++*not_finite;
        if ((double)logits[i] > most) most = (double)logits[i];
    }
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return (double)logits[token] - most - log(sum);
}

static void on_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    scoring *s = user;
    const bool scored = position + 1 < s->count;
    const double logprob =
        log_softmax(logits, vocabulary, scored ? s->ids[position + 1] : 0, &s->not_finite);
    if (scored) s->logprobs[position + 1] = logprob;
    if (!s->file || position < s->file_from || s->file_status != ES_OK) return;
    s->file_status = es_logits_file_put(s->file, position - s->file_from, logits);
    if (s->file_status != ES_OK) s->file_message = strdup(es_error_message()); /* kept per thread: carry it over */
}

static es_status read_ids(const settings *s, const es_model *model, es_token **ids, size_t *count)
{
    const char *path = s->ids ? s->ids : s->text;
    const es_tokenizer *tokenizer = es_model_tokenizer(model);
    if (s->text && !tokenizer)
        return es_fail(ES_UNSUPPORTED, "%s has no tokenizer: score token numbers with --ids", es_model_get_info(model)->path);
    es_text text = {0};
    es_status status = es_read_input(path, &text);
    if (status == ES_OK && s->ids) {
        status = es_parse_ids(path, &text, es_model_get_info(model)->vocabulary, ids, count);
    } else if (status == ES_OK) {
        const unsigned flags = s->special ? ES_ENCODE_BOS | ES_ENCODE_SPECIAL : ES_ENCODE_BOS;
        status = es_tokenizer_encode(tokenizer, text.data ? text.data : "", text.bytes, flags, ids, count);
        if (status == ES_OK && *count == 0) {
            free(*ids);
            status = es_fail(ES_INVALID, "%s: holds no text", path);
        }
    }
    es_text_free(&text);
    return status;
}

static es_status open_logits(const settings *s, const es_model *model, scoring *work)
{
    if (!s->logits) return ES_OK;
    if (s->last != ES_UNSET && s->last > work->count)
        return es_fail(ES_INVALID, "--last %" PRId64 ": there are only %" PRId64 " positions", s->last, work->count);
    const int64_t last = s->last != ES_UNSET ? s->last : work->count;
    work->file_from = work->count - last;
    return es_logits_file_open(s->logits, "logits", last, es_model_get_info(model)->vocabulary, &work->file);
}

static es_status compute(const settings *s, es_stream *stream, es_engine *engine, const es_model *model, scoring *work,
                         es_stream_result *result)
{
    es_request request = es_request_defaults(model);
    request.sampling = es_sampling_defaults(); /* greedy, whatever the model recommends */
    request.prompt = work->ids;
    request.prompt_count = (size_t)work->count;
    request.max_tokens = s->greedy != ES_UNSET ? s->greedy : 0;
    request.ignore_eos = true;
    request.logprobs = true;
    request.on_logits = on_logits;
    request.user = work;
    ES_TRY(es_stream_answer(stream, engine, &request, NULL, result));
    if (result->interrupted) return es_fail(ES_CANCELLED, "stopped");
    if (work->file_status != ES_OK)
        return es_fail(work->file_status, "%s", work->file_message ? work->file_message : "the logits cannot be written");
    es_logits_file *file = work->file;
    work->file = NULL;
    return file ? es_logits_file_commit(file) : ES_OK;
}

typedef struct summary {
    int64_t scored;
    double sum, mean, perplexity;
} summary;

static summary summarise(const scoring *work)
{
    summary out = {.scored = work->count - 1};
    for (int64_t i = 1; i < work->count; i++) out.sum += work->logprobs[i];
    out.mean = out.scored ? out.sum / (double)out.scored : 0;
    out.perplexity = exp(-out.mean);
    return out;
}

/* A token's bytes for people: quoted, with what is no printable ASCII or UTF-8 escaped as JSON would. */
static json_t *token_text(const es_tokenizer *tokenizer, es_token token)
{
    size_t bytes = 0;
    const char *piece = tokenizer ? es_tokenizer_piece(tokenizer, token, &bytes) : NULL;
    if (!piece) return json_null();
    json_t *text = json_stringn(piece, bytes);
    if (text) return text;
    es_text escaped = {0}; /* part of a character */
    for (size_t i = 0; i < bytes; i++) es_text_printf(&escaped, "<0x%02X>", (unsigned char)piece[i]);
    text = escaped.failed ? NULL : json_stringn(escaped.data, escaped.bytes);
    es_text_free(&escaped);
    return text ? text : json_null();
}

/* JSON knows no infinity. */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static es_status print_json(const settings *s, const es_model *model, es_engine *engine, const scoring *work,
                            const es_stream_result *result)
{
    const summary sum = summarise(work);
    const es_tokenizer *tokenizer = es_model_tokenizer(model);
    const es_engine_info *info = es_engine_get_info(engine);
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:f, s:I}", "model",
                               es_model_get_info(model)->name, "numeric", es_numeric_name(info->numeric), "kv_type",
                               es_kv_type_name(info->kv_type), "fingerprint", info->fingerprint, "threads", info->threads,
                               "chunk", info->chunk, "tokens",
                               (json_int_t)work->count, "scored", (json_int_t)sum.scored, "logprob_sum",
                               number_or_null(sum.sum), "logprob_mean", number_or_null(sum.mean), "perplexity",
                               number_or_null(sum.perplexity), "seconds", result->prompt_seconds, "not_finite",
                               (json_int_t)work->not_finite);
    if (s->logits) json_object_set_new(object, "logits", json_string(s->logits));
    if (s->tokens) {
        json_t *list = json_array();
        for (int64_t i = 0; i < work->count; i++)
            json_array_append_new(list, json_pack("{s:I, s:i, s:o, s:o}", "position", (json_int_t)i, "token",
                                                  (int)work->ids[i], "text", token_text(tokenizer, work->ids[i]),
                                                  "logprob", i ? number_or_null(work->logprobs[i]) : json_null()));
        json_object_set_new(object, "token_logprobs", list);
    }
    if (s->greedy != ES_UNSET) {
        json_t *tokens = json_array(), *logprobs = json_array();
        for (size_t i = 0; i < result->token_count; i++) {
            json_array_append_new(tokens, json_integer(result->tokens[i]));
            json_array_append_new(logprobs, number_or_null((double)result->logprobs[i]));
        }
        json_object_set_new(object, "greedy", tokens);
        json_object_set_new(object, "greedy_logprobs", logprobs);
    }
    if (!object) return es_fail(ES_INTERNAL, "the score could not be written as JSON");
    json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(object);
    return ES_OK;
}

static void print_tokens(const es_model *model, const scoring *work)
{
    printf("%8s %8s %12s  %s\n", "position", "token", "logprob", "text");
    for (int64_t i = 0; i < work->count; i++) {
        json_t *text = token_text(es_model_tokenizer(model), work->ids[i]);
        char *quoted = json_is_string(text) ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
        if (i) printf("%8" PRId64 " %8d %12.6f  %s\n", i, work->ids[i], work->logprobs[i], quoted ? quoted : "");
        else printf("%8" PRId64 " %8d %12s  %s\n", i, work->ids[i], "", quoted ? quoted : "");
        free(quoted);
        json_decref(text);
    }
}

static void print_table(const settings *s, const es_model *model, es_engine *engine, const scoring *work,
                        const es_stream_result *result)
{
    const summary sum = summarise(work);
    if (s->tokens) print_tokens(model, work);
    if (s->greedy != ES_UNSET) {
        fputs("greedy:", stdout);
        for (size_t i = 0; i < result->token_count; i++) printf(" %d", result->tokens[i]);
        putchar('\n');
    }
    printf("tokens: %" PRId64 ", scored: %" PRId64 ", numeric mode: %s, keys and values: %s\n", work->count, sum.scored,
           es_numeric_name(es_engine_get_info(engine)->numeric), es_kv_type_name(es_engine_get_info(engine)->kv_type));
    if (sum.scored) printf("log-probability: %.6f, mean: %.6f, perplexity: %.6f\n", sum.sum, sum.mean, sum.perplexity);
    if (s->logits) printf("logits of %" PRId64 " positions: %s\n", work->count - work->file_from, s->logits);
}

static es_status score_with(const settings *s, const es_model *model, es_stream *stream, es_engine *engine, scoring *work)
{
    es_stream_result result = {.prompt_tokens = 0};
    es_status status = compute(s, stream, engine, model, work, &result);
    if (status == ES_OK && s->json) status = print_json(s, model, engine, work, &result);
    else if (status == ES_OK) print_table(s, model, engine, work, &result);
    es_stream_result_free(&result);
    if (status == ES_OK && work->not_finite)
        status = es_fail(ES_INTERNAL, "%" PRId64 " logits are NaN or infinite", work->not_finite);
    return status;
}

static es_status score_model(const settings *s, es_engine_options *options, const es_model *model)
{
    es_token *ids = NULL;
    size_t count = 0;
    es_engine *engine = NULL;
    es_stream *stream = NULL;
    ES_TRY(read_ids(s, model, &ids, &count));
    scoring work = {.ids = ids, .count = (int64_t)count, .logprobs = calloc(count, sizeof(double))};
    es_status status = work.logprobs ? open_logits(s, model, &work) : es_fail(ES_NO_MEMORY, "out of memory");
    /* Room for exactly this run: no more memory than it needs. */
    if (!options->context) options->context = work.count + (s->greedy != ES_UNSET ? s->greedy : 1);
    if (status == ES_OK) status = es_stream_open(&stream);
    if (status == ES_OK) status = es_engine_open(model, options, &engine);
    if (status == ES_OK) status = score_with(s, model, stream, engine, &work);
    if (engine) es_engine_close(engine);
    es_stream_close(stream);
    es_logits_file_abandon(work.file);
    free(work.file_message);
    free(work.logprobs);
    free(ids);
    return status;
}

static int score(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_score, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (!s.text == !s.ids) return es_command_refuse(&es_command_score, "one of --text FILE and --ids FILE says what to score");
    if (s.last != ES_UNSET && !s.logits) return es_command_refuse(&es_command_score, "--last goes with --logits");
    if (!s.engine.numeric) s.engine.numeric = "f32";

    es_engine_options options;
    es_model *model = NULL;
    es_status status = es_engine_settings_apply(&s.engine, &options);
    if (!options.parallel) options.parallel = 1;
    if (status == ES_OK) status = es_model_open(s.model.path, &model);
    if (status == ES_OK) status = score_model(&s, &options, model);
    const int code = status == ES_OK ? 0 : es_command_fail(&es_command_score, status);
    if (model) es_model_close(model);
    return code;
}

const es_command es_command_score = {
    "score", "log-probabilities and perplexity of a text or of token numbers",
    "Each token is scored after those before it; the first has none before it and is not scored. Logits are those of the "
    "engine that serves, in numeric mode f32 unless --numeric says otherwise; the log-softmax is taken in float64.",
    groups, score};
