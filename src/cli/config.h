/* config.h: options from a file, for --config FILE.
 *
 *   # for every command that has such an option
 *   threads = 8
 *   [serve]
 *   host = 0.0.0.0
 *   api-key-file = /etc/evenshare/keys
 *   stop = "\n\n"           # quotes keep spaces; \n \t \" \\ inside them
 *   no-cache = yes
 *
 * Names are those of the long options; a name may stand several times where the option may. */
#ifndef ES_CLI_CONFIG_H
#define ES_CLI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

typedef struct es_config_row {
    const char *section; /**< "" = every command */
    const char *name, *value;
    int line;
} es_config_row;

typedef struct es_config {
    es_config_row *rows; /**< owned, in the order of the file */
    size_t count;
    char *text; /**< owned; the rows point into it */
} es_config;

enum { ES_CONFIG_MESSAGE = 256 };

/** Take `text` (owned by the config from now on, NUL-terminated) apart. False with a sentence that names the line. */
bool es_config_read(char *text, es_config *config, char message[ES_CONFIG_MESSAGE]);
void es_config_free(es_config *config);

#endif
