/* Random models: every mix opens as a model, its tokenizer gives text back, and its weights have the spread that was asked for,
 * so that nothing overflows on the way through a network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <math.h>

#include "device/cpu/kernels.h"
#include "model/model.h"
#include "device/random_blocks.h"
#include "model/random_model.h"

static void every_type_has_the_spread_asked_for(void **state)
{
    (void)state;
    enum { ELEMENTS = 256 * 512 };
    static float value[ELEMENTS];
    es_kernels kernels;
    es_kernels_reference(&kernels);
    for (es_dtype type = ES_F32; type < ES_I32; type++) {
        unsigned char *blocks = malloc(es_dtype_bytes(type, ELEMENTS));
        es_bits bits = {7};
        es_random_blocks(&bits, type, ELEMENTS / es_dtype_get_info(type)->block, 0.02f, blocks);
        kernels.decode[type](blocks, value, ELEMENTS);
        double sum = 0, squares = 0;
        for (int i = 0; i < ELEMENTS; i++) sum += (double)value[i], squares += (double)value[i] * (double)value[i];
        const double mean = sum / ELEMENTS, spread = sqrt(squares / ELEMENTS - mean * mean);
        if (fabs(mean) > 0.003 || spread < 0.016 || spread > 0.024)
            fail_msg("%s: mean %g, spread %g", es_dtype_get_info(type)->name, mean, spread);
        free(blocks);
    }
}

static void open_one(const char *shape, const char *type)
{
    char path[] = "/tmp/evenshare-random-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    if (es_random_model_write(es_model_shape_find(shape), type, 3, path) != ES_OK) fail_msg("%s", es_error_message());
    es_model *model;
    if (es_model_open(path, &model) != ES_OK) fail_msg("%s %s: %s", shape, type, es_error_message());
    assert_true(es_model_has_chat(model));
    assert_int_equal(es_tokenizer_size(es_model_tokenizer(model)), es_model_get_info(model)->vocabulary);
    es_model_close(model);
    unlink(path);
}

static void every_mix_opens(void **state)
{
    (void)state;
    char list[128];
    snprintf(list, sizeof list, "%s", es_model_mix_list());
    for (char *rest = list, *type; (type = strtok_r(rest, "|", &rest));) {
        open_one("tiny-hybrid", type);
        open_one("tiny-dense", type);
    }
    assert_null(es_model_shape_find("tiny"));
    assert_int_equal(es_random_model_write(es_model_shape_find("tiny-dense"), "q3_k", 1, "/tmp/evenshare-nothing"), ES_INVALID);
    assert_int_equal(es_random_model_write(es_model_shape_find("tiny-dense"), "q8_0", 1, "/nowhere/x.gguf"), ES_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_the_spread_asked_for),
        cmocka_unit_test(every_mix_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
