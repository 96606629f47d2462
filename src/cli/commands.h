/* commands.h: the commands there are, each in the file of its name. */
#ifndef ES_CLI_COMMANDS_H
#define ES_CLI_COMMANDS_H

#include "cli/options.h"

extern const es_command es_command_run;
extern const es_command es_command_serve;
extern const es_command es_command_score;
extern const es_command es_command_inspect;
extern const es_command es_command_bench;
extern const es_command es_command_completion;
extern const es_command es_command_doctor;
extern const es_command es_command_plan;
extern const es_command es_command_check;
extern const es_command es_command_stats;
extern const es_command es_command_pull;
extern const es_command es_command_list;
extern const es_command es_command_rm;

/** All of them, in the order of `evenshare --help`. */
const es_command *const *es_commands(size_t *count);

#endif
