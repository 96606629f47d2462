/* line.h: a line typed at a prompt: edited with libedit where the program was built with it, plain otherwise. */
#ifndef ES_CLI_LINE_H
#define ES_CLI_LINE_H

#include "base/error.h"
#include "base/text.h"
#include "cli/stream.h"

typedef struct es_line es_line;

/** `stream` tells of Ctrl-C, which empties the line. With `remember`, lines are kept for the next time in
 *  $XDG_STATE_HOME/evenshare/history or ~/.local/state/evenshare/history, which nobody else can read. */
es_status es_line_open(es_stream *stream, bool remember, es_line **line);
void es_line_close(es_line *line);
/** One line without its newline into `out` (cleared first); a backslash at the end goes on in the next line, and """ begins
 *  and ends a text of many lines.
 *  False at the end of input (Ctrl-D). */
bool es_line_read(es_line *line, const char *prompt, es_text *out);

#endif
