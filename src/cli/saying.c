/* saying.c: see saying.h. */
#include "cli/saying.h"

#include <stdio.h>

static void write_out(es_saying *s, const char *text, size_t bytes)
{
    if (s->quiet || bytes == 0) return;
    fwrite(text, 1, bytes, stdout);
    s->last = text[bytes - 1];
}

static void set_dim(es_saying *s, bool dim)
{
    if (s->quiet || s->dim == dim) return;
    s->dim = dim;
    fputs(dim ? "\033[2m" : "\033[0m", stdout);
}

static void on_part(void *user, es_part part, const char *text, size_t bytes)
{
    es_saying *s = user;
    if (part == ES_PART_REASONING) {
        es_text_append(&s->reasoning, text, bytes);
        if (!s->live) return;
        set_dim(s, true);
    } else {
        if (s->dim) {
            set_dim(s, false);
            write_out(s, "\n\n", s->last == '\n' ? 1 : 2);
        }
        es_text_append(&s->answer, text, bytes);
    }
    write_out(s, text, bytes);
}

static es_status check(const es_saying *s)
{
    return s->reasoning.failed || s->answer.failed ? es_fail(ES_NO_MEMORY, "the answer does not fit the memory") : ES_OK;
}

es_status es_saying_open(es_answer_format format, bool live, bool quiet, es_saying *saying)
{
    *saying = (es_saying){.quiet = quiet, .live = live, .last = '\n'};
    format.tools = ES_TOOLS_NONE; /* nobody here could run one */
    return es_answer_parser_open(format, NULL, on_part, saying, &saying->parser);
}

es_status es_saying_add(es_saying *saying, const char *text, size_t bytes)
{
    ES_TRY(es_answer_parser_add(saying->parser, text, bytes));
    if (!saying->quiet) fflush(stdout);
    return check(saying);
}

es_status es_saying_finish(es_saying *saying)
{
    const es_status status = es_answer_parser_finish(saying->parser);
    set_dim(saying, false);
    if (saying->last != '\n') write_out(saying, "\n", 1);
    if (!saying->quiet) fflush(stdout);
    return status == ES_OK ? check(saying) : status;
}

void es_saying_free(es_saying *saying)
{
    es_answer_parser_close(saying->parser);
    es_text_free(&saying->reasoning);
    es_text_free(&saying->answer);
    *saying = (es_saying){.parser = NULL};
}
