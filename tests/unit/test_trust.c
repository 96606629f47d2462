/* Verdicts: kept, read back, and obeyed by the kernel table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "device/cpu/check.h"
#include "device/cpu/trust.h"

static char folder[] = "/tmp/evenshare_trust_XXXXXX";

static int set_up(void **state)
{
    (void)state;
    unsetenv("ES_INSTRUCTION_SET"), unsetenv("ES_TRUST");
    return mkdtemp(folder) && setenv("XDG_CACHE_HOME", folder, 1) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void put(es_verdicts *v, const char *set, const char *operation, const char *type, es_verdict verdict)
{
    es_verdict_row row = {.verdict = verdict, .speedup = 2.5, .detail = "why"};
    es_verdict_kernel(row.kernel, set, operation, type);
    es_verdicts_put(v, &row);
}

static void put_all(es_verdicts *v, const char *set, es_verdict verdict)
{
    for (int i = 0; i < es_check_count(); i++) {
        const char *operation, *type;
        es_check_name(i, &operation, &type);
        put(v, set, operation, type, verdict);
    }
}

static int entry_of(const char *wanted, const char *of_type)
{
    for (int i = 0; i < es_kernels_entries(); i++) {
        const char *operation, *type;
        es_kernels_entry(i, &operation, &type);
        if (strcmp(operation, wanted) == 0 && (!of_type || strcmp(type, of_type) == 0)) return i;
    }
    fail();
    return -1;
}

static void what_is_kept_is_read_back(void **state)
{
    (void)state;
    es_verdicts *v, *again;
    assert_int_equal(es_verdicts_open(&v), ES_OK);
    assert_int_equal(es_verdicts_load(v), ES_NOT_FOUND);
    put(v, "avx2", "dot", NULL, ES_VERDICT_TRUSTED);
    put(v, "avx2", "decode", "Q4_K", ES_VERDICT_HUNG);
    assert_int_equal(es_verdicts_save(v), ES_OK);
    assert_int_equal(es_verdicts_open(&again), ES_OK);
    assert_int_equal(es_verdicts_load(again), ES_OK);
    assert_int_equal(again->count, 2);
    assert_memory_equal(again->row, v->row, 2 * sizeof *v->row);
    /* Another build, device or driver has its own. */
    again->count = 0;
    again->build[0] ^= 1;
    assert_int_equal(es_verdicts_load(again), ES_NOT_FOUND);
    free(v), free(again);
}

/* The worst row that exercises an entry decides; a decoder's fault is not blamed on the products that use it. */
static void rows_speak_about_entries(void **state)
{
    (void)state;
    es_verdicts *v;
    assert_int_equal(es_verdicts_open(&v), ES_OK);
    const int dot = entry_of("dot", NULL), scan = entry_of("delta_scan", NULL), q4 = entry_of("decode", "Q4_K");
    assert_int_equal(es_kernels_entry_verdict(v, "avx2", dot), ES_VERDICT_UNKNOWN);
    put_all(v, "avx2", ES_VERDICT_TRUSTED);
    for (int i = 0; i < es_kernels_entries(); i++)
        assert_int_equal(es_kernels_entry_verdict(v, "avx2", i), ES_VERDICT_TRUSTED);
    put(v, "avx2", "delta_step", NULL, ES_VERDICT_CRASHED);
    assert_int_equal(es_kernels_entry_verdict(v, "avx2", scan), ES_VERDICT_CRASHED);
    put(v, "avx2", "decode", "Q4_K", ES_VERDICT_WRONG);
    put(v, "avx2", "matmul", "Q4_K", ES_VERDICT_WRONG);
    assert_int_equal(es_kernels_entry_verdict(v, "avx2", q4), ES_VERDICT_WRONG);
    assert_int_equal(es_kernels_entry_verdict(v, "avx2", dot), ES_VERDICT_TRUSTED);
    put(v, "avx2", "matvec", "F32", ES_VERDICT_HUNG);
    assert_int_equal(es_kernels_entry_verdict(v, "avx2", dot), ES_VERDICT_HUNG);
    free(v);
}

static void the_table_takes_trusted_kernels_only(void **state)
{
    (void)state;
    es_kernels reference, avx2, chosen;
    es_kernels_reference(&reference);
    if (es_kernels_of_set("avx2", &avx2) != ES_OK) skip();
    es_verdicts *v;
    assert_int_equal(es_verdicts_open(&v), ES_OK);
    put_all(v, "avx2", ES_VERDICT_TRUSTED);
    put(v, "avx2", "swiglu", NULL, ES_VERDICT_WRONG);
    assert_int_equal(es_verdicts_save(v), ES_OK);
    assert_int_equal(es_kernels_select("avx2", &chosen), ES_OK);
    assert_true(chosen.swiglu == reference.swiglu && chosen.rmsnorm == avx2.rmsnorm && chosen.dot == avx2.dot);
    /* AVX-512 and the others have no verdict, so nothing of theirs is taken. */
    assert_int_equal(es_kernels_select(NULL, &chosen), ES_OK);
    assert_true(chosen.rmsnorm == avx2.rmsnorm && strcmp(chosen.instruction_set, "avx2") == 0);
    v->device_hung = true;
    assert_int_equal(es_verdicts_save(v), ES_OK);
    assert_int_equal(es_kernels_select(NULL, &chosen), ES_OK);
    assert_true(chosen.rmsnorm == reference.rmsnorm && chosen.dot == reference.dot);
    setenv("ES_TRUST", "all", 1);
    assert_int_equal(es_kernels_select("avx2", &chosen), ES_OK);
    assert_true(chosen.swiglu == avx2.swiglu);
    unsetenv("ES_TRUST");
    free(v);
}

static void known_fatal_ones_are_found(void **state)
{
    (void)state;
    assert_non_null(es_known_fatal("Iluvatar BI-V100", "any", "cuda/triton_prefill"));
    assert_null(es_known_fatal("Iluvatar BI-V100", "any", "cuda/prefill"));
    assert_null(es_known_fatal("Intel", "Linux", "avx512/dot"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_is_read_back), cmocka_unit_test(rows_speak_about_entries),
        cmocka_unit_test(the_table_takes_trusted_kernels_only), cmocka_unit_test(known_fatal_ones_are_found)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
