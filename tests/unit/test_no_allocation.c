/* No surprise memory: a steady step calls no allocator.
 *
 * This program's own malloc and its relatives, and mmap, count their calls while a flag is up, whoever calls: the engine's
 * thread, its workers, or a library below. Three sequences answer at once, with every sampling parameter switched on; the
 * flag goes up when all of them have begun and the first has its 20th token, and comes down 300 tokens, so 300 steps, later
 * (with ES_LONG 1,000). Once with token numbers alone, once with a tokenizer and stop strings, and once with the default model
 * where there is one.
 *
 * Sanitizers bring their own allocator: under them the runs are made and nothing is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "evenshare/engine.h"
#include "oracle.h"

#define WARM_UP    20
#define SEQUENCES  3
#define MOST_AHEAD 3000 /* tokens of one sequence before the last has begun */

static _Atomic bool counting;
static _Atomic long calls;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTED 1
#define STEPS   (getenv("ES_LONG") ? 1000 : 300)

static void count(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed)) atomic_fetch_add(&calls, 1);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

/* Visible to the C library and every other one, which is what makes them count. */
#define VISIBLE __attribute__((visibility("default")))

VISIBLE void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

VISIBLE void *calloc(size_t n, size_t bytes)
{
    count();
    return __libc_calloc(n, bytes);
}

VISIBLE void *realloc(void *old, size_t bytes)
{
    count();
    return __libc_realloc(old, bytes);
}

VISIBLE void free(void *memory)
{
    count();
    __libc_free(memory);
}

VISIBLE void *aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

VISIBLE int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    count();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12;
}

VISIBLE void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    count();
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

VISIBLE int munmap(void *at, size_t bytes)
{
    count();
    return (int)syscall(SYS_munmap, at, bytes);
}
#else
#define COUNTED 0
#define STEPS   20
#endif

typedef struct watched {
    long tokens, steps; /* events so far; tokens to count over */
    long from;          /* of the one that leads: its tokens when the flag went up */
    size_t text_bytes;
    bool leads;          /* raises and lowers the flag */
    struct watched *all; /* [SEQUENCES] */
    uint64_t id;
    uint64_t step_count;
    es_engine *engine;
    int done, errors;
} watched;

/* Whoever submits may be kept from it on a busy machine, and allocates. */
static bool all_have_begun(const watched *all)
{
    for (int i = 0; i < SEQUENCES; i++)
        if (all[i].tokens < 2) return false;
    return true;
}

static void on_event(void *user, const es_event *event)
{
    watched *w = user;
    if (event->kind == ES_EVENT_DONE) w->done++;
    if (event->kind == ES_EVENT_ERROR) w->errors++;
    if (event->kind != ES_EVENT_TOKEN) return;
    w->tokens++;
    w->id = event->request;
    w->text_bytes += event->text_bytes;
    if (!w->leads) return;
    if (!w->from && w->tokens >= WARM_UP && all_have_begun(w->all)) {
        w->from = w->tokens;
        w->step_count = es_engine_get_stats(w->engine).steps;
        atomic_store(&counting, true);
    } else if (w->from && w->tokens == w->from + w->steps) {
        atomic_store(&counting, false);
        w->step_count = es_engine_get_stats(w->engine).steps - w->step_count;
        for (int i = 0; i < SEQUENCES; i++) es_engine_cancel(w->engine, w->all[i].id);
    }
}

static long allocator_calls(const es_model *model, long steps, const char *const *stop, size_t stops)
{
    static const es_logit_bias bias[] = {
        {7, -100.0f},
        {9, 1.5f   }
    };
    static const es_token prompt[] = {5, 6, 7, 8, 9, 10, 11};
    const int64_t tokens = WARM_UP + steps + MOST_AHEAD;
    const es_engine_options options = {.threads = 2, .parallel = SEQUENCES, .context = tokens + 8};
    es_engine *engine = es_oracle_engine(model, options);
    watched w[SEQUENCES];
    uint64_t id[SEQUENCES];
    atomic_store(&calls, 0);
    for (int i = 0; i < SEQUENCES; i++) w[i] = (watched){.steps = steps, .leads = i == 0, .engine = engine, .all = w};
    for (int i = 0; i < SEQUENCES; i++) {
        es_request r = {.prompt = prompt,
                        .prompt_count = (size_t)(3 + 2 * i),
                        .max_tokens = tokens,
                        .ignore_eos = true,
                        .sampling = es_sampling_defaults(),
                        .bias = bias,
                        .bias_count = 2,
                        .logprobs = true,
                        .top_logprobs = i * 5,
                        .stop = stop,
                        .stop_count = stops,
                        .on_event = on_event,
                        .user = &w[i]};
        if (stops && i == 1) { /* and one of them follows a grammar that never ends and keeps the matcher busy */
            r.grammar = "root ::= (word | [^a-z])+\nword ::= [a-z]{1,5} [^a-z] | [a-m] word [n-z]";
            r.grammar_bytes = strlen(r.grammar);
        }
        r.sampling.temperature = 0.9f + 0.1f * (float)i;
        r.sampling.top_k = i == 2 ? 0 : 40;
        r.sampling.top_p = 0.9f;
        r.sampling.min_p = 0.01f;
        r.sampling.repetition_penalty = 1.1f;
        r.sampling.repetition_window = -1;
        r.sampling.frequency_penalty = 0.1f;
        r.sampling.presence_penalty = 0.1f;
        r.sampling.seed = (uint64_t)i;
        id[i] = es_oracle_submit(engine, &r);
    }
    for (int i = 0; i < SEQUENCES; i++) es_engine_wait(engine, id[i]);
    for (int i = 0; i < SEQUENCES; i++) {
        assert_int_equal(w[i].errors, 0);
        assert_int_equal(w[i].done, 1);
        assert_in_range(w[i].tokens, steps, tokens - 1); /* all three were there to the end */
        if (stops) assert_true(w[i].text_bytes > 0);
    }
    assert_int_equal(w[0].step_count, steps);
    es_engine_close(engine);
    return atomic_load(&calls);
}

static void the_counter_counts(void **state)
{
    (void)state;
    if (!COUNTED) skip();
    atomic_store(&calls, 0);
    atomic_store(&counting, true);
    void *volatile memory = malloc(100);
    memory = realloc(memory, 1000000);
    free(memory);
    memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory, 4096);
    atomic_store(&counting, false);
    assert_int_equal(atomic_load(&calls), 5);
}

static void steps_of_token_numbers_allocate_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_5_moe", "llama"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        es_model *model = es_oracle_model(names[i]);
        assert_int_equal(allocator_calls(model, STEPS, NULL, 0), 0);
        es_model_close(model);
    }
}

/* The character that byte-level BPE writes for a byte: itself where it prints, else the next free one from U+0100. */
static void put_byte(FILE *f, int byte)
{
    int free_one = 256;
    for (int b = 0; b < byte; b++) free_one += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    fprintf(f, "\"\\u%04x", prints ? byte : free_one);
}

/* The llama oracle with a tokenizer of our own: 256 bytes, and 256 tokens of two. */
static void write_model_with_tokenizer(const char *folder)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char from[600], to[600];
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/llama/%s", ES_ORACLE_FOLDER, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    snprintf(to, sizeof to, "%s/tokenizer.json", folder);
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    fputs("{\"model\": {\"type\": \"BPE\", \"vocab\": {", f);
    for (int b = 0; b < 256; b++) {
        put_byte(f, b);
        fprintf(f, "\": %d, ", b);
    }
    for (int i = 0; i < 256; i++) fprintf(f, "%s\"%c%c\": %d", i ? ", " : "", 'a' + i / 16, 'a' + i % 16, 256 + i);
    fputs("}, \"merges\": [", f);
    for (int i = 0; i < 256; i++) fprintf(f, "%s\"%c %c\"", i ? ", " : "", 'a' + i / 16, 'a' + i % 16);
    fputs("]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, "
          "\"decoder\": {\"type\": \"ByteLevel\"}}",
          f);
    assert_int_equal(fclose(f), 0);
}

static void remove_model(const char *folder)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char path[600];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static const char *const stop_strings[] = {"this never comes up", "ababababababababab", "\xF0\x9F\x98\x80 nor this"};

static void steps_with_text_and_stop_strings_allocate_nothing(void **state)
{
    (void)state;
    char folder[] = "/tmp/evenshare-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    write_model_with_tokenizer(folder);
    es_model *model = NULL;
    const es_status status = es_model_open(folder, &model);
    remove_model(folder); /* mapped files stay */
    if (status != ES_OK) fail_msg("%s", es_error_message());
    assert_non_null(es_model_tokenizer(model));
    assert_int_equal(allocator_calls(model, STEPS, stop_strings, 3), 0);
    es_model_close(model);
}

/* A real vocabulary and its tokenizer. 300 steps of it take a quarter of a minute: 60 are made unless ES_LONG is set. */
static void steps_of_the_default_model_allocate_nothing(void **state)
{
    (void)state;
    const char *path = es_model_default_path();
    if (!path || access(path, R_OK) != 0) {
        print_message("there is no default model: left out\n");
        skip();
    }
    es_model *model = NULL;
    if (es_model_open(NULL, &model) != ES_OK) fail_msg("%s", es_error_message());
    const size_t stops = es_model_tokenizer(model) ? 3 : 0;
    assert_int_equal(allocator_calls(model, getenv("ES_LONG") || !COUNTED ? STEPS : 60, stop_strings, stops), 0);
    es_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(steps_of_token_numbers_allocate_nothing),
        cmocka_unit_test(steps_with_text_and_stop_strings_allocate_nothing),
        cmocka_unit_test(steps_of_the_default_model_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
