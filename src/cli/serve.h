/* serve.h: what `evenshare serve` and the process of its engine share: their arguments are the same. */
#ifndef ES_CLI_SERVE_H
#define ES_CLI_SERVE_H

#include "cli/commands.h"
#include "cli/settings.h"
#include "serve/backend.h"

typedef struct es_serve_settings {
    es_model_settings model;
    es_engine_settings engine;
    const char *host, *alias, *key_file, *cors, *reasoning_parser, *tool_parser, *pooling;
    int64_t port, queue;
    double grace, step_deadline, keep_alive;
    es_option_list keys;
    bool no_auth, strict, json, one_process;
} es_serve_settings;

/** A model, its engine and the backend over both, in this process. */
typedef struct es_serve_engine {
    es_model *model;
    es_engine *engine;
    es_backend backend;
} es_serve_engine;

/** `said`: another process has already told what there is to tell of the model. */
es_status es_serve_engine_open(const es_serve_settings *settings, bool said, es_serve_engine *out);
/** End its requests; after that it sends no more events. */
void es_serve_engine_stop(es_serve_engine *engine);
/** Free what is left; a zeroed one is fine. */
void es_serve_engine_close(es_serve_engine *engine);

/** The command that is not in --help: `evenshare engine` with serve's arguments, started by serve. */
#define ES_SERVE_ENGINE "engine"
int es_serve_engine_main(int argc, char **argv);

#endif
