/* completion.c: a shell's completion, written from the option tables.
 *
 *   source <(evenshare completion) */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

typedef struct settings {
    const char *shell;
} settings;

static const es_option rows[] = {
    {"shell", 0, ES_OPTION_CHOICE, "bash", offsetof(settings, shell), .fallback = "bash", .positional = true,
     .help = "the shell it is for"},
    {0}};
static const es_option_group groups[] = {{NULL, rows, 0}, {0}};

static int completion(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_completion, argc, argv, &s);
    if (done != ES_GO_ON) return done;

    size_t count;
    const es_command *const *commands = es_commands(&count);
    fputs("_evenshare()\n{\n    local words='help --help --version", stdout);
    for (size_t i = 0; i < count; i++) printf(" %s", commands[i]->name);
    fputs("'\n    [ \"$COMP_CWORD\" -gt 1 ] && case ${COMP_WORDS[1]} in\n", stdout);
    for (size_t i = 0; i < count; i++) {
        printf("    %s) words='--help", commands[i]->name);
        for (const es_option_group *group = commands[i]->groups; group && group->options; group++)
            for (const es_option *option = group->options; option->name; option++) printf(" --%s", option->name);
        fputs("' ;;\n", stdout);
    }
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
          "}\n"
          "complete -o bashdefault -o default -F _evenshare evenshare\n", stdout);
    return 0;
}

const es_command es_command_completion = {
    "completion", "print the completion of this command line for a shell",
    "Put  source <(evenshare completion)  into ~/.bashrc.", groups, completion};
