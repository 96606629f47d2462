/* Safetensors files and folders: what is well-formed is read, and nothing hostile gets past the header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "model/safetensors.h"

/* A file image: the header, then `data_bytes` of 0, 1, 2, ... As long as needed, so that ASan sees one byte too far. */
typedef struct image {
    unsigned char *data;
    size_t bytes;
} image;

static image make_image(const char *json, size_t data_bytes)
{
    const size_t length = strlen(json);
    image im = {malloc(8 + length + data_bytes), 8 + length + data_bytes};
    assert_non_null(im.data);
    for (int i = 0; i < 8; i++) im.data[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(im.data + 8, json, length);
    for (size_t i = 0; i < data_bytes; i++) im.data[8 + length + i] = (unsigned char)i;
    return im;
}

static es_status parse_image(image im, es_tensor_set **set)
{
    *set = es_tensor_set_new();
    assert_non_null(*set);
    es_status status = es_safetensors_parse(*set, "test.safetensors", im.data, im.bytes);
    if (status == ES_OK) status = es_tensor_set_seal(*set, "test.safetensors");
    return status;
}

static es_status parse_json(const char *json, size_t data_bytes)
{
    image im = make_image(json, data_bytes);
    es_tensor_set *set;
    const es_status status = parse_image(im, &set);
    es_tensor_set_close(set);
    free(im.data);
    return status;
}

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[16,20]},"
                           "\"v\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,2],\"data_offsets\":[20,24]},"
                           "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[24,24]}}  ";

static void tensors_are_found_with_type_shape_and_bytes(void **state)
{
    (void)state;
    image im = make_image(good, 24);
    es_tensor_set *set;
    assert_int_equal(parse_image(im, &set), ES_OK);
    assert_int_equal(es_tensor_count(set), 3);
    assert_string_equal(es_tensor_at(set, 0)->name, "a");
    assert_string_equal(es_tensor_at(set, 2)->name, "empty");
    assert_null(es_tensor_at(set, 3));
    const es_tensor *b = es_tensor_find(set, "b");
    assert_non_null(b);
    assert_int_equal(b->type, ES_BF16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->shape[2], 1);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(((const unsigned char *)b->data)[0], 4);
    assert_int_equal(es_tensor_find(set, "a")->rank, 0);
    assert_null(es_tensor_find(set, "q"));
    assert_null(es_tensor_find(set, "zzz"));
    es_tensor_set_close(set);
    free(im.data);
}

/* Whoever needs such a tensor refuses it by name; whoever does not loads the rest. */
static void unreadable_types_and_ranks_are_named(void **state)
{
    (void)state;
    image im = make_image(good, 24);
    es_tensor_set *set;
    assert_int_equal(parse_image(im, &set), ES_OK);
    assert_int_equal(es_tensor_unreadable_count(set), 2);
    assert_string_equal(es_tensor_unreadable(set, "q"), "F8_E4M3");
    assert_string_equal(es_tensor_unreadable(set, "v"), "BF16 with 5 axes");
    assert_null(es_tensor_unreadable(set, "b"));
    const char *type;
    assert_string_equal(es_tensor_unreadable_at(set, 0, &type), "q");
    assert_string_equal(type, "F8_E4M3");
    assert_null(es_tensor_unreadable_at(set, 2, &type));
    es_tensor_set_close(set);
    free(im.data);
}

static void a_file_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    const image whole = make_image(good, 24);
    for (size_t bytes = 0; bytes < whole.bytes; bytes++) {
        image cut = {malloc(bytes ? bytes : 1), bytes};
        memcpy(cut.data, whole.data, bytes);
        es_tensor_set *set;
        assert_int_equal(parse_image(cut, &set), ES_BAD_FILE);
        es_tensor_set_close(set);
        free(cut.data);
    }
    free(whole.data);
}

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "[]", "null", "{", "{}x", "{\"a\":1}", "{\"a\":{}}",
        /* offsets: past the end, reversed, negative, no integers, too many, past 64 bits */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[1,17]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0.0,4.0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551620]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775804,9223372036854775807]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
        /* shapes: negative, overflowing, not matching the bytes, no array */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}",
        /* names: twice, empty, with a NUL */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[4,8]}}",
        "{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        /* overlaps: partly, the same bytes, a readable and an unreadable one */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
        "\"data_offsets\":[4,12]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
        "\"data_offsets\":[0,8]}}",
        "{\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[12,16]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse_json(bad[i], 16) != ES_BAD_FILE) fail_msg("accepted: %s", bad[i]);
    assert_int_equal(parse_json("{}", 0), ES_OK);

    /* A length field that claims the world. */
    image im = make_image("{}", 0);
    memset(im.data, 0xFF, 8);
    es_tensor_set *set;
    assert_int_equal(parse_image(im, &set), ES_BAD_FILE);
    es_tensor_set_close(set);
    free(im.data);
}

/* A quantised GGUF name is no safetensors type, even where the bytes would fit. */
static void block_types_are_not_safetensors_types(void **state)
{
    (void)state;
    image im = make_image("{\"a\":{\"dtype\":\"Q8_0\",\"shape\":[32],\"data_offsets\":[0,34]}}", 34);
    es_tensor_set *set;
    assert_int_equal(parse_image(im, &set), ES_OK);
    assert_int_equal(es_tensor_count(set), 0);
    assert_string_equal(es_tensor_unreadable(set, "a"), "Q8_0");
    es_tensor_set_close(set);
    free(im.data);
}

/* --- folders ------------------------------------------------------------------------------------------------------------ */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/es-safetensors-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static char *in_folder(const char *name)
{
    char *path = es_path_join(folder, name);
    assert_non_null(path);
    return path;
}

static void write_bytes(const char *name, const void *data, size_t bytes)
{
    char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
    free(path);
}

static void write_image(const char *name, const char *json, size_t data_bytes)
{
    image im = make_image(json, data_bytes);
    write_bytes(name, im.data, im.bytes);
    free(im.data);
}

static void write_index(const char *json)
{
    write_bytes("model.safetensors.index.json", json, strlen(json));
}

static es_status open_folder(void)
{
    es_tensor_set *set = NULL;
    const es_status status = es_safetensors_open(folder, &set);
    if (status == ES_OK) es_tensor_set_close(set);
    return status;
}

static void shards_become_one_set(void **state)
{
    (void)state;
    write_image("one.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    write_image("two.safetensors", "{\"b\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                   "\"c\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8);
    write_index("{\"metadata\":{},\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\","
                "\"c\":\"two.safetensors\"}}");
    es_tensor_set *set;
    assert_int_equal(es_safetensors_open(folder, &set), ES_OK);
    assert_int_equal(es_tensor_count(set), 2);
    assert_int_equal(es_tensor_find(set, "c")->type, ES_I32);
    assert_string_equal(es_tensor_unreadable(set, "b"), "F8_E5M2");
    es_tensor_set_close(set);
}

static void an_index_cannot_leave_its_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "",
                                        "sub\\\\one.safetensors", "a..safetensors", ".hidden"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char json[256];
        snprintf(json, sizeof json, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        write_index(json);
        if (open_folder() != ES_BAD_FILE) fail_msg("followed: %s", names[i]);
    }
    write_index("{\"weight_map\":{\"a\":7}}");
    assert_int_equal(open_folder(), ES_BAD_FILE);
    write_index("{\"weight_map\":{}}");
    assert_int_equal(open_folder(), ES_BAD_FILE);
    write_index("{}");
    assert_int_equal(open_folder(), ES_BAD_FILE);
}

static void an_index_and_its_shards_must_agree(void **state)
{
    (void)state;
    write_image("one.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    write_image("two.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    write_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}");
    assert_int_equal(open_folder(), ES_BAD_FILE); /* b is promised and not there */
    write_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    assert_int_equal(open_folder(), ES_BAD_FILE); /* a comes twice */
    write_index("{\"weight_map\":{\"a\":\"three.safetensors\"}}");
    assert_int_equal(open_folder(), ES_NOT_FOUND);
}

static void an_empty_folder_says_what_is_missing(void **state)
{
    (void)state;
    assert_int_equal(open_folder(), ES_NOT_FOUND);
    assert_non_null(strstr(es_error_message(), "model.safetensors"));
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    const float data[6] = {0, -1, 2.5f, 1e-40f, -0.0f, 3e38f};
    const int64_t shape[2] = {2, 3};
    char *path = in_folder("out.safetensors");
    for (int again = 0; again < 2; again++) { /* the second time over the first */
        assert_int_equal(es_safetensors_write_f32(path, "lo\"gits", data, 2, shape), ES_OK);
        es_tensor_set *set;
        assert_int_equal(es_safetensors_open(path, &set), ES_OK);
        const es_tensor *t = es_tensor_find(set, "lo\"gits");
        assert_non_null(t);
        assert_int_equal(t->rank, 2);
        assert_int_equal(t->shape[1], 3);
        assert_memory_equal(t->data, data, sizeof data);
        assert_int_equal((uintptr_t)t->data % 8, 0);
        es_tensor_set_close(set);
    }
    free(path);
}

static size_t count_files(void)
{
    char command[128];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *p = popen(command, "r");
    size_t count = 99;
    assert_int_equal(fscanf(p, "%zu", &count), 1);
    pclose(p);
    return count;
}

static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    enum { N = 100000 };
    float *data = calloc(N, sizeof *data);
    const int64_t small[1] = {1}, large[1] = {N};
    char *path = in_folder("out.safetensors");
    assert_int_equal(es_safetensors_write_f32(path, "x", data, 1, small), ES_OK);

    /* A limit on file sizes stands in for a full disk. */
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const es_status status = es_safetensors_write_f32(path, "x", data, 1, large);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, ES_IO);

    es_tensor_set *set;
    assert_int_equal(es_safetensors_open(path, &set), ES_OK);
    assert_int_equal(es_tensor_find(set, "x")->shape[0], 1);
    es_tensor_set_close(set);
    assert_int_equal(count_files(), 1);
    free(path);
    free(data);
}

static void what_is_no_regular_file_is_not_replaced(void **state)
{
    (void)state;
    const float data[1] = {1};
    const int64_t shape[1] = {1}, wrong[1] = {-1};
    assert_int_equal(es_safetensors_write_f32(folder, "x", data, 1, shape), ES_INVALID);
    assert_int_equal(es_safetensors_write_f32("/no/such/folder/out", "x", data, 1, shape), ES_IO);
    assert_int_equal(es_safetensors_write_f32("/no/such/folder/out", "x", data, 1, wrong), ES_INVALID);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_with_type_shape_and_bytes),
        cmocka_unit_test(unreadable_types_and_ranks_are_named),
        cmocka_unit_test(a_file_cut_short_anywhere_is_refused),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(block_types_are_not_safetensors_types),
        IN_FOLDER(shards_become_one_set),
        IN_FOLDER(an_index_cannot_leave_its_folder),
        IN_FOLDER(an_index_and_its_shards_must_agree),
        IN_FOLDER(an_empty_folder_says_what_is_missing),
        IN_FOLDER(what_is_written_is_read_back),
        IN_FOLDER(a_failed_write_leaves_the_old_file),
        IN_FOLDER(what_is_no_regular_file_is_not_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
