/* main.c: finds the command and hands it its arguments. To add a command: one file with its
 * es_command, a line in commands.h and one here. */
#include <stdio.h>
#include <string.h>

#include "cli/serve.h"

static const es_command *const commands[] = {
    &es_command_run,
    &es_command_serve,
    &es_command_pull,
    &es_command_list,
    &es_command_rm,
    &es_command_score,
    &es_command_inspect,
    &es_command_bench,
    &es_command_doctor,
    &es_command_stats,
    &es_command_plan,
    &es_command_check,
    &es_command_completion,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

const es_command *const *es_commands(size_t *count)
{
    *count = COMMANDS;
    return commands;
}

static void print_help(FILE *out)
{
    fputs("evenshare: an LLM inference engine and server\n\nUsage: evenshare COMMAND [MODEL] [options]\n\nCommands:\n", out);
    for (size_t i = 0; i < COMMANDS; i++) fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  evenshare help COMMAND   what a command does and its options\n"
          "  evenshare --version      which version this is\n\n"
          "MODEL is a .gguf file, a Hugging Face folder or a name that was pulled (hf:ORG/NAME);\n"
          "without it $ES_MODEL or the default model.\n"
          "Exit codes: 0 done, 1 failed, 2 the command line or the model cannot be used as it is.\n", out);
}

static void print_man(void)
{
    puts(".TH EVENSHARE 1 \"\" \"evenshare " ES_VERSION "\" \"User Commands\"\n"
         ".SH NAME\nevenshare \\- an LLM inference engine and server\n"
         ".SH SYNOPSIS\n.B evenshare\n.I COMMAND\n[MODEL] [options]\n.SH COMMANDS");
    for (size_t i = 0; i < COMMANDS; i++)
        printf(".TP\n.BR evenshare\\-%s (1)\n%s\n", commands[i]->name, commands[i]->summary);
    puts(".SH MODELS\nMODEL is a .gguf file (the first part of a split one), a Hugging Face folder, or the name of a model\n"
         "that was pulled, like hf:ORG/NAME or hf:ORG/NAME:Q8_0.\n"
         "Without it the environment variable\n.B ES_MODEL\nnames one, or the default model is used.\n"
         ".SH \"OPTIONS FROM ELSEWHERE\"\n"
         "Every option of every command may come from four places. What is typed wins; then an environment variable; then a\n"
         "configuration file; then the default.\n"
         ".TP\nEnvironment\n"
         "The variable of an option is\n.B EVENSHARE_\nand its long name in capitals, hyphens as underscores:\n"
         ".B EVENSHARE_STEP_BUDGET\nfor\n.BR \\-\\-step\\-budget .\n"
         "Flags take yes or no. Where an option\\(aqs help names another variable, that one comes second.\n"
         "An empty variable says nothing.\n"
         ".TP\nFile\n"
         ".BI \\-\\-config= FILE\nor\n.B EVENSHARE_CONFIG\nnames it. A line is\n.IR \"name = value\" ,\n"
         "with an option\\(aqs long name; # begins a comment; double quotes keep spaces and take \\en, \\et, \\e\" and \\e\\e.\n"
         "Lines before the first section are for every command that has such an option; those below\n.B [serve]\n"
         "are for that command alone, and win. A name that no command knows is refused.\n"
         ".PP\n.nf\nthreads = 8\n[serve]\nhost = 0.0.0.0\napi\\-key\\-file = /etc/evenshare/keys\nno\\-cache = yes\n.fi\n"
         ".PP\nWhat a command works on (what to pull, what to remove) is only ever typed.\n"
         ".SH \"EXIT STATUS\"\n0: done; 1: failed; 2: the command line, the request or the model cannot be used as it is.");
}

static int refuse_command(const char *name)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) names[i] = commands[i]->name;
    const char *nearest = es_nearest_word(name, names, COMMANDS);
    if (nearest) fprintf(stderr, "evenshare: there is no command \"%s\"; did you mean \"%s\"?\n", name, nearest);
    else fprintf(stderr, "evenshare: there is no command \"%s\" (see evenshare --help)\n", name);
    return 2;
}

/* True when everything written to standard output arrived: a full disk must not look like success. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    return code ? code : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    es_options_set_commands(commands, COMMANDS);
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        if (argc > 2 && strcmp(argv[2], "--json") == 0) puts("{\"name\":\"evenshare\",\"version\":\"" ES_VERSION "\"}");
        else puts("evenshare " ES_VERSION);
        return finish(0);
    }
    if (strcmp(name, ES_SERVE_ENGINE) == 0) return es_serve_engine_main(argc - 1, argv + 1);
    const bool help = strcmp(name, "help") == 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (help && argc == 2)) {
        print_help(stdout);
        return finish(0);
    }
    if (strcmp(name, "--man") == 0) {
        print_man();
        return finish(0);
    }
    if (help) name = argv[2];
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i]->name) != 0) continue;
        if (!help) return finish(commands[i]->run(argc - 1, argv + 1));
        char flag[] = "--help";
        char *ask[] = {argv[2], flag, NULL};
        return finish(commands[i]->run(2, ask));
    }
    return refuse_command(name);
}
