/* completion.c: a shell's completion, written from the option tables.
 *
 *   source <(evenshare completion bash) */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

typedef struct settings {
    const char *shell;
} settings;

static const es_option rows[] = {
    {"shell",           0, ES_OPTION_CHOICE, "bash|zsh|fish", offsetof(settings, shell), .fallback = "bash", .positional = true,
     .typed = true, .help = "the shell it is for"},
    {0}
};
static const es_option_group groups[] = {
    {NULL, rows, 0},
    {0  }
};

/* visit() for each option of a command. */
static void each_option(const es_command *command, void (*visit)(const es_command *, const es_option *))
{
    for (const es_option_group *group = command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name; option++) visit(command, option);
}

/* "auto|f32" as words. */
static void put_words(const char *choices)
{
    for (const char *c = choices; *c; c++) putchar(*c == '|' ? ' ' : *c);
}

/* `text` inside single quotes: a backslash before the characters of `special`, and `quote` for a quote. */
static void put_quoted(const char *text, const char *special, const char *quote)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            fputs(quote, stdout);
        else if (strchr(special, *c))
            printf("\\%c", *c);
        else
            putchar(*c);
    }
}

/* ---- bash ---- */

static void bash_name(const es_command *command, const es_option *option)
{
    (void)command;
    printf(" --%s", option->name);
}

static void bash_choice(const es_command *command, const es_option *option)
{
    if (option->kind != ES_OPTION_CHOICE) return;
    printf("    %s.--%s) words='", command->name, option->name);
    put_words(option->value);
    fputs("' ;;\n", stdout);
}

static void print_bash(const es_command *const *commands, size_t count)
{
    fputs("_evenshare()\n{\n    local words='help --help --version", stdout);
    for (size_t i = 0; i < count; i++) printf(" %s", commands[i]->name);
    fputs("'\n    [ \"$COMP_CWORD\" -gt 1 ] && case ${COMP_WORDS[1]} in\n", stdout);
    for (size_t i = 0; i < count; i++) {
        printf("    %s) words='--help --config", commands[i]->name);
        each_option(commands[i], bash_name);
        fputs("' ;;\n", stdout);
    }
    fputs("    esac\n    [ \"$COMP_CWORD\" -gt 1 ] && case ${COMP_WORDS[1]}.${COMP_WORDS[COMP_CWORD-1]} in\n", stdout);
    for (size_t i = 0; i < count; i++) each_option(commands[i], bash_choice);
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
          "}\n"
          "complete -o bashdefault -o default -F _evenshare evenshare\n",
          stdout);
}

/* ---- zsh ---- */

static void zsh_option(const es_command *command, const es_option *option)
{
    (void)command;
    printf(" \\\n        '%s--%s%s[", option->kind == ES_OPTION_LIST ? "*" : "", option->name,
           option->kind == ES_OPTION_FLAG ? "" : "=");
    put_quoted(option->help, "[]:\\", "'\\''");
    putchar(']');
    if (option->kind == ES_OPTION_CHOICE) {
        fputs(":value:(", stdout);
        put_words(option->value);
        putchar(')');
    } else if (option->kind != ES_OPTION_FLAG) {
        putchar(':');
        put_quoted(option->value, "[]:\\", "'\\''");
        fputs(":_files", stdout);
    }
    putchar('\'');
}

static void print_zsh(const es_command *const *commands, size_t count)
{
    fputs("#compdef evenshare\n_evenshare()\n{\n    local -a known\n    known=(", stdout);
    for (size_t i = 0; i < count; i++) {
        printf("\n        '%s:", commands[i]->name);
        put_quoted(commands[i]->summary, ":\\", "'\\''");
        putchar('\'');
    }
    fputs(")\n    if (( CURRENT == 2 )); then\n        _describe -t commands command known\n        return\n    fi\n"
          "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n",
          stdout);
    for (size_t i = 0; i < count; i++) {
        printf("    %s) _arguments '--help[help]' '--config=[options from a file]:FILE:_files'", commands[i]->name);
        each_option(commands[i], zsh_option);
        fputs(" \\\n        '*:file:_files' ;;\n", stdout);
    }
    fputs("    esac\n}\ncompdef _evenshare evenshare\n", stdout);
}

/* ---- fish ---- */

static void fish_option(const es_command *command, const es_option *option)
{
    printf("complete -c evenshare -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name);
    if (option->letter) printf(" -s %c", option->letter);
    if (option->kind == ES_OPTION_CHOICE) {
        fputs(" -x -a '", stdout);
        put_words(option->value);
        putchar('\'');
    } else if (option->kind != ES_OPTION_FLAG)
        fputs(" -r", stdout);
    fputs(" -d '", stdout);
    put_quoted(option->help, "\\", "\\'");
    fputs("'\n", stdout);
}

static void print_fish(const es_command *const *commands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        printf("complete -c evenshare -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        put_quoted(commands[i]->summary, "\\", "\\'");
        fputs("'\n", stdout);
        printf("complete -c evenshare -n '__fish_seen_subcommand_from %s' -l config -r -d 'options from a file'\n",
               commands[i]->name);
        each_option(commands[i], fish_option);
    }
}

static int completion(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_completion, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    size_t count;
    const es_command *const *commands = es_commands(&count);
    if (strcmp(s.shell, "zsh") == 0)
        print_zsh(commands, count);
    else if (strcmp(s.shell, "fish") == 0)
        print_fish(commands, count);
    else
        print_bash(commands, count);
    return 0;
}

const es_command es_command_completion = {"completion", "print the completion of this command line for a shell",
                                          "Put  source <(evenshare completion bash)  into ~/.bashrc, or  source <(evenshare "
                                          "completion zsh)  into ~/.zshrc; for fish, "
                                          "write it to ~/.config/fish/completions/evenshare.fish.",
                                          groups, completion};
