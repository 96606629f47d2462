/* What `score` reads and writes: token numbers from anyone's file, logits into a file that is whole or not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The command line is no part of the library: the test brings these files in itself. */
#include "cli/input.c"
#include "cli/logits_file.c"
#include "model/tensor_file.h"

static es_status parse(const char *words, es_token **ids, size_t *count)
{
    es_text text = {0};
    es_text_puts(&text, words);
    const es_status status = es_parse_ids("FILE", &text, 512, ids, count);
    es_text_free(&text);
    return status;
}

static void numbers_are_parted_by_white_space_or_commas(void **state)
{
    (void)state;
    es_token *ids;
    size_t count;
    assert_int_equal(parse(" 1,2\t3\r\n,,511 ", &ids, &count), ES_OK);
    const es_token want[] = {1, 2, 3, 511};
    assert_int_equal(count, 4);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);
    assert_int_equal(parse("0", &ids, &count), ES_OK);
    assert_int_equal(count, 1);
    free(ids);
    /* The most numbers that a text can hold. */
    es_text digits = {0};
    for (int i = 0; i < 1000; i++) es_text_puts(&digits, i ? " 7" : "7");
    assert_int_equal(es_parse_ids("FILE", &digits, 512, &ids, &count), ES_OK);
    assert_int_equal(count, 1000);
    free(ids);
    es_text_free(&digits);
}

static void what_is_no_token_is_refused_with_its_line(void **state)
{
    (void)state;
    es_token *ids;
    size_t count;
    static const char *const bad[] = {"1\n2\n512", "1\n2\n-1", "1\n2\n1.5", "1\n2\n0x1", "1\n2\n99999999999999999999", "1\n\n[1]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i], &ids, &count), ES_INVALID);
        assert_non_null(strstr(es_error_message(), "line 3"));
    }
    assert_int_equal(parse("", &ids, &count), ES_INVALID);
    assert_int_equal(parse(" ,\n", &ids, &count), ES_INVALID);
}

static void logits_come_back_as_they_were_put(void **state)
{
    (void)state;
    char folder[] = "/tmp/es-logits-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[64];
    snprintf(path, sizeof path, "%s/out.safetensors", folder);
    const float rows[3][5] = {{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, -14.5f}};
    es_logits_file *file;
    assert_int_equal(es_logits_file_open(path, "logits", 3, 5, &file), ES_OK);
    assert_int_equal(es_logits_file_put(file, 2, rows[2]), ES_OK);
    assert_int_equal(es_logits_file_put(file, 0, rows[0]), ES_OK);
    assert_int_equal(es_logits_file_put(file, 3, rows[0]), ES_INTERNAL);
    assert_int_equal(es_logits_file_put(file, -1, rows[0]), ES_INTERNAL);
    assert_int_not_equal(access(path, F_OK), 0); /* not before it is whole */
    assert_int_equal(es_logits_file_put(file, 1, rows[1]), ES_OK);
    assert_int_equal(es_logits_file_commit(file), ES_OK);

    es_tensor_set *set;
    assert_int_equal(es_safetensors_open(path, &set), ES_OK);
    const es_tensor *logits = es_tensor_find(set, "logits");
    assert_non_null(logits);
    assert_int_equal(logits->type, ES_F32);
    assert_int_equal(logits->shape[0], 3);
    assert_int_equal(logits->shape[1], 5);
    assert_memory_equal(logits->data, rows, sizeof rows);
    es_tensor_set_close(set);

    /* A row is missing: the file that was there stays. */
    assert_int_equal(es_logits_file_open(path, "logits", 2, 5, &file), ES_OK);
    assert_int_equal(es_logits_file_put(file, 0, rows[0]), ES_OK);
    assert_int_equal(es_logits_file_commit(file), ES_INTERNAL);
    assert_int_equal(es_logits_file_open(path, "logits", 2, 5, &file), ES_OK);
    es_logits_file_abandon(file);
    assert_int_equal(es_safetensors_open(path, &set), ES_OK);
    assert_int_equal(es_tensor_find(set, "logits")->shape[0], 3);
    es_tensor_set_close(set);

    assert_int_equal(es_logits_file_open(folder, "logits", 2, 5, &file), ES_INVALID);
    assert_int_equal(es_logits_file_open(path, "logits", 0, 5, &file), ES_INVALID);
    assert_int_equal(es_logits_file_open(path, "logits", INT64_MAX, 5, &file), ES_INVALID);
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing half written is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_parted_by_white_space_or_commas),
        cmocka_unit_test(what_is_no_token_is_refused_with_its_line),
        cmocka_unit_test(logits_come_back_as_they_were_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
