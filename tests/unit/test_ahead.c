/* What is asked for is made present once, part by part, states before pages, in the order in which it was asked for. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/ahead.h"
#include "model/model.h"

enum { LAYERS = 2, PARTS = 2 * LAYERS, PAGES = 4096, STATES = 3, MOST = 256 };

/* What the machine was asked to prepare. The first call waits until the test has asked for everything. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    int count;
    const void *buffer[MOST];
    size_t offset[MOST], bytes[MOST];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note_populate(es_device *device, es_buffer *buffer, size_t offset, size_t bytes)
{
    (void)device;
    pthread_mutex_lock(&seen.lock);
    while (!seen.open) pthread_cond_wait(&seen.changed, &seen.lock);
    assert_true(seen.count < MOST);
    seen.buffer[seen.count] = buffer;
    seen.offset[seen.count] = offset;
    seen.bytes[seen.count++] = bytes;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}

static void await_calls(int count)
{
    pthread_mutex_lock(&seen.lock);
    seen.open = true;
    pthread_cond_broadcast(&seen.changed);
    while (seen.count < count) pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

static es_device_ops ops = {.populate = note_populate};
static es_device device = {.ops = &ops};
static es_model model = {.config = {.attention_layers = LAYERS, .delta_layers = LAYERS, .query_heads = 2, .kv_heads = 1, .head_dim = 64,
                                    .delta = {.key_heads = 1, .value_heads = 1, .key_dim = 16, .value_dim = 16}}};
static char buffers[3 * PARTS]; /* only their addresses count */
static es_slice kv[PARTS], conv_state[LAYERS], delta_state[LAYERS];

static es_network new_network(void)
{
    for (int i = 0; i < PARTS; i++) kv[i].buffer = (es_buffer *)(void *)&buffers[i];
    for (int i = 0; i < LAYERS; i++) {
        conv_state[i].buffer = (es_buffer *)(void *)&buffers[PARTS + i];
        delta_state[i].buffer = (es_buffer *)(void *)&buffers[PARTS + LAYERS + i];
    }
    return (es_network){.model = &model, .device = &device, .kv = kv, .conv_state = conv_state, .delta_state = delta_state,
                        .sizes = {.page = 64, .kv_type = ES_KV_BF16}};
}

static void check_number(int call, const es_slice *parts, int32_t number)
{
    for (int i = 0; i < PARTS; i++) {
        assert_ptr_equal(seen.buffer[call + i], parts[i].buffer);
        assert_int_equal(seen.offset[call + i], (size_t)number * seen.bytes[call + i]);
        assert_true(seen.bytes[call + i] > 0);
    }
}

static void each_number_is_prepared_once_in_order(void **state)
{
    (void)state;
    es_network network = new_network();
    es_ahead ahead;
    es_ahead_open(&ahead, &network, PAGES, STATES);
    assert_true(ahead.started);
    const int32_t pages[] = {7, 2, 7, 4000};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) es_ahead_ask(&ahead, ES_AHEAD_PAGES, pages[i]);
    es_ahead_ask(&ahead, ES_AHEAD_PAGES, PAGES); /* there is no such page */
    es_ahead_ask(&ahead, ES_AHEAD_STATES, 1);
    es_ahead_ask(&ahead, ES_AHEAD_STATES, 1);
    await_calls(4 * PARTS);
    es_slice states[PARTS];
    for (int i = 0; i < PARTS; i++) states[i] = i % 2 ? delta_state[i / 2] : conv_state[i / 2];
    /* The thread may have been at the first part of page 7 when the state was asked for. */
    const int first = seen.buffer[0] == kv[0].buffer;
    check_number(first, states, 1);
    if (first) assert_int_equal(seen.offset[0], 7 * seen.bytes[0]);
    for (int i = first; i < PARTS; i++) assert_ptr_equal(seen.buffer[PARTS + i], kv[i].buffer);
    check_number(2 * PARTS, kv, 2);
    check_number(3 * PARTS, kv, 4000);
    es_ahead_close(&ahead);
    assert_int_equal(seen.count, 4 * PARTS);
}

static void margins_are_bounded_by_what_there_is(void **state)
{
    (void)state;
    es_network network = new_network();
    es_ahead ahead;
    es_ahead_open(&ahead, &network, PAGES, STATES);
    assert_int_equal(es_ahead_margin(&ahead, ES_AHEAD_STATES), STATES);
    assert_int_equal(es_ahead_margin(&ahead, ES_AHEAD_PAGES), PAGES / 8);
    es_ahead_close(&ahead);
}

static void where_nothing_is_to_be_prepared_nothing_is_asked_for(void **state)
{
    (void)state;
    ops.populate = NULL;
    es_network network = new_network();
    es_ahead ahead;
    es_ahead_open(&ahead, &network, PAGES, STATES);
    assert_false(ahead.started);
    assert_int_equal(es_ahead_margin(&ahead, ES_AHEAD_PAGES), 0);
    es_ahead_ask(&ahead, ES_AHEAD_PAGES, 3);
    es_ahead_close(&ahead);
    ops.populate = note_populate;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_prepared_once_in_order),
        cmocka_unit_test(margins_are_bounded_by_what_there_is),
        cmocka_unit_test(where_nothing_is_to_be_prepared_nothing_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
