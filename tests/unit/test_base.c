/* The base layer: errors, growing text, files, counter-based random numbers. */
#include <setjmp.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"

/* Known answers of Philox 4x32-10, as its authors publish them with their library. */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    const uint32_t zero_key[2] = {0, 0}, zero[4] = {0, 0, 0, 0};
    es_philox_block b = es_philox(zero_key, zero);
    const uint32_t expect0[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(b.word, expect0, sizeof expect0);

    const uint32_t ones_key[2] = {~0u, ~0u}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    b = es_philox(ones_key, ones);
    const uint32_t expect1[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(b.word, expect1, sizeof expect1);
}

static void error_messages_are_cut_between_characters(void **state)
{
    (void)state;
    char longtext[2000];
    memset(longtext, 'a', sizeof longtext);
    for (size_t i = 1; i + 1 < sizeof longtext; i += 2) longtext[i] = (char)0xC3, longtext[i + 1] = (char)0xA9;
    longtext[sizeof longtext - 1] = '\0';
    assert_int_equal(es_fail(ES_INVALID, "%s", longtext), ES_INVALID);
    const char *m = es_error_message();
    const size_t n = strlen(m);
    assert_true(n < 1024);
    assert_int_not_equal((unsigned char)m[n - 1] & 0xC0, 0xC0);
}

static void errors_gain_context_on_the_way_up(void **state)
{
    (void)state;
    es_status st = es_fail(ES_BAD_FILE, "cut short");
    assert_int_equal(es_fail_within(st, "model %s", "x"), ES_BAD_FILE);
    assert_string_equal(es_error_message(), "model x: cut short");
}

static void text_stops_at_its_limit_and_says_so(void **state)
{
    (void)state;
    es_text t = {.limit = 10};
    es_text_puts(&t, "12345");
    es_text_printf(&t, "%d", 67890);
    assert_false(t.failed);
    es_text_putc(&t, 'x');
    assert_true(t.failed);
    assert_string_equal(t.data, "1234567890");
    es_text_clear(&t);
    es_text_put_codepoint(&t, 0x20AC);
    es_text_put_codepoint(&t, 0xD800);
    assert_string_equal(t.data, "\xE2\x82\xAC\xEF\xBF\xBD");
    es_text_free(&t);
}

/* Growing by what each append needs would move the whole string each time: quadratic. */
static void text_grows_by_doubling(void **state)
{
    (void)state;
    es_text t = {0};
    size_t moves = 0;
    for (size_t i = 0, capacity = 0; i < 100000; i++) {
        es_text_putc(&t, 'x');
        moves += t.capacity != capacity;
        capacity = t.capacity;
    }
    assert_in_range(moves, 1, 20);
    es_text_free(&t);
}

static void missing_files_and_folders_are_told_apart(void **state)
{
    (void)state;
    es_file f;
    assert_int_equal(es_file_map("/no/such/file", &f), ES_NOT_FOUND);
    assert_int_equal(es_file_map("/tmp", &f), ES_INVALID);
    char *data;
    assert_int_equal(es_file_read("/no/such/file", 10, &data, NULL), ES_NOT_FOUND);
}

/* Whatever the length: from the start of a huge page, zeroed, all of it writable, and given back whole. */
static void mapped_memory_starts_a_huge_page(void **state)
{
    (void)state;
    const size_t huge = (size_t)2 << 20, lengths[] = {1, 4096, 4097, huge - 1, huge, 5 * huge + 123};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char *data = es_memory_map(lengths[i]);
        assert_non_null(data);
        assert_int_equal((uintptr_t)data % huge, 0);
        for (size_t k = 0; k < lengths[i]; k += 4096) assert_int_equal(data[k], 0);
        memset(data, 7, lengths[i]);
        es_memory_unmap(data, lengths[i]);
    }
    assert_null(es_memory_map(SIZE_MAX));
    assert_null(es_memory_map(SIZE_MAX / 2));
}

/* What was written stays, what was not is zero and there; a kernel before Linux 5.14 may leave it to the first write. */
static void memory_can_be_had_before_it_is_written(void **state)
{
    (void)state;
    const size_t bytes = (size_t)8 << 20, page = 4096;
    unsigned char *data = es_memory_map(bytes), there[5] = {0};
    assert_non_null(data);
    madvise(data, bytes, MADV_NOHUGEPAGE);
    data[page + 5] = 9;
    es_memory_populate(data + page + 100, 3 * page);
    assert_int_equal(mincore(data, sizeof there * page, there), 0);
    if (madvise(data, page, 23 /* MADV_POPULATE_WRITE */) != 0 && errno == EINVAL) skip(); /* the kernel knows no such wish */
    for (int i = 1; i < 5; i++) assert_true(there[i] & 1);
    assert_false(there[0] & 1);
    assert_int_equal(data[page + 5], 9);
    assert_int_equal(data[2 * page], 0);
    es_memory_unmap(data, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(error_messages_are_cut_between_characters),
        cmocka_unit_test(errors_gain_context_on_the_way_up),
        cmocka_unit_test(text_stops_at_its_limit_and_says_so),
        cmocka_unit_test(text_grows_by_doubling),
        cmocka_unit_test(missing_files_and_folders_are_told_apart),
        cmocka_unit_test(mapped_memory_starts_a_huge_page),
        cmocka_unit_test(memory_can_be_had_before_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
