/* fuzz_record.c: any bytes as a file of the prefix cache: refused, or a record that lies inside them. The checksum is put
 * right first for every other input, or nothing would ever come past it. */
#include <stdlib.h>
#include <string.h>

#include "cache/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const es_record_shape *shape, const uint8_t *data, size_t size)
{
    es_record r, head;
    const es_status status = es_record_parse(shape, data, size, &r);
    if (status != ES_OK) return;
    if (es_record_peek(shape, data, size, &head) != ES_OK || head.id != r.id || head.parent != r.parent) abort();
    if (r.id == 0 || r.parent >= r.id || r.count < 0 || r.count > shape->page) abort();
    if (es_record_bytes(shape, &r) != size || size > es_record_most(shape, r.kind)) abort();
    for (int32_t i = 0; i < r.count; i++)
        if (r.tokens[i] < 0 || r.tokens[i] >= shape->vocabulary) abort();
    if (r.page && (r.page < data || r.page + shape->page_bytes > data + size)) abort();
    if (r.state && (r.state < data || r.state + shape->state_bytes > data + size)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const es_record_shape shape = {
        .key = {5, 6},
          .page = 4, .vocabulary = 100, .page_bytes = 16, .state_bytes = 8
    };
    const es_record_shape plain = {
        .key = {5, 6},
          .page = 4, .vocabulary = 100, .page_bytes = 16
    };
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    check(&shape, copy, size);
    check(&plain, copy, size);
    if (size >= es_record_head()) {
        es_record_seal(copy, size);
        check(&shape, copy, size);
        check(&plain, copy, size);
    }
    free(copy);
    return 0;
}
