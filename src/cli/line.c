/* line.c: see line.h. */
#include "cli/line.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#ifdef ES_HAVE_EDIT
#include <histedit.h>
#endif

struct es_line {
    es_stream *stream;
    const char *prompt;
#ifdef ES_HAVE_EDIT
    EditLine *edit;
    History *history;
#endif
};

enum { CONTROL_U = 21 };

/* One byte of standard input: 1, 0 at its end, −1 on Ctrl-C. */
static int read_byte(const es_line *line, char *byte)
{
    if (!es_stream_wait_input(line->stream, STDIN_FILENO)) return -1;
    ssize_t got;
    do got = read(STDIN_FILENO, byte, 1);
    while (got < 0 && errno == EINTR);
    return got == 1 ? 1 : 0;
}

#ifdef ES_HAVE_EDIT
static char *prompt_of(EditLine *edit)
{
    es_line *line = NULL;
    el_get(edit, EL_CLIENTDATA, &line);
    return (char *)(uintptr_t)line->prompt; /* libedit does not write to it */
}

/* libedit asks for one character. Ctrl-C becomes Ctrl-U, which empties the line. */
static int read_character(EditLine *edit, wchar_t *out)
{
    es_line *line = NULL;
    el_get(edit, EL_CLIENTDATA, &line);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        const int got = read_byte(line, &byte);
        if (got < 0) {
            *out = CONTROL_U;
            return 1;
        }
        if (got == 0) return 0;
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* part of a character */
        if (used == (size_t)-1) {
            *out = L'?';
            errno = 0;
        }
        return 1;
    }
}

es_status es_line_open(es_stream *stream, es_line **out)
{
    setlocale(LC_CTYPE, ""); /* so that libedit knows how wide characters are */
    if (strcmp(setlocale(LC_CTYPE, NULL), "C") == 0) setlocale(LC_CTYPE, "C.UTF-8");
    es_line *line = calloc(1, sizeof *line);
    if (!line) return es_fail(ES_NO_MEMORY, "out of memory");
    line->stream = stream;
    line->edit = el_init("evenshare", stdin, stdout, stderr);
    line->history = history_init();
    if (!line->edit || !line->history) {
        es_line_close(line);
        return es_fail(ES_IO, "the terminal cannot be edited on; give a prompt with -p or through a pipe");
    }
    HistEvent event;
    history(line->history, &event, H_SETSIZE, 1000);
    el_set(line->edit, EL_CLIENTDATA, line);
    el_set(line->edit, EL_PROMPT, prompt_of);
    el_set(line->edit, EL_EDITOR, "emacs");
    el_set(line->edit, EL_HIST, history, line->history);
    el_set(line->edit, EL_GETCFN, read_character);
    *out = line;
    return ES_OK;
}

void es_line_close(es_line *line)
{
    if (!line) return;
    if (line->history) history_end(line->history);
    if (line->edit) el_end(line->edit);
    free(line);
}

static bool read_one(es_line *line, es_text *out)
{
    int count = 0;
    const char *typed = el_gets(line->edit, &count);
    if (!typed || count <= 0) return false;
    HistEvent event;
    if (typed[0] != '\n') history(line->history, &event, H_ENTER, typed);
    es_text_append(out, typed, (size_t)count);
    return true;
}
#else
es_status es_line_open(es_stream *stream, es_line **out)
{
    es_line *line = calloc(1, sizeof *line);
    if (!line) return es_fail(ES_NO_MEMORY, "out of memory");
    line->stream = stream;
    *out = line;
    return ES_OK;
}

void es_line_close(es_line *line)
{
    free(line);
}

static bool read_one(es_line *line, es_text *out)
{
    const size_t start = out->bytes;
    fputs(line->prompt, stdout);
    fflush(stdout);
    for (;;) {
        char byte;
        const int got = read_byte(line, &byte);
        if (got < 0) {
            out->bytes = start;
            printf("^C\n%s", line->prompt);
            fflush(stdout);
            continue;
        }
        if (got == 0) return out->bytes > start;
        es_text_putc(out, byte);
        if (byte == '\n') return true;
    }
}
#endif

bool es_line_read(es_line *line, const char *prompt, es_text *out)
{
    es_text_clear(out);
    line->prompt = prompt;
    for (;;) {
        if (!read_one(line, out)) return false;
        while (out->bytes && (out->data[out->bytes - 1] == '\n' || out->data[out->bytes - 1] == '\r'))
            out->data[--out->bytes] = '\0';
        if (!out->bytes || out->data[out->bytes - 1] != '\\') return true;
        out->data[out->bytes - 1] = '\n';
        line->prompt = ". ";
    }
}
