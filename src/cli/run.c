/* run.c: ask a model. One answer to -p, -f or what a pipe brings, or a conversation when a person sits at a terminal. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/form.h"
#include "cli/gate.h"
#include "device/device.h"
#include "cli/input.h"
#include "cli/messages.h"
#include "text/answer_format.h"
#include "text/grammar_compose.h"

typedef struct settings {
    es_model_settings model;
    es_engine_settings engine;
    es_sampling_settings sampling;
    const char *prompt, *file, *system, *thinking, *grammar_file, *json_schema;
    bool raw, json, verbose, no_history;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option rows[] = {
    {"prompt", 'p', ES_OPTION_TEXT, "TEXT", FIELD(prompt), .help = "what to answer"},
    {"file", 'f', ES_OPTION_TEXT, "FILE", FIELD(file), .help = "read the prompt from FILE; - is standard input"},
    {"system", 0, ES_OPTION_TEXT, "TEXT", FIELD(system), .help = "instructions that the model is told first"},
    {"raw", 0, ES_OPTION_FLAG, NULL, FIELD(raw), .help = "go on with the text as it stands, without a chat template"},
    {"thinking", 0, ES_OPTION_CHOICE, "on|off", FIELD(thinking),
     .help = "let the model think first, where its template knows of it [the template's]"},
    {"grammar-file", 0, ES_OPTION_TEXT, "FILE", FIELD(grammar_file),
     .help = "the answer follows the GBNF grammar in FILE (docs/api.md)"},
    {"json-schema", 0, ES_OPTION_TEXT, "FILE", FIELD(json_schema),
     .help = "the answer is JSON that follows the schema in FILE (docs/api.md)"},
    {"json", 0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "print one JSON object with the answer and its figures"},
    {"no-history", 0, ES_OPTION_FLAG, NULL, FIELD(no_history),
     .help = "in a conversation: do not keep what is typed for the arrow keys of the next one"},
    {"verbose", 'v', ES_OPTION_FLAG, NULL, FIELD(verbose), .help = "print figures (tokens per second) on standard error"},
    {0}};
#undef FIELD
static const es_option_group groups[] = {{NULL, rows, 0},
                                         {"Model", es_model_options, offsetof(settings, model)},
                                         {"Sampling", es_sampling_option_rows, offsetof(settings, sampling)},
                                         {"Engine", es_engine_option_rows, offsetof(settings, engine)},
                                         {0}};

/* What the callbacks of one answer share. */
typedef struct screen {
    bool live, shown;
    es_saying *saying;
    es_status status; /* of saying it */
} screen;

static void clear_progress(screen *s)
{
    if (s->shown) fputs("\r\033[K", stderr);
    s->shown = false;
}

static void print_text(void *user, const char *text, size_t bytes)
{
    screen *s = user;
    clear_progress(s);
    if (s->status == ES_OK) s->status = es_saying_add(s->saying, text, bytes);
}

static void print_progress(void *user, int64_t done, int64_t total)
{
    screen *s = user;
    if (!s->live || total < 256) return;
    fprintf(stderr, "\r\033[Kreading the prompt: %" PRId64 " of %" PRId64 " tokens", done, total);
    s->shown = true;
}

/* The form that the answer must have; it may stand behind reasoning that the prompt or the model opens. `form` is the caller's. */
static es_status set_form(const es_asking *asking, es_answer_format format, const char *prompt, es_text *form, es_request *request)
{
    if (!asking->form || !asking->form->bytes) return ES_OK;
    const bool off = asking->raw || (asking->thinking && strcmp(asking->thinking, "off") == 0);
    es_text_append(form, asking->form->data, asking->form->bytes);
    if (!off && es_answer_may_reason(format, prompt)) es_grammar_allow_thinking(form);
    if (form->failed) return es_fail(ES_NO_MEMORY, "no memory for the answer's form");
    request->grammar = form->data;
    request->grammar_bytes = form->bytes;
    if (format.in_reasoning) request->grammar_after = "</think>";
    return ES_OK;
}

es_status es_ask(const es_asking *asking, const char *prompt, size_t bytes, bool quiet, es_saying *saying, es_stream_result *result)
{
    const es_tokenizer *tokenizer = es_model_tokenizer(asking->model);
    const unsigned flags = asking->raw ? ES_ENCODE_SPECIAL | ES_ENCODE_BOS : ES_ENCODE_SPECIAL;
    es_token *tokens;
    size_t count;
    ES_TRY(es_tokenizer_encode(tokenizer, prompt, bytes, flags, &tokens, &count));
    if (count == 0) {
        free(tokens);
        return es_fail(ES_INVALID, "the prompt is empty");
    }
    es_request request = es_request_defaults(asking->model);
    es_sampling_settings_apply(asking->sampling, &request);
    request.prompt = tokens;
    request.prompt_count = count;
    es_answer_format format = asking->format;
    format.in_reasoning = !asking->raw && es_answer_prompt_reasons(prompt);
    es_text form = {0};
    es_status status = set_form(asking, format, prompt, &form, &request);
    if (status == ES_OK) status = es_saying_open(format, asking->live, quiet, saying);
    if (status != ES_OK) {
        es_text_free(&form);
        free(tokens);
        return status;
    }
    screen s = {.live = asking->live && isatty(STDERR_FILENO), .saying = saying};
    const es_stream_sink sink = {print_text, print_progress, &s};
    status = es_stream_answer(asking->stream, asking->engine, &request, &sink, result);
    clear_progress(&s);
    es_text_free(&form);
    free(tokens);
    const es_status said = status == ES_OK && s.status == ES_OK ? es_saying_finish(saying) : s.status;
    if (status == ES_OK && said != ES_OK) {
        es_stream_result_free(result);
        status = said;
    }
    if (status != ES_OK) es_saying_free(saying);
    return status;
}

static double per_second(int64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static const char *finish_name(es_finish finish)
{
    return finish == ES_FINISH_STOP ? "stop" : finish == ES_FINISH_LENGTH ? "length" : "cancelled";
}

void es_print_figures(const es_stream_result *result)
{
    const int64_t computed = result->prompt_tokens - result->cached_tokens;
    fprintf(stderr, "[prompt %" PRId64 " tokens", result->prompt_tokens);
    if (result->cached_tokens) fprintf(stderr, ", %" PRId64 " of them cached", result->cached_tokens);
    fprintf(stderr, ", %.1f/s; answer %" PRId64 " tokens, %.1f/s; %s]\n", per_second(computed, result->prompt_seconds),
            result->completion_tokens, per_second(result->completion_tokens, result->completion_seconds),
            finish_name(result->finish));
}

static es_status print_json(const es_asking *asking, const es_saying *said, const es_stream_result *result)
{
    const es_engine_info *info = es_engine_get_info(asking->engine);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s%, s:s, s:I, s:I, s:I, s:f, s:f}", "model", es_model_get_info(asking->model)->name, "numeric",
        es_numeric_name(info->numeric), "kv_type", es_kv_type_name(info->kv_type), "fingerprint", info->fingerprint,
        "text", said->answer.data ? said->answer.data : "",
        said->answer.bytes, "finish_reason", finish_name(result->finish), "prompt_tokens", (json_int_t)result->prompt_tokens,
        "cached_tokens", (json_int_t)result->cached_tokens, "completion_tokens", (json_int_t)result->completion_tokens,
        "prompt_seconds", result->prompt_seconds, "completion_seconds", result->completion_seconds);
    if (!object) return es_fail(ES_INTERNAL, "the answer could not be written as JSON");
    if (said->reasoning.bytes) json_object_set_new(object, "reasoning", json_stringn(said->reasoning.data, said->reasoning.bytes));
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
    return ES_OK;
}

/* The prompt of a single answer as the model will read it. */
static es_status read_prompt(const settings *s, const es_asking *asking, es_text *out)
{
    es_text text = {0};
    es_status status = ES_OK;
    if (s->prompt) es_text_puts(&text, s->prompt);
    else status = es_read_input(s->file ? s->file : "-", &text);
    if (status == ES_OK && text.failed) status = es_fail(ES_NO_MEMORY, "out of memory");
    if (status == ES_OK && !text.bytes) status = es_fail(ES_INVALID, "the prompt is empty");
    if (status != ES_OK || asking->raw) {
        *out = text;
        return status;
    }
    /* A file's last newline is the file's, not the question's. */
    while (!s->prompt && text.bytes && text.data[text.bytes - 1] == '\n') text.data[--text.bytes] = '\0';
    es_messages messages;
    if (memchr(text.data, '\0', text.bytes)) {
        status = es_fail(ES_INVALID, "the prompt holds a NUL byte; --raw takes any bytes");
    } else if ((status = es_messages_open(s->system, s->thinking, &messages)) == ES_OK) {
        status = es_messages_add(&messages, "user", text.data);
        if (status == ES_OK) status = es_messages_render(&messages, asking->model, out);
        es_messages_close(&messages);
    }
    es_text_free(&text);
    return status;
}

static es_status answer_once(const settings *s, const es_asking *asking, int *code)
{
    es_text prompt = {0};
    es_stream_result result = {.prompt_tokens = 0};
    es_saying said = {.parser = NULL};
    es_status status = read_prompt(s, asking, &prompt);
    if (status == ES_OK) status = es_ask(asking, prompt.data, prompt.bytes, s->json, &said, &result);
    es_text_free(&prompt);
    if (status != ES_OK) return status;
    if (s->json) status = print_json(asking, &said, &result);
    if (asking->figures) es_print_figures(&result);
    if (result.interrupted) *code = 130; /* as a shell reports SIGINT */
    es_stream_result_free(&result);
    es_saying_free(&said);
    return status;
}

static es_status render(void *model, const char *variables_json, char **text)
{
    return es_model_render_chat(model, variables_json, text);
}

/* True when a person is there to talk. */
static bool wants_chat(const settings *s)
{
    return !s->prompt && !s->file && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static es_status open_all(const settings *s, es_model **model, es_asking *asking)
{
    es_engine_options options;
    ES_TRY(es_engine_settings_apply(&s->engine, &options));
    if (!options.parallel) options.parallel = 1;
    ES_TRY(es_model_open(s->model.path, model));
    asking->model = *model;
    if (!es_model_tokenizer(*model))
        return es_fail(ES_UNSUPPORTED, "%s has no tokenizer; evenshare score --ids FILE --greedy N goes on from token numbers",
                       es_model_get_info(*model)->path);
    if (!es_model_has_chat(*model)) asking->raw = true;
    if (!asking->raw) asking->format = es_answer_format_find(render, *model);
    if (asking->raw && s->system) return es_fail(ES_INVALID, "--system needs a chat template, and there is none in use");
    if (asking->raw && wants_chat(s))
        return es_fail(ES_INVALID, "a conversation needs a chat template; give a text to go on from with -p, -f or a pipe");
    options.device = es_device_resolve(options.device);
    ES_TRY(es_gate_kernels(s->engine.allow_slow));
    ES_TRY(es_gate_device(options.device));
    ES_TRY(es_stream_open(&asking->stream));
    return es_engine_open(*model, &options, &asking->engine);
}

static int run(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_run, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (s.prompt && s.file) return es_command_refuse(&es_command_run, "--prompt and --file cannot both be the prompt");
    if (wants_chat(&s) && s.json) return es_command_refuse(&es_command_run, "--json needs a prompt: -p, -f or a pipe");

    es_model *model = NULL;
    es_text form = {0};
    es_asking asking = {.command = &es_command_run, .sampling = &s.sampling, .system = s.system, .thinking = s.thinking, .forget = s.no_history,
                        .form = &form, .raw = s.raw, .live = isatty(STDOUT_FILENO)};
    asking.figures = s.verbose || (asking.live && isatty(STDERR_FILENO) && !s.json);
    int code = 0;
    es_status status = es_form_read(s.grammar_file, s.json_schema, &form);
    if (status == ES_OK) status = open_all(&s, &model, &asking);
    if (status == ES_OK && wants_chat(&s)) code = es_chat(&asking);
    else if (status == ES_OK) status = answer_once(&s, &asking, &code);
    if (status != ES_OK) code = es_command_fail(&es_command_run, status);
    if (asking.engine) es_engine_close(asking.engine);
    es_stream_close(asking.stream);
    if (model) es_model_close(model);
    es_text_free(&form);
    return code;
}

const es_command es_command_run = {
    "run", "ask a model: one answer, or a conversation on a terminal",
    "With -p, -f or text in a pipe there is one answer, written to standard output as it comes and nothing else. On a "
    "terminal a conversation begins: Ctrl-C stops an answer, Ctrl-D leaves, /help lists what else there is.\n\n"
    "What a model thinks before it answers (--thinking on) is dimmed on a terminal and left out of a pipe; --json has both.\n\n"
    "A model with a chat template is asked through it; --raw, or a model without one, goes on with the text as it stands.",
    groups, run};
