/* answer_format.h: in which forms a model writes reasoning and calls, found out from its chat template. */
#ifndef ES_TEXT_ANSWER_FORMAT_H
#define ES_TEXT_ANSWER_FORMAT_H

#include "text/answer_parser.h"

/** Renders a chat template, as es_model_render_chat() does; failing is fine. */
typedef es_status (*es_render_fn)(void *self, const char *variables_json, char **text);

/** How the model whose template this is marks reasoning and calls: a conversation with both is rendered, and the marks in it
 * are those that the model learned. NONE where the template knows of neither. */
es_answer_format es_answer_format_find(es_render_fn render, void *self);

/** Whether a rendered prompt leaves the reasoning open, so that the answer begins inside of it. */
bool es_answer_prompt_reasons(const char *prompt);
/** Whether the answer to a rendered prompt may open its reasoning itself: the prompt has neither opened nor closed it. */
bool es_answer_may_reason(es_answer_format format, const char *prompt);

/** Names for options: "auto" (then *form stays), "none" and the forms' own ("think"; "xml", "hermes", "llama"), also as other
 *  servers call them ("qwen3_coder", "llama3_json", ...). ES_INVALID names those that exist. */
es_status es_reasoning_form_parse(const char *name, es_reasoning_form *form);
es_status es_tool_form_parse(const char *name, es_tool_form *form);
const char *es_reasoning_form_name(es_reasoning_form form);
const char *es_tool_form_name(es_tool_form form);

#endif
