/* answer_format.c: see answer_format.h.
 *
 * Looking for marks in a template's source would find those that it only takes away, or writes for tools it was never given.
 * What it writes when it is shown a call is what the model was trained on. */
#include "text/answer_format.h"

#include <stdlib.h>
#include <string.h>

#define TOOLS                                                                                                                 \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"zebra\",\"description\":\"d\",\"parameters\":{\"type\":"      \
    "\"object\","                                                                                                             \
    "\"properties\":{\"stripe\":{\"type\":\"string\",\"description\":\"d\"}},\"required\":[\"stripe\"]}}}]"
#define ASK "{\"role\":\"user\",\"content\":\"u\"}"

/* Asked in turn until one is rendered: some templates insist on a call's id, on text beside it, or on its result. */
static const char *const call_probes[] = {
    "{\"messages\":[" ASK
    ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
    "\"function\":{\"name\":\"zebra\",\"arguments\":{\"stripe\":\"x\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\","
    "\"name\":\"zebra\",\"content\":\"r\"}]," TOOLS ",\"add_generation_prompt\":true}",
    "{\"messages\":[" ASK
    ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
    "\"function\":{\"name\":\"zebra\",\"arguments\":\"{\\\"stripe\\\":\\\"x\\\"}\"}}]}]," TOOLS "}",
};

static const char *const reasoning_probes[] = {
    /* the prompt opens it */
    "{\"messages\":[" ASK "],\"add_generation_prompt\":true,\"enable_thinking\":true}",
    /* or the conversation shows it */
    "{\"messages\":[" ASK ",{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":\"zebra\"}]}",
};
/* or it is taken out of what was said before */
static const char takes_out_probe[] =
    "{\"messages\":[" ASK ",{\"role\":\"assistant\",\"content\":\"<think>zebra</think>horse\"}," ASK "]}";

static char *render_text(es_render_fn render, void *self, const char *probe)
{
    char *text = NULL;
    return render(self, probe, &text) == ES_OK ? text : NULL;
}

static const char *after_space(const char *at)
{
    return at + strspn(at, " \n\t\r");
}

static es_tool_form form_of_call(const char *text)
{
    for (const char *at = text; (at = strstr(at, "<tool_call>")); at++) {
        const char *inside = after_space(at + strlen("<tool_call>"));
        const char *end = strstr(inside, "</tool_call>");
        const char *name = strstr(inside, "zebra");
        if (strncmp(inside, "<function=zebra>", 16) == 0) return ES_TOOLS_XML;
        if (*inside == '{' && end && name && name < end) return ES_TOOLS_HERMES;
    }
    /* a tool that is listed has its description between the two */
    if (strstr(text, "{\"name\": \"zebra\", \"parameters\": ")) return ES_TOOLS_LLAMA;
    return ES_TOOLS_NONE;
}

static es_tool_form find_tools(es_render_fn render, void *self)
{
    es_tool_form form = ES_TOOLS_NONE;
    for (size_t i = 0; form == ES_TOOLS_NONE && i < sizeof call_probes / sizeof *call_probes; i++) {
        char *text = render_text(render, self, call_probes[i]);
        if (text) form = form_of_call(text);
        free(text);
    }
    return form;
}

static es_reasoning_form find_reasoning(es_render_fn render, void *self)
{
    bool found = false;
    for (size_t i = 0; !found && i < sizeof reasoning_probes / sizeof *reasoning_probes; i++) {
        char *text = render_text(render, self, reasoning_probes[i]);
        found = text && strstr(text, "<think>");
        free(text);
    }
    char *text = found ? NULL : render_text(render, self, takes_out_probe);
    if (text) found = strstr(text, "horse") && !strstr(text, "zebra");
    free(text);
    return found ? ES_REASONING_THINK : ES_REASONING_NONE;
}

es_answer_format es_answer_format_find(es_render_fn render, void *self)
{
    return (es_answer_format){.reasoning = find_reasoning(render, self), .tools = find_tools(render, self)};
}

/* White space at its end aside. */
static bool ends_with(const char *prompt, const char *mark)
{
    const size_t bytes = strlen(mark);
    size_t end = strlen(prompt);
    while (end > 0 && strchr(" \n\t\r", prompt[end - 1])) end--;
    return end >= bytes && memcmp(prompt + end - bytes, mark, bytes) == 0;
}

bool es_answer_prompt_reasons(const char *prompt)
{
    return ends_with(prompt, "<think>");
}

bool es_answer_may_reason(es_answer_format format, const char *prompt)
{
    return format.reasoning == ES_REASONING_THINK && !format.in_reasoning && !ends_with(prompt, "</think>");
}

static const char *const reasoning_names[] = {"none", "think"}, *const tool_names[] = {"none", "xml", "hermes", "llama"};

/* Other servers' names for the same forms. */
static const struct {
    const char *name;
    int form;
} reasoning_aliases[] =
    {
        {"qwen3",       ES_REASONING_THINK},
        {"deepseek_r1", ES_REASONING_THINK},
        {"deepseek-r1", ES_REASONING_THINK},
        {"deepseek",    ES_REASONING_THINK}
},
  tool_aliases[] = {{"qwen3_coder", ES_TOOLS_XML}, {"qwen3_xml", ES_TOOLS_XML}, {"qwen", ES_TOOLS_HERMES},
                    {"qwen25", ES_TOOLS_HERMES},   {"llama3", ES_TOOLS_LLAMA},  {"llama3_json", ES_TOOLS_LLAMA}};

es_status es_reasoning_form_parse(const char *name, es_reasoning_form *form)
{
    if (strcmp(name, "auto") == 0) return ES_OK;
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names; i++)
        if (strcmp(name, reasoning_names[i]) == 0) return *form = (es_reasoning_form)i, ES_OK;
    for (size_t i = 0; i < sizeof reasoning_aliases / sizeof *reasoning_aliases; i++)
        if (strcmp(name, reasoning_aliases[i].name) == 0) return *form = (es_reasoning_form)reasoning_aliases[i].form, ES_OK;
    return es_fail(ES_INVALID, "there is no reasoning parser \"%.40s\"; there are auto, none and think", name);
}

es_status es_tool_form_parse(const char *name, es_tool_form *form)
{
    if (strcmp(name, "auto") == 0) return ES_OK;
    for (size_t i = 0; i < sizeof tool_names / sizeof *tool_names; i++)
        if (strcmp(name, tool_names[i]) == 0) return *form = (es_tool_form)i, ES_OK;
    for (size_t i = 0; i < sizeof tool_aliases / sizeof *tool_aliases; i++)
        if (strcmp(name, tool_aliases[i].name) == 0) return *form = (es_tool_form)tool_aliases[i].form, ES_OK;
    return es_fail(ES_INVALID, "there is no tool parser \"%.40s\"; there are auto, none, xml, hermes and llama", name);
}

const char *es_reasoning_form_name(es_reasoning_form form)
{
    return reasoning_names[form];
}

const char *es_tool_form_name(es_tool_form form)
{
    return tool_names[form];
}
