/* The CUDA backend where there may be no GPU: what is missing is said in a sentence, and nothing falls over. With a GPU, a few
 * operations are compared with the CPU's (evenshare doctor compares all). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/compare.h"
#include "device/cuda/load.h"

static const es_device_options small = {.rows = 4, .spans = 2, .context = 64, .columns = 64, .numeric = ES_NUMERIC_F32};

/* First of all: a library that was opened stays open. */
static void a_missing_library_is_named(void **state)
{
    (void)state;
    es_device *device = NULL;
    setenv("ES_CUDA_LIBRARY", "/nowhere/libevenshare_cuda.so", 1);
    assert_int_equal(es_device_open(ES_DEVICE_CUDA, &small, &device), ES_UNSUPPORTED);
    assert_null(device);
    assert_non_null(strstr(es_error_message(), "/nowhere/libevenshare_cuda.so"));
}

/* Before any library is looked for. */
static void keys_and_values_of_the_cpus_types_are_refused(void **state)
{
    (void)state;
    static const struct {
        es_kv_type type;
        const char *says;
    } of[] = {{ES_KV_Q8_0, "--kv-type q8_0 needs --device cpu"}, {ES_KV_F16, "--kv-type f16 needs --device cpu"}};
    for (int i = 0; i < 2; i++) {
        const es_device_options options = {.numeric = ES_NUMERIC_BF16, .kv_type = of[i].type};
        es_device *device = NULL;
        assert_int_equal(es_device_open(ES_DEVICE_CUDA, &options, &device), ES_UNSUPPORTED);
        assert_non_null(strstr(es_error_message(), of[i].says));
    }
}

static void a_foreign_library_is_refused(void **state)
{
    (void)state;
    es_device *device = NULL;
    setenv("ES_CUDA_LIBRARY", "libm.so.6", 1);
    assert_int_equal(es_device_open(ES_DEVICE_CUDA, &small, &device), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "another build"));
    unsetenv("ES_CUDA_LIBRARY");
}

/* Where the library is built and no driver answers, or no library is there: the same status, a sentence, no crash. */
static void a_missing_gpu_is_a_sentence(void **state)
{
    (void)state;
    es_device *device = NULL;
    unsetenv("ES_CUDA_LIBRARY");
    const es_status status = es_device_open(ES_DEVICE_CUDA, &small, &device);
    print_message("%s\n", status == ES_OK ? "there is a GPU" : es_error_message());
    if (status == ES_OK) {
        es_device_close(device);
        for (int i = 0; i < es_compare_count(); i += 13) {
            es_compare_row row;
            assert_int_equal(es_compare_run(ES_DEVICE_CUDA, i, &row), ES_OK);
            if (!row.equal) fail_msg("%s: %s", row.operation, row.difference);
        }
        return;
    }
    assert_int_equal(status, ES_UNSUPPORTED);
    assert_true(strstr(es_error_message(), "driver") || strstr(es_error_message(), "no GPU") ||
                strstr(es_error_message(), "beside the program"));
}

static void without_a_gpu_auto_is_the_cpu(void **state)
{
    (void)state;
    unsetenv("ES_DEVICE");
    assert_int_equal(es_device_resolve(ES_DEVICE_CPU), ES_DEVICE_CPU);
    assert_int_equal(es_device_resolve(ES_DEVICE_CUDA), ES_DEVICE_CUDA);
    es_device *device = NULL;
    if (es_device_open(ES_DEVICE_CUDA, &small, &device) != ES_OK)
        assert_int_equal(es_device_resolve(ES_DEVICE_AUTO), ES_DEVICE_CPU);
    es_device_close(device);
}

/* The harness itself: the CPU against itself has no difference in any row that is quick. */
static void the_comparison_finds_no_difference_in_itself(void **state)
{
    (void)state;
    for (int i = 0; i < es_compare_count(); i++) {
        es_compare_row row;
        es_compare_name(i, &row);
        if (strcmp(row.operation, "delta") != 0 && strcmp(row.operation, "attention_64") != 0) continue;
        assert_int_equal(es_compare_run(ES_DEVICE_CPU, i, &row), ES_OK);
        assert_true(row.equal);
        assert_true(row.worst == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(a_foreign_library_is_refused),
        cmocka_unit_test(keys_and_values_of_the_cpus_types_are_refused),
        cmocka_unit_test(a_missing_gpu_is_a_sentence),
        cmocka_unit_test(without_a_gpu_auto_is_the_cpu),
        cmocka_unit_test(the_comparison_finds_no_difference_in_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
