/* bench_stall.c: `evenshare bench stall`: what a long prompt does to those who are there already, as their clients see it.
 *
 * The phases `stall` and `behind` of `check` (src/check/load.c) do the asking; here they run for several lengths and several
 * times, and medians are told. A median of the runs' greatest gaps says what usually happens at worst; one run alone says what
 * the machine was doing. Without an address this program starts a server of its own. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/check.h"
#include "cli/bench.h"
#include "cli/settings.h"

typedef struct settings {
    const char *url, *key, *model, *served, *prompts, *numeric;
    int64_t runs, threads, context, short_prompt;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option own[] = {
    {"url",                            'u', ES_OPTION_TEXT, "URL", FIELD(url), .positional = true, .typed = true,
     .help = "a server that runs already, ours or another [one is started]"},
    {"api-key",                  0, ES_OPTION_TEXT, "KEY", FIELD(key), .environment = "OPENAI_API_KEY", .help = "the key it wants"},
    {"served",                      0, ES_OPTION_TEXT, "NAME", FIELD(served), .typed = true, .help = "which of its models [the first]"},
    {"prompts",                   0, ES_OPTION_TEXT, "LIST", FIELD(prompts), .fallback = "8K,32K",
     .help = "tokens of the long prompt, with commas between them; cut to what the context allows"},
    {"short",                                0, ES_OPTION_SIZE, "N", FIELD(short_prompt), .fallback = "100", .min = 16, .max = 1e6,
     .help = "tokens of the short prompt that comes behind a long one"},
    {"runs",              0, ES_OPTION_INT, "N", FIELD(runs), .fallback = "5", .min = 1, .max = 100, .help = "how often; medians are told"},
    {"json",                           0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "one JSON object instead of a table"},
    {0}
};
static const es_option server[] = {
    {"model",         'm', ES_OPTION_TEXT, "MODEL", FIELD(model), .help = "the model of a server that is started [the default one]"},
    {"threads", 't', ES_OPTION_INT, "N", FIELD(threads), .min = 1, .max = 4096, .help = "its threads [the CPUs]"},
    {"ctx",   'c', ES_OPTION_SIZE, "N", FIELD(context), .min = 1, .max = 1 << 30, .help = "its context [what fits]"},
    {"numeric",               0, ES_OPTION_TEXT, "MODE", FIELD(numeric), .help = "its numeric mode [auto]"},
    {0           }
};
#undef FIELD
static const es_option_group groups[] = {
    {NULL,                          own, 0},
    {"Server, where none is named",                            server, 0},
    {0}
};

static int stall(int argc, char **argv);
const es_command es_command_bench_stall = {
    "bench stall", "gaps of a running stream while a long prompt arrives",
    "Asks a server for a stream, alone and while a long prompt arrives, and for a short prompt, alone and behind a long one.\n"
    "Prompts are made-up sentences, others each time, so that no cache answers. Times are a client's: from request to chunk.",
    groups, stall};

/* ---- a server of our own ---- */

typedef struct child {
    pid_t id;
    char url[128];
} child;

static int list_arguments(const settings *s, const char *argument[16], char number[2][24])
{
    int n = 0;
    const char *const fixed[] = {"evenshare", "serve", "--port", "0", "--json"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) argument[n++] = fixed[i];
    if (s->model) argument[n++] = "--model", argument[n++] = s->model;
    if (s->numeric) argument[n++] = "--numeric", argument[n++] = s->numeric;
    const int64_t value[2] = {s->threads, s->context};
    const char *const name[2] = {"--threads", "--ctx"};
    for (int i = 0; i < 2; i++) {
        if (value[i] == ES_UNSET) continue;
        snprintf(number[i], 24, "%lld", (long long)value[i]);
        argument[n++] = name[i], argument[n++] = number[i];
    }
    argument[n] = NULL;
    return n;
}

/* Starts `evenshare serve` and waits for the line that tells its address. */
static es_status start_server(const settings *s, child *out)
{
    const char *argument[16];
    char number[2][24], line[4096] = "";
    int ends[2];
    list_arguments(s, argument, number);
    if (pipe(ends) != 0) return es_fail(ES_IO, "a pipe to the server cannot be had");
    out->id = fork();
    if (out->id == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody is left to stop it when this program is killed */
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv("/proc/self/exe", (char *const *)(uintptr_t)argument);
        _exit(127);
    }
    close(ends[1]);
    FILE *from = out->id > 0 ? fdopen(ends[0], "r") : NULL;
    const bool told = from && fgets(line, sizeof line, from);
    if (from)
        fclose(from);
    else
        close(ends[0]);
    json_t *ready = told ? json_loads(line, 0, NULL) : NULL;
    const char *url = json_string_value(json_object_get(ready, "url"));
    snprintf(out->url, sizeof out->url, "%s", url ? url : "");
    json_decref(ready);
    return out->url[0] ? ES_OK : es_fail(ES_IO, "the server did not start; its own words are above");
}

static void stop_server(child *c)
{
    if (c->id <= 0) return;
    kill(c->id, SIGTERM);
    waitpid(c->id, NULL, 0);
}

/* ---- measuring ---- */

enum { MOST_FIGURES = 2 * ES_TRIAL_FIGURES };

/* One length of prompt: each run's figures, under their names. */
typedef struct row {
    int64_t prompt;
    const char *name[MOST_FIGURES];
    es_numbers value[MOST_FIGURES];
    int figures;
} row;

static void keep(row *r, const es_trial_result *result)
{
    for (size_t f = 0; f < result->figures; f++) {
        int at = 0;
        while (at < r->figures && strcmp(r->name[at], result->figure[f].name) != 0) at++;
        if (at == MOST_FIGURES) return;
        if (at == r->figures) r->name[r->figures++] = result->figure[f].name;
        es_numbers_add(&r->value[at], result->figure[f].value);
    }
}

static es_status run_once(const settings *s, const char *url, row *r, char model[256])
{
    const es_trial_options options = {.url = url,
                                      .key = s->key,
                                      .model = s->served,
                                      .phases = "models,stall,behind",
                                      .no_timing = true,
                                      .prompt = r->prompt,
                                      .short_prompt = s->short_prompt};
    es_trial *trial;
    es_status status = ES_OK;
    ES_TRY(es_trial_open(&options, &trial));
    for (size_t i = 0; i < es_trial_count(trial) && status == ES_OK; i++) {
        const es_trial_result *result = es_trial_phase(trial, i);
        if (strcmp(result->name, "models") == 0) continue; /* it only tells the model's name */
        if (es_trial_unreachable(trial))
            status = es_fail(ES_IO, "%s does not answer", es_trial_url(trial));
        else if (result->verdict == ES_TRIAL_FAIL)
            status = es_fail(ES_INTERNAL, "%s: %s", result->name, result->note);
        else if (result->verdict == ES_TRIAL_UNSUPPORTED)
            fprintf(stderr, "%s: %s\n", result->name, result->note);
        if (status == ES_OK) keep(r, result);
    }
    snprintf(model, 256, "%s", es_trial_model(trial));
    es_trial_close(trial);
    return status;
}

static json_t *row_json(const row *r)
{
    json_t *figures = json_object(), *all = json_object();
    for (int f = 0; f < r->figures; f++) {
        json_t *values = json_array();
        for (size_t i = 0; i < r->value[f].count; i++) json_array_append_new(values, json_real(r->value[f].item[i]));
        json_object_set_new(figures, r->name[f],
                            json_pack("{s:f,s:o}", "median", es_numbers_quantile(&r->value[f], 0.5), "runs", values));
    }
    json_object_set_new(all, "prompt", json_integer(r->prompt));
    json_object_set_new(all, "figures", figures);
    return all;
}

static void print_row(const row *r, int64_t runs)
{
    printf("\na prompt of %lld tokens asked for; medians of %lld runs (least to greatest)\n", (long long)r->prompt,
           (long long)runs);
    for (int f = 0; f < r->figures; f++)
        printf("  %-28s %12.2f  (%.2f to %.2f)\n", r->name[f], es_numbers_quantile(&r->value[f], 0.5),
               es_numbers_quantile(&r->value[f], 0), es_numbers_max(&r->value[f]));
}

static es_status measure(const settings *s, const char *url, json_t *rows, char model[256])
{
    int64_t prompt[ES_BENCH_MOST_DEPTHS];
    int prompts;
    es_status status = es_bench_depths(s->prompts, prompt, &prompts);
    for (int i = 0; i < prompts && status == ES_OK; i++) {
        row r = {.prompt = prompt[i]};
        for (int64_t run = 0; run < s->runs && status == ES_OK; run++) status = run_once(s, url, &r, model);
        if (status == ES_OK && rows) json_array_append_new(rows, row_json(&r));
        if (status == ES_OK && !rows) print_row(&r, s->runs);
        for (int f = 0; f < r.figures; f++) es_numbers_free(&r.value[f]);
    }
    return status;
}

static int stall(int argc, char **argv)
{
    const es_command *command = &es_command_bench_stall;
    settings s;
    const int done = es_options_parse(command, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (s.url && (s.model || s.numeric || s.threads != ES_UNSET || s.context != ES_UNSET))
        return es_command_refuse(command,
                                 "--model, --threads, --ctx and --numeric are for a server that is started; one is named");
    child own_server = {0};
    char model[256] = "";
    json_t *machine = es_bench_machine(), *rows = s.json ? json_array() : NULL;
    es_status status = !machine || (s.json && !rows) ? es_fail(ES_NO_MEMORY, "no memory for the report") : ES_OK;
    if (status == ES_OK && !s.url) status = start_server(&s, &own_server);
    if (status == ES_OK) status = measure(&s, s.url ? s.url : own_server.url, rows, model);
    int code = status == ES_OK ? 0 : es_command_fail(command, status);
    stop_server(&own_server);
    if (status == ES_OK && rows) {
        json_t *all = json_pack("{s:O,s:s,s:s,s:I,s:O}", "machine", machine, "url", s.url ? s.url : "started here", "model",
                                model, "runs", (json_int_t)s.runs, "rows", rows);
        if (!es_bench_print(all)) code = 1;
    }
    json_decref(machine);
    json_decref(rows);
    return code;
}
