/* GGUF files, whole and split: what is well-formed is read, and nothing hostile gets past the header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "model/gguf_meta.h"

/* --- building files ------------------------------------------------------------------------------------------------------ */

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };
enum { GGML_F32 = 0, GGML_Q4_0 = 2, GGML_Q2_K = 10 };

static void put(es_text *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) es_text_putc(out, (char)(value >> (8 * i) & 0xFF));
}

static void put_string(es_text *out, const char *s)
{
    put(out, strlen(s), 8);
    es_text_puts(out, s);
}

static void put_head(es_text *out, uint32_t version, uint64_t tensors, uint64_t entries)
{
    es_text_puts(out, "GGUF");
    put(out, version, 4);
    put(out, tensors, 8);
    put(out, entries, 8);
}

static void put_entry(es_text *out, const char *key, uint32_t type, uint64_t value, int bytes)
{
    put_string(out, key);
    put(out, type, 4);
    put(out, value, bytes);
}

static void put_text_entry(es_text *out, const char *key, const char *value)
{
    put_string(out, key);
    put(out, STRING, 4);
    put_string(out, value);
}

static void put_array(es_text *out, const char *key, uint32_t element, uint64_t count)
{
    put_string(out, key);
    put(out, ARRAY, 4);
    put(out, element, 4);
    put(out, count, 8);
}

/* Shape as the file has it: fastest axis first; 0 ends it. */
static void put_tensor(es_text *out, const char *name, uint64_t a, uint64_t b, uint32_t type, uint64_t offset)
{
    put_string(out, name);
    put(out, b ? 2 : 1, 4);
    put(out, a, 8);
    if (b) put(out, b, 8);
    put(out, type, 4);
    put(out, offset, 8);
}

static void put_data(es_text *out, size_t alignment, size_t bytes)
{
    while (out->bytes % alignment) es_text_putc(out, 0);
    for (size_t i = 0; i < bytes; i++) es_text_putc(out, (char)i);
}

/* In an exact allocation, so that ASan sees one byte too far. The set stays valid until free_image. */
static unsigned char *exact;
static es_status parse(const es_text *file, size_t bytes, es_gguf **gguf)
{
    free(exact);
    exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    if (bytes) memcpy(exact, file->data, bytes);
    *gguf = NULL;
    return es_gguf_parse("test.gguf", exact, bytes, gguf);
}

static es_status verdict(es_text *file)
{
    es_gguf *gguf;
    assert_false(file->failed);
    const es_status status = parse(file, file->bytes, &gguf);
    if (status == ES_OK) es_gguf_close(gguf);
    es_text_free(file);
    return status;
}

static void put_good(es_text *file, uint32_t version)
{
    put_head(file, version, 3, 14);
    put_text_entry(file, "general.architecture", "llama");
    put_entry(file, "llama.block_count", U32, 7, 4);
    put_entry(file, "x.u64", U64, UINT64_MAX, 8);
    put_entry(file, "x.i8", I8, 0x80, 1);
    put_entry(file, "x.i16", I16, 0xFFFE, 2);
    put_entry(file, "x.i32", I32, 0xFFFFFFFD, 4);
    put_entry(file, "x.i64", I64, UINT64_C(0x8000000000000000), 8);
    put_entry(file, "x.f32", F32, 0x3FC00000, 4);
    put_entry(file, "x.f64", F64, UINT64_C(0x3FF8000000000000), 8);
    put_entry(file, "x.yes", BOOL, 1, 1);
    put_array(file, "x.words", STRING, 3);
    put_string(file, "a");
    put_string(file, "");
    put_string(file, "longer");
    put_array(file, "x.shorts", I16, 3);
    put(file, 0xFFFF00020001, 6);
    put_array(file, "x.none", U8, 0);
    put_array(file, "x.flags", BOOL, 2);
    put(file, 0x0100, 2);
    put_tensor(file, "w.q2", 256, 2, GGML_Q2_K, 64);
    put_tensor(file, "w.q4", 64, 2, GGML_Q4_0, 256);
    put_tensor(file, "w.f32", 3, 2, GGML_F32, 0);
    put_data(file, 32, 256 + 72);
}

static void every_kind_of_metadata_is_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        es_text file = {0};
        es_gguf *g;
        int64_t i;
        double d;
        bool b;
        es_gguf_string s;
        put_good(&file, version);
        assert_int_equal(parse(&file, file.bytes, &g), ES_OK);
        assert_true(es_gguf_integer(g, "llama.block_count", &i) && i == 7);
        assert_true(es_gguf_integer(g, "%s.block_count", &i) && i == 7);
        assert_false(es_gguf_has(g, "%s.nothing"));
        assert_false(es_gguf_integer(g, "x.u64", &i)); /* does not fit */
        assert_true(es_gguf_integer(g, "x.i8", &i) && i == -128);
        assert_true(es_gguf_integer(g, "x.i16", &i) && i == -2);
        assert_true(es_gguf_integer(g, "x.i32", &i) && i == -3);
        assert_true(es_gguf_integer(g, "x.i64", &i) && i == INT64_MIN);
        assert_false(es_gguf_integer(g, "x.f32", &i));
        assert_true(es_gguf_number(g, "x.f32", &d) && d == 1.5);
        assert_true(es_gguf_number(g, "x.f64", &d) && d == 1.5);
        assert_true(es_gguf_number(g, "x.i8", &d) && d == -128);
        assert_true(es_gguf_boolean(g, "x.yes", &b) && b);
        assert_false(es_gguf_boolean(g, "x.i8", &b));
        assert_true(es_gguf_text(g, "general.architecture", &s) && s.bytes == 5 && memcmp(s.data, "llama", 5) == 0);
        assert_false(es_gguf_text(g, "x.words", &s));
        assert_int_equal(es_gguf_get_kind(g, "x.words"), ES_GGUF_ARRAY);
        assert_int_equal(es_gguf_get_kind(g, "x.f64"), ES_GGUF_NUMBER);
        assert_int_equal(es_gguf_get_kind(g, "x.absent"), ES_GGUF_ABSENT);
        assert_int_equal(es_gguf_get_array_kind(g, "x.words"), ES_GGUF_TEXT);
        assert_int_equal(es_gguf_get_array_kind(g, "x.yes"), ES_GGUF_ABSENT);
        assert_int_equal(es_gguf_array_length(g, "x.words"), 3);
        assert_int_equal(es_gguf_array_length(g, "x.none"), 0);
        assert_int_equal(es_gguf_array_length(g, "x.yes"), -1);
        assert_true(es_gguf_array_text(g, "x.words", 2, &s) && s.bytes == 6 && memcmp(s.data, "longer", 6) == 0);
        assert_true(es_gguf_array_text(g, "x.words", 1, &s) && s.bytes == 0);
        assert_false(es_gguf_array_text(g, "x.words", 3, &s));
        assert_false(es_gguf_array_text(g, "x.words", -1, &s));
        assert_false(es_gguf_array_text(g, "x.shorts", 0, &s));
        assert_true(es_gguf_array_integer(g, "x.shorts", 2, &i) && i == -1);
        assert_true(es_gguf_array_number(g, "x.shorts", 1, &d) && d == 2);
        assert_false(es_gguf_array_integer(g, "x.none", 0, &i));
        assert_false(es_gguf_array_integer(g, "x.words", 0, &i));
        assert_true(es_gguf_array_boolean(g, "x.flags", 1, &b) && b);
        assert_string_equal(es_gguf_key(g, 0), "general.architecture");
        assert_non_null(es_gguf_key(g, 13));
        assert_null(es_gguf_key(g, 14));
        es_gguf_close(g);
        es_text_free(&file);
    }
}

static void tensors_have_their_slowest_axis_first(void **state)
{
    (void)state;
    es_text file = {0};
    es_gguf *g;
    put_good(&file, 3);
    assert_int_equal(parse(&file, file.bytes, &g), ES_OK);
    const es_tensor_set *set = es_gguf_tensors(g);
    assert_int_equal(es_tensor_count(set), 2);
    const es_tensor *t = es_tensor_find(set, "w.q4");
    assert_non_null(t);
    assert_int_equal(t->type, ES_Q4_0);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 64);
    assert_int_equal(t->bytes, 72);
    assert_int_equal(((const unsigned char *)es_tensor_find(set, "w.f32")->data)[3], 3);
    assert_string_equal(es_tensor_unreadable(set, "w.q2"), "Q2_K");
    es_gguf_close(g);
    es_text_free(&file);
}

static void a_file_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    es_text file = {0};
    es_gguf *g;
    put_good(&file, 3);
    for (size_t bytes = 0; bytes < file.bytes; bytes++) {
        const es_status status = parse(&file, bytes, &g);
        if (status != ES_BAD_FILE) fail_msg("cut to %zu bytes: %s", bytes, es_status_name(status));
    }
    es_text_free(&file);
}

static void other_versions_and_byte_orders_are_refused_by_name(void **state)
{
    (void)state;
    es_text file = {0};
    put_head(&file, 1, 0, 0);
    assert_int_equal(verdict(&file), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "version 1"));
    put_head(&file, 4, 0, 0);
    assert_int_equal(verdict(&file), ES_UNSUPPORTED);
    put_head(&file, 0x03000000, 0, 0);
    assert_int_equal(verdict(&file), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "big-endian"));
    es_text_puts(&file, "GGML");
    put(&file, 3, 4);
    assert_int_equal(verdict(&file), ES_BAD_FILE);
    put_head(&file, 3, 0, 0);
    assert_int_equal(verdict(&file), ES_OK);
}

static void hostile_metadata_is_refused(void **state)
{
    (void)state;
    es_text file = {0};

    put_head(&file, 3, 0, UINT64_MAX);
    put_entry(&file, "a", U8, 0, 1);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 0, 2); /* the same key twice */
    put_entry(&file, "a", U8, 0, 1);
    put_entry(&file, "a", U32, 0, 4);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    static const char *const names[] = {"", "a\nb", "caf\xC3\xA9", "%s.block_count"};
    for (size_t i = 0; i < 4; i++) {
        put_head(&file, 3, 0, 1);
        put_entry(&file, names[i], U64, 0, 8);
        assert_int_equal(verdict(&file), ES_BAD_FILE);
    }

    put_head(&file, 3, 0, 1); /* a NUL inside a key */
    put(&file, 3, 8);
    es_text_append(&file, "a\0b", 3);
    put(&file, U64, 4);
    put(&file, 0, 8);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 0, 1); /* a key as long as 64 bits can say */
    put(&file, UINT64_MAX, 8);
    es_text_puts(&file, "aaaaaaaaaaaaaaaa");
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 0, 1);
    put_entry(&file, "a", 13, 0, 8);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 0, 1);
    put_entry(&file, "a", BOOL, 2, 1);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 0, 1);
    put_array(&file, "a", BOOL, 1);
    put(&file, 7, 1);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    static const uint64_t counts[] = {UINT64_MAX, UINT64_MAX / 4 + 1, UINT64_MAX / 8 + 2, 1000};
    static const uint32_t elements[] = {U8, U32, F64, STRING};
    for (size_t c = 0; c < 4; c++) {
        for (size_t e = 0; e < 4; e++) {
            put_head(&file, 3, 0, 1);
            put_array(&file, "a", elements[e], counts[c]);
            put(&file, 0, 8);
            assert_int_equal(verdict(&file), ES_BAD_FILE);
        }
    }

    put_head(&file, 3, 0, 1);
    put_array(&file, "a", 13, 0);
    assert_int_equal(verdict(&file), ES_BAD_FILE);
}

static void nested_arrays_are_refused_by_name(void **state)
{
    (void)state;
    es_text file = {0};
    put_head(&file, 3, 0, 1);
    put_array(&file, "deep.key", ARRAY, 1);
    put(&file, U8, 4);
    put(&file, 0, 8);
    assert_int_equal(verdict(&file), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "deep.key"));
}

static es_status verdict_on_tensor(uint64_t a, uint64_t b, uint32_t type, uint64_t offset, size_t data)
{
    es_text file = {0};
    put_head(&file, 3, 1, 0);
    put_tensor(&file, "t", a, b, type, offset);
    put_data(&file, 32, data);
    return verdict(&file);
}

static void hostile_tensors_are_refused(void **state)
{
    (void)state;
    assert_int_equal(verdict_on_tensor(4, 2, GGML_F32, 0, 32), ES_OK);
    assert_int_equal(verdict_on_tensor(4, 2, GGML_F32, 0, 31), ES_BAD_FILE);
    assert_int_equal(verdict_on_tensor(4, 2, GGML_F32, 32, 63), ES_BAD_FILE);
    assert_int_equal(verdict_on_tensor(4, 2, GGML_F32, 16, 64), ES_BAD_FILE); /* not aligned */
    assert_int_equal(verdict_on_tensor(4, 2, GGML_F32, UINT64_MAX - 31, 64), ES_BAD_FILE);
    assert_int_equal(verdict_on_tensor(UINT64_MAX, 2, GGML_F32, 0, 64), ES_BAD_FILE);
    assert_int_equal(verdict_on_tensor(UINT64_C(1) << 62, 4, GGML_F32, 0, 64), ES_BAD_FILE);
    assert_int_equal(verdict_on_tensor(UINT64_C(1) << 61, 2, GGML_F32, 0, 64), ES_BAD_FILE); /* bytes overflow */
    assert_int_equal(verdict_on_tensor(UINT64_C(1) << 62, 4, GGML_Q2_K, 0, 64), ES_BAD_FILE);
    assert_int_equal(verdict_on_tensor(48, 2, GGML_Q4_0, 0, 64), ES_BAD_FILE); /* 96 elements, but rows of 1.5 blocks */
    assert_int_equal(verdict_on_tensor(256, 1, GGML_Q2_K, 4096, 64), ES_BAD_FILE);

    es_text file = {0};
    put_head(&file, 3, 1, 0); /* five axes */
    put_string(&file, "t");
    put(&file, 5, 4);
    for (int i = 0; i < 5; i++) put(&file, 1, 8);
    put(&file, GGML_F32, 4);
    put(&file, 0, 8);
    put_data(&file, 32, 64);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 2, 0); /* the same name twice, also across the lists */
    put_tensor(&file, "t", 8, 0, GGML_F32, 0);
    put_tensor(&file, "t", 256, 0, GGML_Q2_K, 32);
    put_data(&file, 32, 200);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, 2, 0); /* overlapping */
    put_tensor(&file, "t", 16, 0, GGML_F32, 0);
    put_tensor(&file, "u", 8, 0, GGML_F32, 32);
    put_data(&file, 32, 128);
    assert_int_equal(verdict(&file), ES_BAD_FILE);

    put_head(&file, 3, UINT64_MAX, 0);
    put_tensor(&file, "t", 8, 0, GGML_F32, 0);
    assert_int_equal(verdict(&file), ES_BAD_FILE);
}

static es_status verdict_on_alignment(uint32_t type, uint64_t alignment, int bytes, size_t real)
{
    es_text file = {0};
    put_head(&file, 3, 1, 1);
    put_entry(&file, "general.alignment", type, alignment, bytes);
    put_tensor(&file, "t", 8, 0, GGML_F32, 0);
    put_data(&file, real, 32);
    return verdict(&file);
}

static void the_alignment_key_is_obeyed_and_checked(void **state)
{
    (void)state;
    assert_int_equal(verdict_on_alignment(U32, 8, 4, 8), ES_OK);
    assert_int_equal(verdict_on_alignment(U32, 4096, 4, 4096), ES_OK);
    assert_int_equal(verdict_on_alignment(U32, 0, 4, 32), ES_BAD_FILE);
    assert_int_equal(verdict_on_alignment(U32, 24, 4, 32), ES_BAD_FILE);
    assert_int_equal(verdict_on_alignment(U64, UINT64_C(1) << 63, 8, 32), ES_BAD_FILE);
    assert_int_equal(verdict_on_alignment(F32, 32, 4, 32), ES_BAD_FILE);
}

/* --- split files --------------------------------------------------------------------------------------------------------- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/es-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Part `number` of `count` with one tensor "tN", under the given file name. */
static void write_part(const char *name, int number, int count, const char *tensor, int promised)
{
    es_text file = {0};
    char *path = es_path_join(folder, name);
    put_head(&file, 3, 1, 3);
    put_entry(&file, "split.no", U16, (uint64_t)number, 2);
    put_entry(&file, "split.count", U16, (uint64_t)count, 2);
    put_entry(&file, "split.tensors.count", I32, (uint64_t)promised, 4);
    put_tensor(&file, tensor, 8, 0, GGML_F32, 0);
    put_data(&file, 32, 32);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(file.data, 1, file.bytes, f);
    fclose(f);
    free(path);
    es_text_free(&file);
}

static es_status open_in_folder(const char *name)
{
    es_gguf *gguf;
    char *path = es_path_join(folder, name);
    const es_status status = es_gguf_open(path, &gguf);
    if (status == ES_OK) {
        assert_int_equal(es_tensor_count(es_gguf_tensors(gguf)), 3);
        assert_non_null(es_tensor_find(es_gguf_tensors(gguf), "t2"));
        es_gguf_close(gguf);
    }
    free(path);
    return status;
}

static void the_parts_of_a_split_become_one(void **state)
{
    (void)state;
    write_part("m-00001-of-00003.gguf", 0, 3, "t0", 3);
    write_part("m-00002-of-00003.gguf", 1, 3, "t1", 3);
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_NOT_FOUND);
    assert_non_null(strstr(es_error_message(), "part 3 of 3 is missing"));
    write_part("m-00003-of-00003.gguf", 2, 3, "t2", 3);
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_OK);

    assert_int_equal(open_in_folder("m-00002-of-00003.gguf"), ES_INVALID);
    assert_non_null(strstr(es_error_message(), "open the first part"));
    assert_non_null(strstr(es_error_message(), "m-00001-of-00003.gguf"));
}

static void parts_that_do_not_belong_together_are_refused(void **state)
{
    (void)state;
    write_part("m-00001-of-00003.gguf", 0, 3, "t0", 3);
    write_part("m-00002-of-00003.gguf", 1, 3, "t1", 3);
    write_part("m-00003-of-00003.gguf", 1, 3, "t2", 3); /* says part 2 */
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_BAD_FILE);
    write_part("m-00003-of-00003.gguf", 2, 4, "t2", 3); /* says of 4 */
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_BAD_FILE);
    write_part("m-00003-of-00003.gguf", 2, 3, "t1", 3); /* a tensor twice */
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_BAD_FILE);
    write_part("m-00003-of-00003.gguf", 2, 3, "t2", 3);
    write_part("m-00001-of-00003.gguf", 0, 3, "t0", 4); /* one tensor fewer than promised */
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_BAD_FILE);
    write_part("m-00001-of-00003.gguf", 3, 3, "t0", 3); /* part 4 of 3 */
    assert_int_equal(open_in_folder("m-00001-of-00003.gguf"), ES_BAD_FILE);
}

static void a_renamed_first_part_says_how_it_must_be_called(void **state)
{
    (void)state;
    write_part("model.gguf", 0, 3, "t0", 3);
    assert_int_equal(open_in_folder("model.gguf"), ES_INVALID);
    assert_non_null(strstr(es_error_message(), "-00001-of-00003.gguf"));
    assert_int_equal(open_in_folder("absent.gguf"), ES_NOT_FOUND);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_metadata_is_read),
        cmocka_unit_test(tensors_have_their_slowest_axis_first),
        cmocka_unit_test(a_file_cut_short_anywhere_is_refused),
        cmocka_unit_test(other_versions_and_byte_orders_are_refused_by_name),
        cmocka_unit_test(hostile_metadata_is_refused),
        cmocka_unit_test(nested_arrays_are_refused_by_name),
        cmocka_unit_test(hostile_tensors_are_refused),
        cmocka_unit_test(the_alignment_key_is_obeyed_and_checked),
        IN_FOLDER(the_parts_of_a_split_become_one),
        IN_FOLDER(parts_that_do_not_belong_together_are_refused),
        IN_FOLDER(a_renamed_first_part_says_how_it_must_be_called),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(exact);
    return failed;
}
