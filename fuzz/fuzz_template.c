/* fuzz_template.c: a chat template from bytes, rendered over a fixed conversation with small limits. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char VARIABLES[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
                                "\"content\": \"Gr\\u00fc\\u00dfe \\ud83c\\udf89\"},"
                                " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
                                "\"f\", \"arguments\": {\"x\": [1, 2.5, true]}}}]},"
                                " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"12\"}]}], \"tools\": "
                                "[{\"function\": {\"name\": \"f\"}}],"
                                " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": -3, \"f\": 1e300, \"e\": "
                                "\"\", \"l\": [3, 1, 2], \"d\": {\"a\": 1}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *variables;
    if (!variables) variables = json_loads(VARIABLES, 0, NULL);
    es_chat_template *chat = NULL;
    if (es_chat_template_parse("fuzz", (const char *)data, size, &chat) != ES_OK) return 0;
    const es_template_limits limits = {.steps = 20000, .output = (size_t)1 << 18, .depth = 60};
    es_text out = {0};
    es_chat_template_render(chat, variables, 1785585600, &limits, &out);
    es_text_free(&out);
    es_chat_template_free(chat);
    return 0;
}
