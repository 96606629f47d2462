/* serve.c: a model behind an OpenAI-style HTTP API.
 *
 * Opens the model's words, starts the engine in a process of its own (serve_engine.c) and puts the server in front
 * (src/serve/README.md walks on from there), says where it is reached, and serves until a signal. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/gate.h"
#include "cli/serve.h"
#include "device/device.h"
#include "serve/backend_process.h"
#include "serve/server.h"

static const es_option own[] = {
    {"host",                                                  0, ES_OPTION_TEXT, "ADDRESS", offsetof(es_serve_settings, host), .fallback = "127.0.0.1",
     .help = "where to listen; an address that other machines reach needs --api-key or --no-auth"},
    {"port",                                         'p', ES_OPTION_INT, "N", offsetof(es_serve_settings, port), .fallback = "8080", .min = 0, .max = 65535,
     .help = "port to listen on; 0 takes a free one"},
    {"alias",                             'a', ES_OPTION_TEXT, "NAME", offsetof(es_serve_settings, alias),
     .help = "the model's name in the API [the model's own]"},
    {"api-key",                                0, ES_OPTION_LIST, "KEY", offsetof(es_serve_settings, keys),
     .help = "a key that requests must carry; may be given several times (others on this machine can see it: prefer a file)"},
    {"api-key-file",                                                       0, ES_OPTION_TEXT, "FILE", offsetof(es_serve_settings, key_file), .environment = "ES_API_KEY_FILE",
     .help = "file with one such key on each line"},
    {"no-auth",            0, ES_OPTION_FLAG, NULL, offsetof(es_serve_settings, no_auth),
     .help = "let everyone who reaches the address use the server without a key"},
    {"strict",                                                    0, ES_OPTION_FLAG, NULL, offsetof(es_serve_settings, strict),
     .help = "refuse parameters and model names that are not known, instead of ignoring them"},
    {"reasoning-parser",                                                  0, ES_OPTION_TEXT, "NAME", offsetof(es_serve_settings, reasoning_parser), .fallback = "auto",
     .help = "how reasoning is told from the answer: auto (by the chat template), think (<think>...</think>) or none"},
    {"tool-parser",                                               0, ES_OPTION_TEXT, "NAME", offsetof(es_serve_settings, tool_parser), .fallback = "auto",
     .help = "how calls of tools are found: auto (by the chat template), xml (Qwen3.5, Qwen3-Coder), hermes, llama or none"},
    {"pooling",                                               0, ES_OPTION_TEXT, "HOW", offsetof(es_serve_settings, pooling), .fallback = "auto",
     .help = "how /v1/embeddings are made of a text's tokens: auto (as the model's file says), mean, last, cls or none"},
    {"cors",         0, ES_OPTION_TEXT, "ORIGIN", offsetof(es_serve_settings, cors),
     .help = "origin whose web pages may use the API (https://chat.example), or * for any"},
    {"grace",                                                 0, ES_OPTION_FLOAT, "SECONDS", offsetof(es_serve_settings, grace), .fallback = "30", .min = 0, .max = 1e6,
     .help = "how long accepted requests may take to end after SIGTERM"},
    {"queue",                                         0, ES_OPTION_INT, "N", offsetof(es_serve_settings, queue), .min = 1, .max = 1 << 20,
     .help = "requests that may wait for a place; more are turned away [1024]"},
    {"step-deadline",                             0, ES_OPTION_FLOAT, "SECONDS", offsetof(es_serve_settings, step_deadline), .min = 0, .max = 1e6,
     .help =
         "a step that takes longer is given up: the engine is killed and started anew; 0 is never [a hundred step budgets, 30 "
         "at least]"},
    {"keep-alive", 0, ES_OPTION_FLOAT, "SECONDS", offsetof(es_serve_settings, keep_alive), .fallback = "10", .min = 0.01,
     .max = 1e6, .help = "longest silence of a stream that waits for its next token"},
    {"one-process",                                               0, ES_OPTION_FLAG, NULL, offsetof(es_serve_settings, one_process),
     .help = "run the engine inside the server, for debugging: what ends one ends both"},
    {"json",                                         0, ES_OPTION_FLAG, NULL, offsetof(es_serve_settings, json),
     .help = "when ready, print one line of JSON with the address to standard output"},
    {0                            }
};
static const es_option_group groups[] = {
    {"Model",                     es_model_options, offsetof(es_serve_settings, model)},
    {"Server", own, 0},
    {"Engine",                           es_engine_option_rows, offsetof(es_serve_settings, engine)},
    {0                       }
};

enum { KEYS_MAX = 1024, KEY_FILE_MAX = 1 << 20 };
#define CLOSE_SECONDS 10.0 /* for the engine's process to end by itself */

/* The keys of the command line and of the file, whose text they point into. */
typedef struct key_ring {
    const char *keys[KEYS_MAX];
    size_t count;
    char *text;
} key_ring;

static es_status read_keys(const es_serve_settings *s, key_ring *ring)
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
    es_serve_engine engine; /* with --one-process */
    es_model *model;
    es_backend text, backend;
    es_engine_info info;
    es_server *server;
} service;

/* This program again, with the same arguments but another command. */
static es_status open_process(const es_serve_settings *s, char *const *command, service *out)
{
    ES_TRY(es_model_open(s->model.path, &out->model));
    ES_TRY(es_backend_open_text(out->model, &out->text));
    const double deadline = isnan(s->step_deadline) ? 0 : s->step_deadline > 0 ? s->step_deadline : -1;
    const es_process_options options = {
        .text = &out->text, .check = es_backend_check_text, .command = command, .step_deadline = deadline};
    return es_backend_open_process(&options, &out->info, &out->backend);
}

static es_status open_here(const es_serve_settings *s, service *out)
{
    ES_TRY(es_serve_engine_open(s, false, &out->engine));
    out->backend = out->engine.backend;
    out->info = *es_engine_get_info(out->engine.engine);
    return ES_OK;
}

static es_status open_service(const es_serve_settings *s, const es_server_options *options, char *const *command, service *out)
{
    es_engine_options engine;
    ES_TRY(es_engine_settings_apply(&s->engine, &engine));
    ES_TRY(es_server_check_options(options));
    ES_TRY(es_gate_kernels(s->engine.allow_slow));
    ES_TRY(es_gate_device(es_device_resolve(engine.device)));
    ES_TRY(s->one_process ? open_here(s, out) : open_process(s, command, out));
    ES_TRY(es_gate_budget(&out->info, engine.step_budget, s->engine.allow_slow));
    return es_server_open(&out->backend, options, &out->server);
}

static void close_service(service *open)
{
    if (open->engine.model)
        es_serve_engine_stop(&open->engine);
    else
        es_backend_close_process(&open->backend, CLOSE_SECONDS);
    es_server_close(open->server);
    es_serve_engine_close(&open->engine);
    es_backend_close_text(&open->text);
    if (open->model) es_model_close(open->model);
}

static void announce(const es_serve_settings *s, const service *open)
{
    const char *url = es_server_url(open->server);
    const char *name = s->alias ? s->alias : open->backend.info(open->backend.self)->model;
    const es_engine_info *info = &open->info;
    es_log(ES_LOG_NOTICE, "%s at %s/v1, %lld tokens of context, %d sequences at once (Ctrl-C stops)", name, url,
           (long long)info->context, info->parallel);
    es_log(ES_LOG_NOTICE, "numeric mode %s, keys and values in %s, on %s, %d threads; a decode step takes %.1f ms, the step budget "
           "is %.0f ms%s", es_numeric_name(info->numeric), es_kv_type_name(info->kv_type), info->instruction_set, info->threads,
           info->decode_seconds * 1e3, info->step_budget * 1e3, info->step_budget > 0 ? "" : " (no bound)");
    if (!s->json) return;
    json_t *line = json_pack("{s:s, s:s, s:I, s:i, s:s, s:s, s:i}", "url", url, "model", name, "context", (json_int_t)info->context,
                             "parallel", info->parallel, "numeric", es_numeric_name(info->numeric), "kv_type",
                             es_kv_type_name(info->kv_type), "pid", (int)getpid());
    if (line) json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    putchar('\n');
    fflush(stdout);
}

/* "serve ARGUMENTS" becomes "evenshare engine ARGUMENTS"; the array is the caller's to free. */
static char **engine_command(int argc, char **argv)
{
    static char program[] = "evenshare", engine[] = ES_SERVE_ENGINE;
    char **command = calloc((size_t)argc + 2, sizeof *command);
    if (!command) return NULL;
    command[0] = program;
    command[1] = engine;
    for (int i = 1; i < argc; i++) command[i + 1] = argv[i];
    return command;
}

static int serve(int argc, char **argv)
{
    es_serve_settings s;
    const int done = es_options_parse(&es_command_serve, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    key_ring ring = {.count = 0};
    service open = {0};
    char **command = engine_command(argc, argv);
    es_status status = command ? read_keys(&s, &ring) : es_fail(ES_NO_MEMORY, "no memory for the engine's arguments");
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
    options.pooling = s.pooling;
    options.grace = s.grace;
    options.signals = true;
    options.keep_alive = s.keep_alive;
    raise_descriptor_limit();
    if (status == ES_OK) status = open_service(&s, &options, command, &open);
    if (status == ES_OK) {
        announce(&s, &open);
        status = es_server_run(open.server);
    }
    const int code = status == ES_OK ? 0 : es_command_fail(&es_command_serve, status);
    close_service(&open);
    free(command);
    free(ring.text);
    return code;
}

const es_command es_command_serve = {
    "serve", "answer OpenAI-style requests over HTTP",
    "The API is at /v1 under the address printed when the server is ready (docs/api.md). It listens to this machine only,\n"
    "unless --host says otherwise.\n"
    "\n"
    "SIGTERM, SIGINT and SIGHUP let accepted requests end (--grace), a second one ends them at once.\n"
    "\n"
    "The engine runs in a process of its own. When it dies, or a step passes its deadline, every accepted request gets an\n"
    "error and the engine is started anew; /health says so meanwhile.",
    groups, serve};
