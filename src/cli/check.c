/* check.c: `evenshare check` tries what a server does, ours or any other that speaks the OpenAI API.
 *
 * The phases are in src/check/; here are the options, the lines a person reads meanwhile, and the files that are written. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check/check.h"
#include "cli/commands.h"
#include "cli/settings.h"

typedef struct settings {
    const char *url, *key, *model, *phases, *junit, *html;
    int64_t context, prompt, truncation, recall, parallel, overload;
    double limit;
    bool quick, no_timing, verbose, json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option own[] = {
    {"url", 'u', ES_OPTION_TEXT, "URL", FIELD(url), .positional = true, .fallback = "http://127.0.0.1:8080",
     .help = "the server's address, with or without /v1"},
    {"model", 'm', ES_OPTION_TEXT, "NAME", FIELD(model), .typed = true, .help = "which of its models [the first]"},
    {"api-key", 0, ES_OPTION_TEXT, "KEY", FIELD(key), .environment = "OPENAI_API_KEY",
     .help = "the key it wants (other users of this machine can see it: prefer the variable)"},
    {"phases", 0, ES_OPTION_TEXT, "LIST", FIELD(phases), .help = "only these, with commas between them [all]"},
    {"quick", 'q', ES_OPTION_FLAG, NULL, FIELD(quick), .help = "short prompts and answers: minutes become seconds"},
    {"no-timing", 0, ES_OPTION_FLAG, NULL, FIELD(no_timing),
     .help = "judge what the server does, not how fast; times are told"},
    {"prompt", 0, ES_OPTION_SIZE, "N", FIELD(prompt), .min = 64, .max = 1e7,
     .help = "tokens of the long prompts, cut to what the context allows [8K; quick 512]"},
    {"truncation", 0, ES_OPTION_SIZE, "N", FIELD(truncation), .min = 1, .max = 1e7,
     .help = "tokens of the answer that must arrive whole [8K; quick 128]"},
    {"recall", 0, ES_OPTION_SIZE, "N", FIELD(recall), .min = 64, .max = 1e7,
     .help = "the model must find a fact in so many tokens [what it finds is told, not judged]"},
    {"context", 0, ES_OPTION_SIZE, "N", FIELD(context), .min = 1, .max = 1e9,
     .help = "tokens of the server's context [as the server says]"},
    {"parallel", 0, ES_OPTION_INT, "N", FIELD(parallel), .fallback = "4", .min = 1, .max = 64,
     .help = "how many requests the server runs at once"},
    {"overload", 0, ES_OPTION_INT, "N", FIELD(overload), .fallback = "32", .min = 1, .max = 256,
     .help = "requests at once in the phase that overloads it"},
    {"limit", 0, ES_OPTION_FLOAT, "SECONDS", FIELD(limit), .min = 1, .max = 1e6,
     .help = "most time for any one phase [its own]"},
    {"json", 0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "one JSON object instead of text"},
    {"junit", 0, ES_OPTION_TEXT, "FILE", FIELD(junit), .help = "write the results as JUnit XML too"},
    {"html", 0, ES_OPTION_TEXT, "FILE", FIELD(html), .help = "write a page with plots too, one file, for a browser"},
    {"verbose", 'v', ES_OPTION_FLAG, NULL, FIELD(verbose),
     .help = "show each request and answer, text and all, on standard error"},
    {0}
};
#undef FIELD
static const es_option_group groups[] = {
    {NULL, own, 0},
    {0}
};

static int check(int argc, char **argv);
const es_command es_command_check = {
    "check", "try what an OpenAI-compatible server does",
    "Phases: alive, models, chat, stream, stop, truncation (a long prompt and a long answer arrive whole), overflow (what can "
    "never fit is refused), recall, concurrency, stall (a stream keeps running while a long prompt arrives), disconnect, "
    "repeatability, cache, malformed, overload. docs/check.md says what each one asks for.\n\n"
    "Each phase passes, fails, or is not supported by the server. The exit code is 0 when none failed, 1 when one did, 2 when "
    "the server cannot be reached or the command line cannot be used.",
    groups, check};

/* ---- what a person reads ---- */

static void trace(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* The figures that say most, one or two of each phase; the others are in the reports. */
static bool is_headline(const char *name)
{
    static const char *const names[] = {"answer_ms",
                                        "context_tokens",
                                        "first_token_ms",
                                        "completion_tokens",
                                        "prompt_tokens",
                                        "gap_median_ms",
                                        "gap_max_ms",
                                        "status",
                                        "found",
                                        "planted",
                                        "document_tokens",
                                        "together_tokens_per_s",
                                        "gap_alone_median_ms",
                                        "gap_during_max_ms",
                                        "rest_after_answer_ms",
                                        "rest_after_prompt_ms",
                                        "distinct_answers",
                                        "answers",
                                        "cached_tokens",
                                        "reused_share",
                                        "refused_well",
                                        "bodies",
                                        "answered",
                                        "refused"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void print_result(const es_trial_result *r, bool color)
{
    static const char *const words[] = {"-", "pass", "FAIL", "none"};
    static const char *const colors[] = {"", "\033[32m", "\033[1;31m", "\033[33m"};
    printf("%s%s%s  %-14s%8.1f s ", color ? colors[r->verdict] : "", words[r->verdict], color ? "\033[0m" : "", r->name,
           r->seconds);
    for (size_t i = 0; i < r->figures; i++)
        if (is_headline(r->figure[i].name)) printf(" %s=%.4g", r->figure[i].name, r->figure[i].value);
    putchar('\n');
    if (r->note[0]) printf("      %s\n", r->note);
    fflush(stdout);
}

static void print_running(const es_trial_result *r)
{
    fprintf(stderr, "\r\033[K...   %s: %s", r->name, r->about);
    fflush(stderr);
}

static void run_phases(es_trial *c, const settings *s)
{
    const bool live = !s->verbose && isatty(STDERR_FILENO), color = !s->json && isatty(STDOUT_FILENO);
    for (size_t i = 0; i < es_trial_count(c); i++) {
        if (live) print_running(es_trial_get(c, i));
        const es_trial_result *r = es_trial_phase(c, i);
        if (live) fputs("\r\033[K", stderr);
        if (!s->json) print_result(r, color);
        if (i == 0 && es_trial_unreachable(c)) return;
    }
}

/* ---- files ---- */

static es_status write_file(const char *path, const es_text *text)
{
    if (text->failed) return es_fail(ES_NO_MEMORY, "no memory for the report");
    FILE *file = fopen(path, "we");
    if (!file) return es_fail(ES_INVALID, "%s: cannot be written (%m)", path);
    const bool whole = fwrite(text->data, 1, text->bytes, file) == text->bytes;
    const bool closed = fclose(file) == 0;
    return whole && closed ? ES_OK : es_fail(ES_IO, "%s: could not be written whole (%m)", path);
}

static es_status write_reports(const es_trial *c, const settings *s)
{
    es_status status = ES_OK;
    es_text out = {0};
    if (s->junit) {
        es_trial_write_junit(c, &out);
        status = write_file(s->junit, &out);
    }
    es_text_clear(&out);
    if (status == ES_OK && s->html) {
        es_trial_write_html(c, &out);
        status = write_file(s->html, &out);
    }
    es_text_clear(&out);
    if (s->json) {
        es_trial_write_json(c, &out);
        if (out.data) fputs(out.data, stdout);
    }
    es_text_free(&out);
    return status;
}

static int check(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_check, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    const es_trial_options options = {.url = s.url,
                                      .key = s.key,
                                      .model = s.model,
                                      .phases = s.phases,
                                      .quick = s.quick,
                                      .no_timing = s.no_timing,
                                      .context = s.context,
                                      .prompt = s.prompt,
                                      .truncation = s.truncation,
                                      .recall = s.recall,
                                      .parallel = s.parallel,
                                      .overload = s.overload,
                                      .limit = s.limit > 0 ? s.limit : 0,
                                      .trace = s.verbose ? trace : NULL};
    es_trial *c;
    es_status status = es_trial_open(&options, &c);
    if (status != ES_OK) return es_command_fail(&es_command_check, status);
    run_phases(c, &s);
    const size_t failed = es_trial_tally(c, ES_TRIAL_FAIL);
    if (!s.json)
        printf("\nscore %.0f of 100: %zu passed, %zu failed, %zu not supported\n", es_trial_score(c),
               es_trial_tally(c, ES_TRIAL_PASS), failed, es_trial_tally(c, ES_TRIAL_UNSUPPORTED));
    status = write_reports(c, &s);
    const bool unreachable = es_trial_unreachable(c);
    int code = failed ? 1 : 0;
    if (unreachable) code = es_command_refuse(&es_command_check, "there is no server at %s", es_trial_url(c));
    if (status != ES_OK) code = es_command_fail(&es_command_check, status);
    es_trial_close(c);
    return code;
}
