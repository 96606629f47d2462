/* An engine in a process of its own: whatever becomes of it, each request ends once, and a new one comes.
 *
 * The engine is this program again (argument "engine"), with the arithmetic of fake_backend.h behind the socket. A prompt's
 * first token may tell it to die, to fall silent or to talk nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/log.h"
#include "fake_backend.h"
#include "serve/backend_process.h"
#include "serve/engine_host.h"

enum { KILL_YOURSELF = 1, FALL_SILENT, TALK_NONSENSE, KEYS = 64 };

/* ---- the engine's process ---- */

static es_status obey(void *self, uint64_t key, const es_request *request)
{
    if (request->prompt[0] == KILL_YOURSELF) raise(SIGKILL);
    if (request->prompt[0] == FALL_SILENT) raise(SIGSTOP);
    if (request->prompt[0] == TALK_NONSENSE && send(ES_CHILD_FD, "nonsense, not a message", 23, MSG_NOSIGNAL) < 0) _exit(9);
    return fake_submit(self, key, request);
}

static void stop(void *fake)
{
    fake_close(fake);
}

static int host(const char *how)
{
    static fake_backend fake;
    es_backend backend = fake_open(&fake);
    backend.submit = obey;
    if (strcmp(how, "refuse") == 0) return es_host_refuse(ES_CHILD_FD, es_fail(ES_NO_MEMORY, "the fake engine is too large"));
    if (strcmp(how, "exit") == 0) return 7;
    if (strcmp(how, "other") == 0) fake.info.vocabulary = 7;
    fake.step_microseconds = 2000;
    const es_engine_info info = {
        .parallel = 4, .queue = 4, .context = 4096, .device = "cpu", .instruction_set = "none", .fingerprint = "fp"};
    fake_start(&fake);
    return es_host_run(ES_CHILD_FD, &backend, &info, stop, &fake) == ES_OK ? 0 : 1;
}

/* ---- this side ---- */

static struct {
    fake_backend words;
    es_backend text, backend;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int tokens[KEYS], ends[KEYS];
    es_event last[KEYS];
    char message[KEYS][256];
} now;

static void on_event(void *user, const es_event *event)
{
    (void)user;
    const uint64_t key = event->request;
    assert_true(key < KEYS);
    pthread_mutex_lock(&now.lock);
    if (event->kind == ES_EVENT_TOKEN) now.tokens[key]++;
    if (event->kind == ES_EVENT_DONE || event->kind == ES_EVENT_ERROR) {
        now.ends[key]++;
        now.last[key] = *event;
        snprintf(now.message[key], sizeof now.message[key], "%s", event->message ? event->message : "");
    }
    pthread_cond_broadcast(&now.changed);
    pthread_mutex_unlock(&now.lock);
}

static es_status open_engine(const char *how, double deadline)
{
    static char program[] = "test", engine[] = "engine", mode[16];
    static char *command[] = {program, engine, mode, NULL};
    snprintf(mode, sizeof mode, "%s", how);
    es_log_set_level(ES_LOG_QUIET);
    memset(&now, 0, sizeof now);
    pthread_mutex_init(&now.lock, NULL);
    pthread_cond_init(&now.changed, NULL);
    now.text = fake_open(&now.words);
    const es_process_options options = {.text = &now.text, .command = command, .step_deadline = deadline};
    es_engine_info info;
    ES_TRY(es_backend_open_process(&options, &info, &now.backend));
    assert_int_equal(info.queue, 4);
    now.backend.listen(now.backend.self, on_event, NULL);
    return ES_OK;
}

static int finish(void **state)
{
    (void)state;
    es_backend_close_process(&now.backend, 10);
    fake_close(&now.words);
    return 0;
}

static es_status submit(uint64_t key, es_token first, int64_t most)
{
    const es_token prompt[] = {first, 9};
    const es_request request = {.prompt = prompt, .prompt_count = 2, .max_tokens = most, .ignore_eos = true};
    return now.backend.submit(now.backend.self, key, &request);
}

static void wait_for_end(uint64_t key)
{
    pthread_mutex_lock(&now.lock);
    while (now.ends[key] == 0) pthread_cond_wait(&now.changed, &now.lock);
    pthread_mutex_unlock(&now.lock);
}

static void wait_for_token(uint64_t key)
{
    pthread_mutex_lock(&now.lock);
    while (now.tokens[key] == 0) pthread_cond_wait(&now.changed, &now.lock);
    pthread_mutex_unlock(&now.lock);
}

static es_backend_health health(void)
{
    return now.backend.health(now.backend.self);
}

static void wait_until_up(void)
{
    while (!health().up) usleep(1000);
}

static void requests_go_there_and_answers_come_back(void **state)
{
    (void)state;
    assert_int_equal(open_engine("serve", 0), ES_OK);
    const es_backend_info *info = now.backend.info(now.backend.self);
    assert_string_equal(info->fingerprint, "fp");
    assert_int_equal(info->context, 4096);
    for (uint64_t key = 1; key <= 4; key++) assert_int_equal(submit(key, 9, 5), ES_OK);
    for (uint64_t key = 1; key <= 4; key++) {
        wait_for_end(key);
        assert_int_equal(now.last[key].kind, ES_EVENT_DONE);
        assert_int_equal(now.last[key].finish, ES_FINISH_LENGTH);
        assert_int_equal(now.tokens[key], 5);
        assert_int_equal(now.last[key].completion_tokens, 5);
    }
    /* figures are never older than the events before them */
    assert_int_equal(now.backend.stats(now.backend.self).finished, 4);
    assert_int_equal(submit(5, 9, 100000), ES_OK);
    wait_for_token(5);
    now.backend.cancel(now.backend.self, 5);
    wait_for_end(5);
    assert_int_equal(now.last[5].finish, ES_FINISH_CANCELLED);
    assert_true(health().up && health().restarts == 0);
}

static void a_full_queue_is_said_at_once(void **state)
{
    (void)state;
    assert_int_equal(open_engine("serve", 0), ES_OK);
    for (uint64_t key = 1; key <= 8; key++) assert_int_equal(submit(key, 9, 100000), ES_OK);
    assert_int_equal(submit(9, 9, 1), ES_BUSY);
    assert_int_equal(now.ends[9], 0);
}

/* Killed, silent, or talking nonsense: all open requests end once, and the next engine serves. */
static void every_request_ends_once_when_the_engine_fails(void **state)
{
    (void)state;
    static const struct {
        es_token word;
        const char *reason;
    } ways[] = {
        {KILL_YOURSELF, "killed by signal 9"    },
        {FALL_SILENT,   "said nothing for 0.5 s"},
        {TALK_NONSENSE, "no message"            }
    };
    assert_int_equal(open_engine("serve", 0.5), ES_OK);
    uint64_t key = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const uint64_t first = key;
        for (int n = 0; n < 3; n++) assert_int_equal(submit(key++, 9, 100000), ES_OK);
        for (uint64_t k = first; k < key; k++) wait_for_token(k);
        assert_int_equal(submit(key++, ways[i].word, 1), ES_OK);
        for (uint64_t k = first; k < key; k++) {
            wait_for_end(k);
            assert_int_equal(now.last[k].kind, ES_EVENT_ERROR);
            assert_non_null(strstr(now.message[k], ways[i].reason));
            /* who had got tokens was being worked on; who had not may simply come back */
            assert_int_equal(now.last[k].status, k < key - 1 ? ES_INTERNAL : ES_UNAVAILABLE);
        }
        assert_non_null(strstr(health().reason, ways[i].reason));
        wait_until_up();
        assert_int_equal(health().restarts, i + 1);
        assert_int_equal(submit(key, 9, 3), ES_OK);
        wait_for_end(key);
        assert_int_equal(now.last[key].kind, ES_EVENT_DONE);
        key++;
    }
    usleep(50000);
    for (uint64_t k = 0; k < key; k++) assert_int_equal(now.ends[k], 1);
}

/* The second death at once costs a pause, in which requests are told so. */
static void while_it_is_down_requests_are_told(void **state)
{
    (void)state;
    assert_int_equal(open_engine("serve", 0), ES_OK);
    for (uint64_t key = 0; key < 2; key++) {
        assert_int_equal(submit(key, KILL_YOURSELF, 1), ES_OK);
        wait_for_end(key);
        if (key == 0) wait_until_up();
    }
    assert_int_equal(submit(2, 9, 1), ES_UNAVAILABLE);
    assert_non_null(strstr(es_error_message(), "killed by signal 9"));
    assert_false(health().up);
    assert_int_equal(now.backend.stats(now.backend.self).running, 0);
    wait_until_up();
    assert_int_equal(submit(3, 9, 1), ES_OK);
    wait_for_end(3);
    assert_int_equal(now.last[3].kind, ES_EVENT_DONE);
}

static void a_first_start_that_fails_says_why(void **state)
{
    (void)state;
    assert_int_equal(open_engine("refuse", 0), ES_NO_MEMORY);
    assert_string_equal(es_error_message(), "the fake engine is too large");
    assert_int_equal(open_engine("exit", 0), ES_INTERNAL);
    assert_non_null(strstr(es_error_message(), "ended with code 7"));
    assert_int_equal(open_engine("other", 0), ES_INTERNAL);
    assert_non_null(strstr(es_error_message(), "another model"));
}

static void closing_leaves_no_process_behind(void **state)
{
    (void)state;
    assert_int_equal(open_engine("serve", 0), ES_OK);
    for (uint64_t key = 1; key <= 8; key++) assert_int_equal(submit(key, 9, 100000), ES_OK);
    wait_for_token(1);
    es_backend_close_process(&now.backend, 10);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "engine") == 0) return host(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(requests_go_there_and_answers_come_back, finish),
        cmocka_unit_test_teardown(a_full_queue_is_said_at_once, finish),
        cmocka_unit_test_teardown(every_request_ends_once_when_the_engine_fails, finish),
        cmocka_unit_test_teardown(while_it_is_down_requests_are_told, finish),
        cmocka_unit_test_teardown(a_first_start_that_fails_says_why, finish),
        cmocka_unit_test_teardown(closing_leaves_no_process_behind, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
