/* serve_engine.c: the engine's process of `evenshare serve`. It reads the same arguments, takes those that concern the model
 * and the engine, and answers the socket that it was started with. */
#include <stdio.h>

#include "base/log.h"
#include "cli/serve.h"
#include "serve/engine_host.h"

es_status es_serve_engine_open(const es_serve_settings *s, bool said, es_serve_engine *out)
{
    es_engine_options options;
    ES_TRY(es_engine_settings_apply(&s->engine, &options));
    if (s->queue != ES_UNSET) options.queue = (int)s->queue;
    if (said) es_log_set_level(ES_LOG_ERROR);
    const es_status status = es_model_open(s->model.path, &out->model);
    if (said) es_log_set_level(ES_LOG_NOTICE);
    ES_TRY(status);
    ES_TRY(es_engine_open(out->model, &options, &out->engine));
    return es_backend_open_engine(out->model, out->engine, &out->backend);
}

void es_serve_engine_stop(es_serve_engine *engine)
{
    if (engine->engine) es_engine_close(engine->engine);
    engine->engine = NULL;
}

void es_serve_engine_close(es_serve_engine *engine)
{
    es_serve_engine_stop(engine);
    es_backend_close_engine(&engine->backend);
    if (engine->model) es_model_close(engine->model);
    *engine = (es_serve_engine){0};
}

static void stop(void *user)
{
    es_serve_engine_stop(user);
}

int es_serve_engine_main(int argc, char **argv)
{
    es_serve_settings s;
    if (!es_host_is_started(ES_CHILD_FD)) {
        fputs("evenshare: this command is started by evenshare serve\n", stderr);
        return 2;
    }
    const int done = es_options_parse(&es_command_serve, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    es_serve_engine here = {0};
    es_status status = es_serve_engine_open(&s, true, &here);
    int code = 0;
    if (status != ES_OK)
        code = es_host_refuse(ES_CHILD_FD, status);
    else
        status = es_host_run(ES_CHILD_FD, &here.backend, es_engine_get_info(here.engine), stop, &here);
    es_serve_engine_close(&here);
    return status == ES_OK ? 0 : code ? code : 1;
}
