/* answer_embeddings.c: embeddings in OpenAI's shape: as long as was asked for, and of length 1. */
#include <math.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/strict_json.h"

/* RFC 4648. */
static json_t *base64_json(const unsigned char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    es_text out = {0};
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const unsigned three = (unsigned)data[i] << 16 | (left > 1 ? (unsigned)data[i + 1] << 8 : 0) | (left > 2 ? data[i + 2] : 0);
        es_text_putc(&out, digits[three >> 18]);
        es_text_putc(&out, digits[three >> 12 & 63]);
        es_text_putc(&out, left > 1 ? digits[three >> 6 & 63] : '=');
        es_text_putc(&out, left > 2 ? digits[three & 63] : '=');
    }
    json_t *json = out.failed ? NULL : json_stringn(out.data ? out.data : "", out.bytes);
    es_text_free(&out);
    return json ? json : json_null();
}

/* The first numbers of an embedding, divided by their length; in place. A length of 0 stays. */
static void normalise(float *vector, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++) squares += (double)vector[i] * (double)vector[i];
    const double length = sqrt(squares);
    for (int i = 0; i < count && length > 0; i++) vector[i] = (float)((double)vector[i] / length);
}

static json_t *vector_json(const es_answer *answer, es_choice *choice)
{
    const int count = answer->call.dimensions < choice->embedding_count ? answer->call.dimensions : choice->embedding_count;
    if (count > 0) normalise(choice->embedding, count);
    if (answer->call.base64) return base64_json((const unsigned char *)choice->embedding, (size_t)count * sizeof *choice->embedding);
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, isfinite(choice->embedding[i]) ? json_real((double)choice->embedding[i]) : json_null());
    return list;
}

static json_t *whole(const es_answer *answer)
{
    const es_usage usage = es_answer_usage(answer);
    json_t *data = json_array();
    for (size_t i = 0; i < answer->choice_count; i++)
        json_array_append_new(data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i, "embedding",
                                              vector_json(answer, &answer->choices[i])));
    return json_pack("{s:s, s:o, s:o, s:{s:I, s:I}}", "object", "list", "data", data, "model",
                     es_json_text(answer->api->alias, strlen(answer->api->alias)), "usage", "prompt_tokens",
                     (json_int_t)usage.prompt, "total_tokens", (json_int_t)usage.prompt);
}

const es_shape es_shape_embeddings = {.whole = whole, .error = es_api_error_json};
