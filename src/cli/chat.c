/* chat.c: a conversation on a terminal. Each turn renders the whole conversation with the model's template, so that what the
 * model reads is what a client of the server would have sent. */
#include "cli/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/line.h"
#include "cli/messages.h"

static const char help_text[] =
    "  /help          this text\n"
    "  /clear         forget the conversation\n"
    "  /system TEXT   begin anew with other instructions\n"
    "  /exit          leave (so does Ctrl-D)\n"
    "  Ctrl-C         stop the answer\n"
    "A backslash at the end of a line goes on in the next one.\n";

typedef struct conversation {
    const es_asking *asking;
    es_messages messages;
} conversation;

/* True when `line` is this command, alone or with an argument. */
static const char *argument_of(const char *line, const char *command)
{
    const size_t bytes = strlen(command);
    if (strncmp(line, command, bytes) != 0) return NULL;
    if (line[bytes] == '\0') return line + bytes;
    return line[bytes] == ' ' ? line + bytes + 1 : NULL;
}

/* A line that begins with a slash. False when it ends the conversation. */
static bool obey(conversation *talk, const char *line)
{
    const char *argument;
    if (argument_of(line, "/exit") || argument_of(line, "/quit")) return false;
    if (argument_of(line, "/help")) {
        fputs(help_text, stdout);
    } else if (argument_of(line, "/clear")) {
        es_messages_clear(&talk->messages);
        puts("forgotten");
    } else if ((argument = argument_of(line, "/system"))) {
        es_messages_clear(&talk->messages);
        es_messages_set_system(&talk->messages, *argument ? argument : NULL);
        puts(*argument ? "begun anew with these instructions" : "begun anew without instructions");
    } else {
        printf("there is no %s; /help lists the commands\n", line);
    }
    return true;
}

static es_status answer(conversation *talk, const char *line)
{
    es_messages *messages = &talk->messages;
    es_text text = {0};
    ES_TRY(es_messages_add(messages, "user", line));
    es_stream_result result = {.prompt_tokens = 0};
    es_status status = es_messages_render(messages, talk->asking->model, &text);
    if (status == ES_OK) status = es_ask(talk->asking, text.data, text.bytes, false, &result);
    es_text_free(&text);
    if (status != ES_OK) {
        es_messages_drop_last(messages);
        return status;
    }
    status = es_messages_add(messages, "assistant", result.text.data ? result.text.data : "");
    if (talk->asking->figures) es_print_figures(&result);
    es_stream_result_free(&result);
    return status;
}

int es_chat(const es_asking *asking)
{
    conversation talk = {.asking = asking};
    es_line *line = NULL;
    es_text typed = {0};
    es_status status = es_messages_open(asking->system, asking->thinking, &talk.messages);
    if (status == ES_OK) status = es_line_open(asking->stream, &line);
    if (status == ES_OK) printf("%s: /help for help, Ctrl-D to leave\n", es_model_get_info(asking->model)->name);
    while (status == ES_OK && es_line_read(line, "> ", &typed)) {
        if (typed.failed || !typed.bytes) continue;
        if (typed.data[0] == '/') {
            if (!obey(&talk, typed.data)) break;
            continue;
        }
        const es_status turn = answer(&talk, typed.data);
        /* A conversation outlives a turn that went wrong: too long, refused by the template. */
        if (turn != ES_OK) es_command_fail(asking->command, turn);
    }
    if (status == ES_OK) putchar('\n');
    else es_command_fail(asking->command, status);
    es_text_free(&typed);
    es_line_close(line);
    es_messages_close(&talk.messages);
    return es_status_exit_code(status);
}
