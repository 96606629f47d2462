/* fuzz_transcript.c: whatever a server sends, `check` reads it without harm, and the same however it is cut. The first byte
 * says how: as a whole reply or a stream, of a chat or a completion, and in which steps. */
#include <stdlib.h>
#include <string.h>

#include "check/transcript.h"

static void feed(es_transcript *t, const char *data, size_t size, size_t step, int chat)
{
    es_transcript_init(t, chat);
    for (size_t i = 0; i < size; i += step) es_transcript_feed(t, data + i, size - i < step ? size - i : step, 1);
    es_transcript_end(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const int how = data[0];
    const char *text = (const char *)data + 1;
    size--;
    es_transcript one, other;
    if (how & 1) {
        es_transcript_init(&one, how & 2);
        es_transcript_whole(&one, text, size);
        es_transcript_free(&one);
        return 0;
    }
    feed(&one, text, size, size ? size : 1, how & 2);
    feed(&other, text, size, 1 + (size_t)(how >> 4), how & 2);
    if (strcmp(one.fault, other.fault) != 0 || one.text.bytes != other.text.bytes) abort();
    if (one.times.count != other.times.count) abort();
    es_transcript_free(&one);
    es_transcript_free(&other);
    return 0;
}
