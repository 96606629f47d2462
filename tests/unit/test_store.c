/* The prefix cache outlives the engine: an answer after a restart comes from the disk, with the same bits; and whatever has
 * happened to the files, the worst is a miss. */
#include "evenshare/engine.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/record.h"
#include "model/identity.h"
#include "oracle.h"

#define ANSWER 12
#define PROMPT 300

typedef struct reply {
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    es_oracle_answer answer;
    int64_t cached;
} reply;

static char folder[64];

static void on_event(void *user, const es_event *event)
{
    reply *r = user;
    es_oracle_on_event(&r->answer, event);
    if (event->kind == ES_EVENT_DONE) r->cached = event->cached_tokens;
}

static reply ask(es_engine *engine, const int32_t *ids, int64_t count)
{
    reply r = {0};
    r.answer = (es_oracle_answer){.tokens = r.tokens, .logprobs = r.logprobs, .most_tokens = ANSWER};
    es_request request = es_oracle_request(ids, count, &r.answer);
    request.on_event = on_event;
    request.user = &r;
    es_engine_wait(engine, es_oracle_submit(engine, &request));
    assert_int_equal(r.answer.done, 1);
    assert_int_equal(r.answer.count, ANSWER);
    return r;
}

static void assert_same(const reply *a, const reply *b)
{
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
}

static es_engine_options options_with(const char *cache_dir)
{
    return (es_engine_options){
        .threads = 1, .parallel = 2, .page = 16, .context = 640, .cache_dir = cache_dir, .cache = 4u << 20};
}

/* Calls `each` for every file of ours; returns how many there are. */
static int files(void (*each)(int at, const char *name))
{
    int count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        if (!strstr(entry->d_name, ".evc")) continue;
        if (each) each(dirfd(d), entry->d_name);
        count++;
    }
    closedir(d);
    return count;
}

static void is_private(int at, const char *name)
{
    struct stat s;
    assert_int_equal(fstatat(at, name, &s, 0), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
}

static void after_a_restart_the_prompt_is_there(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        es_kv_type kv_type;
    } models[] = {{"qwen3_5", ES_KV_AUTO}, {"llama", ES_KV_AUTO}, {"llama", ES_KV_F16}};
    for (int f = 0; f < (ES_ORACLE_SANITIZED ? 2 : 3); f++) {
        es_model *model = es_oracle_model(models[f].family);
        es_tensor_set *set = es_oracle_open(models[f].family, "reference");
        const int32_t *ids = es_oracle_get(set, 4096).ids;
        es_engine_options options = options_with(NULL);
        options.kv_type = models[f].kv_type;
        es_engine *cold = es_oracle_engine(model, options);
        const reply truth = ask(cold, ids, PROMPT), other = ask(cold, ids + 1000, 100);
        es_engine_close(cold);
        options.cache_dir = folder;
        es_engine *first = es_oracle_engine(model, options);
        const reply before = ask(first, ids, PROMPT);
        ask(first, ids + 1000, 100);
        es_engine_close(first);
        assert_same(&before, &truth);
        assert_true(files(is_private) >= PROMPT / 16 + 100 / 16);
        /* Twice: what was read must be kept, too. */
        for (int round = 0; round < 2; round++) {
            es_engine *again = es_oracle_engine(model, options);
            const reply after = ask(again, ids, PROMPT), second = ask(again, ids + 1000, 100);
            es_engine_close(again);
            assert_same(&after, &truth);
            assert_same(&second, &other);
            assert_true(after.cached >= (f == 0 ? PROMPT - 1 : PROMPT - 16));
            assert_true(second.cached >= 84);
        }
        es_tensor_set_close(set);
        es_model_close(model);
    }
}

static void flip_a_byte(int at, const char *name)
{
    static unsigned where = 7;
    struct stat s;
    unsigned char byte;
    const int file = openat(at, name, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &s), 0);
    where = where * 1103515245u + 12345u;
    const off_t offset = (off_t)(where / 65536 % (unsigned)s.st_size);
    assert_int_equal(pread(file, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(file, &byte, 1, offset), 1);
    if (where / 7 % 4 == 0) assert_int_equal(ftruncate(file, s.st_size / 2), 0);
    close(file);
}

static void damaged_or_foreign_files_are_a_miss(void **state)
{
    (void)state;
    es_model *model = es_oracle_model("qwen3_5");
    es_tensor_set *set = es_oracle_open("qwen3_5", "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    es_engine *cold = es_oracle_engine(model, options_with(NULL));
    const reply truth = ask(cold, ids, PROMPT);
    es_engine_close(cold);
    es_engine_options options = options_with(folder);
    es_engine_close(es_oracle_engine(model, options)); /* what another model left there is passed over */
    for (int round = 0; round < 3; round++) {
        es_engine *engine = es_oracle_engine(model, options);
        const reply got = ask(engine, ids, PROMPT);
        assert_int_equal(got.cached, 0);
        assert_same(&got, &truth);
        es_engine_close(engine);
        files(flip_a_byte);
    }
    /* Another numeric mode, other keys and values, another page: not theirs. Their own again: it is written over, not mixed up. */
    es_engine_close(es_oracle_engine(model, options));
    options.numeric = ES_NUMERIC_BF16;
    es_engine *engine = es_oracle_engine(model, options);
    assert_int_equal(ask(engine, ids, PROMPT).cached, 0);
    es_engine_close(engine);
    options.kv_type = ES_KV_F16; /* a page of them is as large */
    engine = es_oracle_engine(model, options);
    assert_int_equal(ask(engine, ids, PROMPT).cached, 0);
    es_engine_close(engine);
    options.numeric = ES_NUMERIC_F32;
    options.kv_type = ES_KV_Q8_0;
    engine = es_oracle_engine(model, options);
    assert_int_equal(ask(engine, ids, PROMPT).cached, 0);
    es_engine_close(engine);
    options.kv_type = ES_KV_AUTO;
    options.page = 32;
    engine = es_oracle_engine(model, options);
    const reply got = ask(engine, ids, PROMPT);
    assert_int_equal(got.cached, 0);
    assert_same(&got, &truth);
    es_engine_close(engine);
    es_tensor_set_close(set);
    es_model_close(model);
}

static off_t total;

static void add_size(int at, const char *name)
{
    struct stat s;
    assert_int_equal(fstatat(at, name, &s, 0), 0);
    total += s.st_size;
}

/* Many conversations through a small folder: it stays within its bytes, and what it gives back is right. */
static void the_folder_keeps_to_its_bytes(void **state)
{
    (void)state;
    es_model *model = es_oracle_model("qwen3_5");
    es_tensor_set *set = es_oracle_open("qwen3_5", "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    es_engine *cold = es_oracle_engine(model, options_with(NULL));
    const reply truth = ask(cold, ids + 11 * 200, 200);
    es_engine_close(cold);
    es_engine_options options = options_with(folder);
    options.cache_disk = 1500000;
    es_engine *engine = es_oracle_engine(model, options);
    for (int i = 0; i < 12; i++) ask(engine, ids + i * 200, 200);
    es_engine_close(engine);
    total = 0;
    files(add_size);
    print_message("%d files, %d bytes\n", files(NULL), (int)total);
    assert_true(total > 500000 && total <= 1500000);
    engine = es_oracle_engine(model, options);
    const reply got = ask(engine, ids + 11 * 200, 200);
    es_engine_close(engine);
    assert_true(got.cached >= 199);
    assert_same(&got, &truth);
    es_tensor_set_close(set);
    es_model_close(model);
}

/* A file that cannot grow stands for a full disk. */
static void a_full_disk_is_no_failure(void **state)
{
    (void)state;
    es_model *model = es_oracle_model("qwen3_5");
    es_tensor_set *set = es_oracle_open("qwen3_5", "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 1000;
    const int before = files(NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    es_engine *engine = es_oracle_engine(model, options_with(folder));
    ask(engine, ids + 77, 100);
    ask(engine, ids + 1077, 100);
    es_engine_close(engine);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(files(NULL), before);
    es_tensor_set_close(set);
    es_model_close(model);
}

static void the_folder_is_one_users_and_one_processs(void **state)
{
    (void)state;
    es_model *model = es_oracle_model("llama");
    es_tensor_set *set = es_oracle_open("llama", "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    struct stat s;
    assert_int_equal(stat(folder, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    const es_engine_options options = options_with(folder);
    es_engine *first = es_oracle_engine(model, options), *second = es_oracle_engine(model, options);
    ask(second, ids, 50);
    es_engine_close(second);
    es_engine_close(first);
    assert_int_equal(chmod(folder, 0750), 0);
    assert_int_equal(es_engine_open(model, &options, &first), ES_INVALID);
    assert_non_null(strstr(es_error_message(), "chmod 700"));
    assert_int_equal(chmod(folder, 0700), 0);
    const es_engine_options nowhere = options_with("/nonexistent/cache");
    assert_int_equal(es_engine_open(model, &nowhere, &first), ES_IO);
    es_tensor_set_close(set);
    es_model_close(model);
}

/* Every bit of a record counts. */
static void a_record_with_a_flipped_bit_is_refused(void **state)
{
    (void)state;
    const es_record_shape shape = {
        .key = {5, 6},
          .page = 4, .vocabulary = 100, .page_bytes = 16, .state_bytes = 8
    };
    const es_token tokens[] = {1, 2, 3};
    const es_record mark = {
        .kind = ES_RECORD_MARK, .id = 9, .parent = 3, .count = 3, .tokens = tokens, .state = (const unsigned char *)""};
    _Alignas(8) unsigned char data[256] = {0};
    unsigned char *page, *to;
    es_record got;
    const size_t bytes = es_record_bytes(&shape, &mark);
    assert_true(bytes <= es_record_most(&shape, ES_RECORD_MARK) && bytes < sizeof data);
    es_record_lay_out(&shape, &mark, data, &page, &to);
    memset(page, 7, 16);
    memset(to, 8, 8);
    es_record_seal(data, bytes);
    assert_int_equal(es_record_parse(&shape, data, bytes, &got), ES_OK);
    assert_int_equal(got.id, 9);
    assert_int_equal(got.parent, 3);
    assert_int_equal(got.count, 3);
    assert_int_equal(got.tokens[2], 3);
    assert_int_equal(got.page[15], 7);
    assert_int_equal(got.state[7], 8);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(es_record_parse(&shape, data, bytes, &got), ES_OK);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    es_record_shape other = shape;
    other.key[1]++;
    assert_int_equal(es_record_parse(&other, data, bytes, &got), ES_UNSUPPORTED);
    for (size_t n = 0; n < bytes; n++) assert_int_not_equal(es_record_parse(&shape, data, n, &got), ES_OK);
}

/* A model is known by what is in it. */
static void another_weight_is_another_model(void **state)
{
    (void)state;
    es_model *model = es_oracle_model("qwen3_5"), *same = es_oracle_model("qwen3_5"), *other = es_oracle_model("llama");
    const uint64_t identity = es_model_identity(model);
    assert_true(identity == es_model_identity(same));
    assert_true(identity != es_model_identity(other));
    same->config.eps *= 2;
    assert_true(identity != es_model_identity(same));
    es_model_close(model);
    es_model_close(same);
    es_model_close(other);
}

static int make_folder(void **state)
{
    (void)state;
    es_log_set_level(ES_LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/evenshare-store-XXXXXX");
    return mkdtemp(folder) ? rmdir(folder) : 1; /* the engine makes it again */
}

static int remove_folder(void **state)
{
    (void)state;
    char path[400];
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_with_a_flipped_bit_is_refused),
        cmocka_unit_test(another_weight_is_another_model),
        cmocka_unit_test(after_a_restart_the_prompt_is_there),
        cmocka_unit_test(damaged_or_foreign_files_are_a_miss),
        cmocka_unit_test(the_folder_keeps_to_its_bytes),
        cmocka_unit_test(a_full_disk_is_no_failure),
        cmocka_unit_test(the_folder_is_one_users_and_one_processs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
