/* test_own_weights.c: weights copied into the device's own memory are the weights, wherever a piece of it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "device/device.h"

static void fill(unsigned char *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(seed + i * 7 + (i >> 12));
}

static void check_import(bool copied)
{
    const es_device_options options = {.threads = 1, .rows = 1, .spans = 1, .columns = 32, .context = 16, .copy_weights = copied};
    const size_t size[] = {1, 64, 100, (size_t)40 << 20, 65, (size_t)40 << 20, (size_t)65 << 20, 3};
    enum { COUNT = sizeof size / sizeof *size };
    es_device *device;
    es_buffer *buffer[COUNT];
    unsigned char *host[COUNT];
    assert_int_equal(es_device_open(ES_DEVICE_CPU, &options, &device), ES_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(host[i] = malloc(size[i]));
        fill(host[i], size[i], i);
        assert_int_equal(es_device_import(device, host[i], size[i], &buffer[i]), ES_OK);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        const unsigned char *at = es_device_peek(device, buffer[i], 0, size[i]);
        assert_int_equal(at != host[i], copied);
        assert_memory_equal(at, host[i], size[i]);
        if (copied) assert_int_equal((uintptr_t)at % 64, 0);
        es_device_release(device, buffer[i]);
    }
    es_device_close(device);
    for (unsigned i = 0; i < COUNT; i++) free(host[i]);
}

static void copies_are_the_weights(void **state)
{
    (void)state;
    check_import(true);
}

static void mapped_weights_stay_where_they_are(void **state)
{
    (void)state;
    check_import(false);
}

static void plenty_is_twice_as_much(void **state)
{
    (void)state;
    assert_true(es_device_copies_weights(ES_DEVICE_CPU, ES_WEIGHTS_AUTO, 1));
    assert_false(es_device_copies_weights(ES_DEVICE_CPU, ES_WEIGHTS_AUTO, SIZE_MAX / 2));
    assert_false(es_device_copies_weights(ES_DEVICE_CPU, ES_WEIGHTS_MAPPED, 1));
    assert_true(es_device_copies_weights(ES_DEVICE_CPU, ES_WEIGHTS_COPIED, SIZE_MAX / 2));
    assert_false(es_device_copies_weights(ES_DEVICE_CUDA, ES_WEIGHTS_COPIED, 1)); /* a GPU copies in any case */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_the_weights),
        cmocka_unit_test(mapped_weights_stay_where_they_are),
        cmocka_unit_test(plenty_is_twice_as_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
