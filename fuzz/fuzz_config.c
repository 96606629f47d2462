/* Any text as a configuration file: refused with a sentence, or rows whose parts are strings inside it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The command line is no part of the library: the target brings its reader in itself. */
#include "cli/config.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), message[ES_CONFIG_MESSAGE] = "";
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    es_config config;
    if (!es_config_read(text, &config, message)) {
        if (!message[0]) abort();
        return 0;
    }
    for (size_t i = 0; i < config.count; i++) {
        const es_config_row *row = &config.rows[i];
        if (!row->name[0] || row->line < 1 || row->name < text || row->name > text + size) abort();
        if (strlen(row->value) > size || strlen(row->section) > size) abort();
    }
    es_config_free(&config);
    return 0;
}
