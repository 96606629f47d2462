/* bench_model.c: `bench make-model`: a model with random weights in a published shape. */
#include <stdio.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "model/random_model.h"

typedef struct settings {
    const char *shape, *type, *out;
    int64_t seed;
} settings;

static const es_option own[] = {
    {"shape", 0, ES_OPTION_TEXT, "SHAPE", offsetof(settings, shape), .positional = true,
     .help = "qwen3.5-0.8b, -2b, -4b, -9b, qwen3-0.6b, tiny-hybrid or tiny-dense"},
    {"type", 0, ES_OPTION_CHOICE, "f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k|q4_k_m", offsetof(settings, type),
     .fallback = "q8_0", .help = "of the matrices; q4_k_m mixes as llama.cpp's quantiser does"},
    {"out", 'o', ES_OPTION_TEXT, "FILE", offsetof(settings, out), .help = "the GGUF to write"},
    {"seed", 's', ES_OPTION_INT, "N", offsetof(settings, seed), .fallback = "1", .min = 0, .max = ES_ANY,
     .help = "of the random weights"},
    {0}};
static const es_option_group groups[] = {{NULL, own, 0}, {0}};

static int make_model(int argc, char **argv);
const es_command es_command_bench_make_model = {
    "bench make-model", "write a model with random weights in a published shape",
    "The file is a whole GGUF with a byte-level tokenizer, which other engines load too: speed can be measured where no "
    "weights can be had. What it says is noise.",
    groups, make_model};

static int make_model(int argc, char **argv)
{
    const es_command *command = &es_command_bench_make_model;
    settings s;
    const int done = es_options_parse(command, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (!s.shape || !s.out) return es_command_refuse(command, "needs a shape and -o FILE, like qwen3.5-0.8b -o model.gguf");
    const es_model_shape *shape = es_model_shape_find(s.shape);
    if (!shape) return es_command_refuse(command, "there is no shape \"%s\"; %s are", s.shape, es_model_shape_list());
    const es_status status = es_random_model_write(shape, s.type, (uint64_t)s.seed, s.out);
    return status == ES_OK ? 0 : es_command_fail(command, status);
}
