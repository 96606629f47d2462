/* serve.c: a model behind an OpenAI-style HTTP API.
 *
 * Opens the model, the engine over it and the server in front (src/serve/README.md walks on from there), says where it is
 * reached, and serves until a signal. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/gate.h"
#include "cli/settings.h"
#include "serve/server.h"

typedef struct settings {
    es_model_settings model;
    es_engine_settings engine;
    const char *host, *alias, *key_file, *cors, *reasoning_parser, *tool_parser;
    int64_t port;
    double grace;
    es_option_list keys;
    bool no_auth, strict, json;
} settings;

static const es_option own[] = {
    {"host", 0, ES_OPTION_TEXT, "ADDRESS", offsetof(settings, host), .fallback = "127.0.0.1",
     .help = "where to listen; an address that other machines reach needs --api-key or --no-auth"},
    {"port", 'p', ES_OPTION_INT, "N", offsetof(settings, port), .fallback = "8080", .min = 0, .max = 65535,
     .help = "port to listen on; 0 takes a free one"},
    {"alias", 'a', ES_OPTION_TEXT, "NAME", offsetof(settings, alias), .help = "the model's name in the API [the model's own]"},
    {"api-key", 0, ES_OPTION_LIST, "KEY", offsetof(settings, keys),
     .help = "a key that requests must carry; may be given several times (others on this machine can see it: prefer a file)"},
    {"api-key-file", 0, ES_OPTION_TEXT, "FILE", offsetof(settings, key_file), .environment = "ES_API_KEY_FILE",
     .help = "file with one such key on each line"},
    {"no-auth", 0, ES_OPTION_FLAG, NULL, offsetof(settings, no_auth),
     .help = "let everyone who reaches the address use the server without a key"},
    {"strict", 0, ES_OPTION_FLAG, NULL, offsetof(settings, strict),
     .help = "refuse parameters and model names that are not known, instead of ignoring them"},
    {"reasoning-parser", 0, ES_OPTION_TEXT, "NAME", offsetof(settings, reasoning_parser), .fallback = "auto",
     .help = "how reasoning is told from the answer: auto (by the chat template), think (<think>...</think>) or none"},
    {"tool-parser", 0, ES_OPTION_TEXT, "NAME", offsetof(settings, tool_parser), .fallback = "auto",
     .help = "how calls of tools are found: auto (by the chat template), xml (Qwen3.5, Qwen3-Coder), hermes, llama or none"},
    {"cors", 0, ES_OPTION_TEXT, "ORIGIN", offsetof(settings, cors),
     .help = "origin whose web pages may use the API (https://chat.example), or * for any"},
    {"grace", 0, ES_OPTION_FLOAT, "SECONDS", offsetof(settings, grace), .fallback = "30", .min = 0, .max = 1e6,
     .help = "how long accepted requests may take to end after SIGTERM"},
    {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json),
     .help = "when ready, print one line of JSON with the address to standard output"},
    {0}};
static const es_option_group groups[] = {
    {"Model", es_model_options, offsetof(settings, model)},
    {"Server", own, 0},
    {"Engine", es_engine_option_rows, offsetof(settings, engine)},
    {0}};

enum { KEYS_MAX = 1024, KEY_FILE_MAX = 1 << 20 };

/* The keys of the command line and of the file, whose text they point into. */
typedef struct key_ring {
    const char *keys[KEYS_MAX];
    size_t count;
    char *text;
} key_ring;

static es_status read_keys(const settings *s, key_ring *ring)
{
    for (size_t i = 0; i < s->keys.count; i++) ring->keys[ring->count++] = s->keys.items[i];
    if (!s->key_file) return ES_OK;
    ES_TRY(es_file_read(s->key_file, KEY_FILE_MAX, &ring->text, NULL));
    const size_t before = ring->count;
    char *rest = ring->text;
    for (char *line; (line = strsep(&rest, "\r\n"));) {
        if (!*line) continue;
        if (ring->count == KEYS_MAX) return es_fail(ES_INVALID, "%s: more than %d keys", s->key_file, KEYS_MAX);
        ring->keys[ring->count++] = line;
    }
    if (ring->count == before) return es_fail(ES_INVALID, "%s: holds no key", s->key_file);
    return ES_OK;
}

/* A connection takes a descriptor; shells commonly allow 1,024, and more on demand. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) es_log(ES_LOG_DEBUG, "the limit of open files stays as it is");
}

/* What is open; closed in the order that keeps every pointer alive while it can be used. */
typedef struct service {
    es_model *model;
    es_engine *engine;
    es_backend backend;
    es_server *server;
} service;

static es_status open_service(const settings *s, const es_server_options *options, service *out)
{
    es_engine_options engine_options;
    ES_TRY(es_engine_settings_apply(&s->engine, &engine_options));
    ES_TRY(es_server_check_options(options));
    ES_TRY(es_gate_kernels(s->engine.allow_slow));
    ES_TRY(es_model_open(s->model.path, &out->model));
    ES_TRY(es_engine_open(out->model, &engine_options, &out->engine));
    ES_TRY(es_backend_open_engine(out->model, out->engine, &out->backend));
    return es_server_open(&out->backend, options, &out->server);
}

static void close_service(service *open)
{
    if (open->engine) es_engine_close(open->engine);
    es_server_close(open->server);
    es_backend_close_engine(&open->backend);
    if (open->model) es_model_close(open->model);
}

static void announce(const settings *s, const service *open)
{
    const char *url = es_server_url(open->server);
    const char *name = s->alias ? s->alias : es_model_get_info(open->model)->name;
    const es_engine_info *info = es_engine_get_info(open->engine);
    es_log(ES_LOG_NOTICE, "%s at %s/v1, %lld tokens of context, %d sequences at once (Ctrl-C stops)", name, url,
           (long long)info->context, info->parallel);
    es_log(ES_LOG_NOTICE, "numeric mode %s on %s, %d threads; a decode step takes %.1f ms, the step budget is %.0f ms%s",
           es_numeric_name(info->numeric), info->instruction_set, info->threads, info->decode_seconds * 1e3,
           info->step_budget * 1e3, info->step_budget > 0 ? "" : " (no bound)");
    if (!s->json) return;
    json_t *line = json_pack("{s:s, s:s, s:I, s:i, s:s, s:i}", "url", url, "model", name, "context", (json_int_t)info->context,
                             "parallel", info->parallel, "numeric", es_numeric_name(info->numeric), "pid", (int)getpid());
    if (line) json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    putchar('\n');
    fflush(stdout);
}

static int serve(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_serve, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    key_ring ring = {.count = 0};
    service open = {0};
    es_status status = read_keys(&s, &ring);
    es_server_options options = es_server_default_options();
    options.host = s.host;
    options.port = (int)s.port;
    options.alias = s.alias;
    options.keys = ring.keys;
    options.key_count = ring.count;
    options.no_auth = s.no_auth;
    options.strict = s.strict;
    options.cors = s.cors;
    options.reasoning_parser = s.reasoning_parser;
    options.tool_parser = s.tool_parser;
    options.grace = s.grace;
    options.signals = true;
    raise_descriptor_limit();
    if (status == ES_OK) status = open_service(&s, &options, &open);
    if (status == ES_OK) {
        announce(&s, &open);
        status = es_server_run(open.server);
    }
    const int code = status == ES_OK ? 0 : es_command_fail(&es_command_serve, status);
    close_service(&open);
    free(ring.text);
    return code;
}

const es_command es_command_serve = {
    "serve", "answer OpenAI-style requests over HTTP",
    "The API is at /v1 under the address printed when the server is ready (docs/api.md). It listens to this machine only,\n"
    "unless --host says otherwise.\n"
    "\n"
    "SIGTERM and SIGINT let accepted requests end (--grace), a second one ends them at once.",
    groups, serve};
