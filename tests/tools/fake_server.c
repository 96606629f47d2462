/* fake_server.c: the HTTP server in front of an engine that is only arithmetic (tests/fake_backend.h), for tests of the
 * protocol that need no model.
 *
 *   fake_server [step_us=200] [capacity=512] [grace=30] [strict=0] [context=4096] [output_limit=4194304] [tools=auto] [reasoning=auto]
 *
 * Prints its address; ends on SIGTERM as the real one does. */
#include <inttypes.h>
#include <stdio.h>

#include "fake_backend.h"
#include "serve/server.h"

int main(int argc, char **argv)
{
    static fake_backend fake;
    const es_backend backend = fake_open(&fake);
    es_server_options options = es_server_default_options();
    options.port = 0;
    options.signals = true;
    static char tools[32], reasoning[32];
    for (int i = 1; i < argc; i++) {
        double grace;
        int strict;
        if (sscanf(argv[i], "step_us=%d", &fake.step_microseconds) == 1) continue;
        if (sscanf(argv[i], "capacity=%d", &fake.capacity) == 1) continue;
        if (sscanf(argv[i], "context=%" SCNd64, &fake.info.context) == 1) continue;
        if (sscanf(argv[i], "output_limit=%zu", &options.http.output_limit) == 1) continue;
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
    es_server *server;
    if (es_server_open(&backend, &options, &server) != ES_OK) {
        fprintf(stderr, "fake_server: %s\n", es_error_message());
        return 1;
    }
    fake_start(&fake);
    puts(es_server_url(server));
    fflush(stdout);
    const es_status status = es_server_run(server);
    fake_close(&fake);
    es_server_close(server);
    return status == ES_OK ? 0 : 1;
}
