/* fake_server.c: the HTTP server in front of an engine that is only arithmetic (tests/fake_backend.h), for tests of the
 * protocol that need no model.
 *
 *   fake_server [step_us=200] [capacity=512] [grace=30] [strict=0] [context=4096] [output_limit=4194304] [tools=auto] [reasoning=auto]
 *               [write_seconds=60] [keep_alive=10] [processes=1]
 *
 * Prints its address; ends on SIGTERM as the real one does. With processes=2 the engine lives in a process of its own. */
#include <inttypes.h>
#include <stdio.h>

#include "fake_backend.h"
#include "serve/backend_process.h"
#include "serve/engine_host.h"
#include "serve/server.h"

static void close_fake(void *fake)
{
    fake_close(fake);
}

/* The engine's process: the same program with "engine" in front of its arguments. */
static int host(fake_backend *fake, const es_backend *backend)
{
    const es_engine_info info = {.parallel = fake->capacity, .queue = 0, .context = fake->info.context, .step_budget = 0.02,
                                 .device = "cpu", .instruction_set = "none", .fingerprint = "fp_fake"};
    fake_start(fake);
    return es_host_run(ES_CHILD_FD, backend, &info, close_fake, fake) == ES_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    static fake_backend fake;
    static char program[] = "fake_server", engine[] = "engine", *command[32] = {program, engine};
    es_backend backend = fake_open(&fake), words = backend;
    int processes = 1;
    es_server_options options = es_server_default_options();
    options.port = 0;
    options.signals = true;
    static char tools[32], reasoning[32];
    for (int i = 1; i < argc; i++) {
        double grace;
        int strict;
        if (i < 30) command[i + 1] = argv[i];
        if (strcmp(argv[i], engine) == 0) continue;
        if (sscanf(argv[i], "processes=%d", &processes) == 1) continue;
        if (sscanf(argv[i], "keep_alive=%lf", &options.keep_alive) == 1) continue;
        if (sscanf(argv[i], "step_us=%d", &fake.step_microseconds) == 1) continue;
        if (sscanf(argv[i], "capacity=%d", &fake.capacity) == 1) continue;
        if (sscanf(argv[i], "context=%" SCNd64, &fake.info.context) == 1) continue;
        if (sscanf(argv[i], "output_limit=%zu", &options.http.output_limit) == 1) continue;
        if (sscanf(argv[i], "write_seconds=%lf", &options.http.write_seconds) == 1) continue;
        if (sscanf(argv[i], "grace=%lf", &grace) == 1) options.grace = grace;
        else if (sscanf(argv[i], "strict=%d", &strict) == 1) options.strict = strict != 0;
        else if (sscanf(argv[i], "tools=%31s", tools) == 1) options.tool_parser = tools;
        else if (sscanf(argv[i], "reasoning=%31s", reasoning) == 1) options.reasoning_parser = reasoning;
        else {
            fprintf(stderr, "fake_server: %s?\n", argv[i]);
            return 2;
        }
    }
    if (fake.capacity > FAKE_MAX) fake.capacity = FAKE_MAX;
    if (argc > 1 && strcmp(argv[1], engine) == 0) return host(&fake, &backend);
    const es_process_options two = {.text = &words, .command = command, .step_deadline = 1};
    es_engine_info info;
    if (processes == 2 && es_backend_open_process(&two, &info, &backend) != ES_OK) {
        fprintf(stderr, "fake_server: %s\n", es_error_message());
        return 1;
    }
    es_server *server;
    if (es_server_open(&backend, &options, &server) != ES_OK) {
        fprintf(stderr, "fake_server: %s\n", es_error_message());
        return 1;
    }
    if (processes == 1) fake_start(&fake);
    puts(es_server_url(server));
    fflush(stdout);
    const es_status status = es_server_run(server);
    if (processes == 2) es_backend_close_process(&backend, 10);
    fake_close(&fake);
    es_server_close(server);
    return status == ES_OK ? 0 : 1;
}
