/* The command line says what it understood, and refuses the rest with a reason and exit code 2. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The command line is no part of the library: the test brings its parser in itself. */
#include "cli/config.c"
#include "cli/help.c"
#include "cli/options.c"

typedef struct shared {
    const char *path;
} shared;

typedef struct settings {
    int64_t count, bytes;
    double heat;
    const char *text, *mode, *key;
    es_option_list stop;
    bool loud;
    shared model;
} settings;

static const es_option shared_rows[] = {
    {"model", 'm', ES_OPTION_TEXT, "MODEL", offsetof(shared, path), .positional = true, .help = "a model"}, {0}};
static const es_option rows[] = {
    {"count", 'n', ES_OPTION_INT, "N", offsetof(settings, count), .min = -1, .max = 10, .fallback = "3", .help = "how many"},
    {"bytes", 0, ES_OPTION_SIZE, "BYTES", offsetof(settings, bytes), .help = "a size"},
    {"heat", 0, ES_OPTION_FLOAT, "T", offsetof(settings, heat), .min = 0, .max = 2, .help = "a number"},
    {"text", 'p', ES_OPTION_TEXT, "TEXT", offsetof(settings, text), .help = "a text"},
    {"mode", 0, ES_OPTION_CHOICE, "auto|f32", offsetof(settings, mode), .fallback = "auto", .help = "a choice"},
    {"key", 0, ES_OPTION_TEXT, "KEY", offsetof(settings, key), .environment = "ES_TEST_KEY", .help = "a secret"},
    {"stop", 0, ES_OPTION_LIST, "TEXT", offsetof(settings, stop), .help = "a list"},
    {"loud", 'v', ES_OPTION_FLAG, NULL, offsetof(settings, loud), .help = "a flag"},
    {0}};
static const es_option_group groups[] = {{NULL, rows, 0}, {"Model", shared_rows, offsetof(settings, model)}, {0}};
static const es_command command = {"try", "tries things", "First\nline.\n\n.Second \\ paragraph.", groups, NULL};

/* Parses the words after the command's name, with standard error in `said`. */
static int parse_words(settings *s, char *said, size_t room, const char *const *words)
{
    char *argv[32] = {(char *)(uintptr_t) "try"};
    int argc = 1;
    for (; *words; words++) argv[argc++] = (char *)(uintptr_t)*words;
    fflush(stderr);
    FILE *file = tmpfile();
    assert_non_null(file);
    const int saved = dup(2);
    dup2(fileno(file), 2);
    const int done = es_options_parse(&command, argc, argv, s);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    said[fread(said, 1, room - 1, file)] = '\0';
    fclose(file);
    return done;
}

#define PARSE(...) parse_words(&s, said, sizeof said, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED(sentence, ...)                 \
    do {                                       \
        assert_int_equal(PARSE(__VA_ARGS__), 2); \
        assert_non_null(strstr(said, sentence)); \
    } while (0)

static void every_way_of_writing_a_value_is_understood(void **state)
{
    (void)state;
    settings s;
    char said[512];
    assert_int_equal(PARSE("--count=5", "--bytes", "8K", "-pHello", "--heat", "0.5", "--stop", "a", "--stop=", "-v"), ES_GO_ON);
    assert_int_equal(s.count, 5);
    assert_int_equal(s.bytes, 8192);
    assert_string_equal(s.text, "Hello");
    assert_true(s.heat == 0.5);
    assert_int_equal(s.stop.count, 2);
    assert_string_equal(s.stop.items[1], "");
    assert_true(s.loud);
    assert_string_equal(s.mode, "auto");
    assert_null(s.model.path);

    assert_int_equal(PARSE("-n", "-1", "m.gguf"), ES_GO_ON);
    assert_int_equal(s.count, -1);
    assert_string_equal(s.model.path, "m.gguf");
    assert_int_equal(s.bytes, ES_UNSET);
    assert_true(isnan(s.heat));
    assert_null(s.text);
    assert_false(s.loud);

    assert_int_equal(PARSE("--mode=f32", "--", "--odd"), ES_GO_ON);
    assert_string_equal(s.model.path, "--odd");
    assert_string_equal(s.mode, "f32");
    assert_int_equal(s.count, 3);
}

static void what_cannot_be_meant_is_refused(void **state)
{
    (void)state;
    settings s;
    char said[512];
    REFUSED("did you mean --count?", "--conut", "3");
    REFUSED("there is no option --zzzzzz", "--zzzzzz");
    REFUSED("there is no option -x", "-x");
    REFUSED("given twice", "--count", "1", "-n", "2");
    REFUSED("needs a value", "--count");
    REFUSED("needs a value", "--text", "--loud");
    REFUSED("takes no value", "--loud=1");
    REFUSED("from -1 to 10", "--count", "11");
    REFUSED("not a whole number", "--count", "1x");
    REFUSED("not a whole number", "--count", "");
    REFUSED("not a whole number", "--count", "99999999999999999999");
    REFUSED("not a size", "--bytes", "-1");
    REFUSED("not a size", "--bytes", "9999999999G");
    REFUSED("not a size", "--bytes", "8X");
    REFUSED("not a number", "--heat", "nan");
    REFUSED("not a number", "--heat", "1e999");
    REFUSED("from 0 to 2", "--heat", "3");
    REFUSED("none of auto|f32", "--mode", "auto|f32");
    REFUSED("none of auto|f32", "--mode", "");
    REFUSED("one argument too many", "a.gguf", "b.gguf");
    REFUSED("one argument too many", "-m", "a.gguf", "b.gguf");
}

static void a_list_has_an_end(void **state)
{
    (void)state;
    settings s;
    char *argv[ES_OPTION_LIST_MAX + 2];
    char name[] = "try", item[] = "--stop=x", last[] = "--stop=y";
    argv[0] = name;
    for (int i = 1; i <= ES_OPTION_LIST_MAX; i++) argv[i] = item;
    argv[ES_OPTION_LIST_MAX + 1] = last;
    assert_int_equal(es_options_parse(&command, ES_OPTION_LIST_MAX + 1, argv, &s), ES_GO_ON);
    assert_int_equal(es_options_parse(&command, ES_OPTION_LIST_MAX + 2, argv, &s), 2);
}

static void the_environment_stands_in(void **state)
{
    (void)state;
    settings s;
    char said[512];
    setenv("ES_TEST_KEY", "secret", 1);
    assert_int_equal(PARSE("-v"), ES_GO_ON);
    assert_string_equal(s.key, "secret");
    assert_int_equal(PARSE("--key", "mine"), ES_GO_ON);
    assert_string_equal(s.key, "mine");
    setenv("ES_TEST_KEY", "", 1);
    assert_int_equal(PARSE("-v"), ES_GO_ON);
    assert_null(s.key);
}

static const char *write_config(const char *text)
{
    static char path[] = "/tmp/evenshare-test-config-XXXXXX";
    static int fd = -1;
    if (fd < 0) fd = mkstemp(path);
    assert_true(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
    return path;
}

/* One precedence: typed, environment, file, default. */
static void what_is_typed_wins_then_the_environment_then_the_file(void **state)
{
    (void)state;
    settings s;
    char said[512];
    const char *path = write_config("# all\ncount = 7 # seven\nloud = yes\nmodel = a.gguf\n heat=1.5\n[try]\ntext = \" a\\n#\\\"b\" # c\n"
                                    "stop = x\nstop = y#z\nheat = 0.25\n");
    assert_int_equal(PARSE("--config", path), ES_GO_ON);
    assert_int_equal(s.count, 7);
    assert_true(s.loud && s.heat == 0.25);
    assert_string_equal(s.text, " a\n#\"b");
    assert_string_equal(s.model.path, "a.gguf");
    assert_true(s.stop.count == 2 && strcmp(s.stop.items[1], "y#z") == 0);
    setenv("EVENSHARE_COUNT", "8", 1);
    setenv("EVENSHARE_LOUD", "no", 1);
    setenv("EVENSHARE_CONFIG", path, 1);
    assert_int_equal(PARSE("--heat", "2"), ES_GO_ON);
    assert_true(s.count == 8 && !s.loud && s.heat == 2);
    assert_int_equal(PARSE("-n9"), ES_GO_ON);
    assert_int_equal(s.count, 9);
    setenv("EVENSHARE_COUNT", "x", 1);
    REFUSED("not a whole number", "-v");
    setenv("EVENSHARE_COUNT", "", 1);
    assert_int_equal(PARSE("-v"), ES_GO_ON);
    assert_int_equal(s.count, 7);
    setenv("EVENSHARE_LOUD", "perhaps", 1);
    REFUSED("neither yes nor no", "-n1");
    unsetenv("EVENSHARE_LOUD");
    unsetenv("EVENSHARE_CONFIG");
}

static void a_configuration_that_cannot_be_meant_is_refused(void **state)
{
    (void)state;
    static const es_command other = {"other", "", "", groups, NULL};
    static const es_command *const known[] = {&command, &other};
    settings s;
    char said[512];
    es_options_set_commands(known, 2);
    assert_int_equal(PARSE("--config", write_config("[other]\ncount = 99\n")), ES_GO_ON);
    assert_int_equal(s.count, 3);
    REFUSED("line 2: there is no option \"conut\"", "--config", write_config("\nconut = 3"));
    REFUSED("there is no command \"tyr\"", "--config", write_config("[tyr]\ncount = 3"));
    REFUSED("line 1: an option looks like", "--config", write_config("count 3"));
    REFUSED("line 1: an option looks like", "--config", write_config("= 3"));
    REFUSED("the quote has no end", "--config", write_config("text = \"3\\\""));
    REFUSED("behind the quote", "--config", write_config("text = \"3\" 4"));
    REFUSED("a section looks like", "--config", write_config("[try"));
    REFUSED("given twice", "--config", write_config("count = 3\ncount = 3"));
    REFUSED("from -1 to 10", "--config", write_config("count = 30"));
    REFUSED("/nowhere/at.all", "--config=/nowhere/at.all");
    REFUSED("needs a value", "--config");
    es_options_set_commands(NULL, 0);
    unlink(write_config(""));
}

static void help_and_man_page_name_every_option(void **state)
{
    (void)state;
    es_text help = {0}, man = {0};
    es_options_help(&command, &help);
    es_options_man(&command, &man);
    for (const es_option_group *group = groups; group->options; group++)
        for (const es_option *option = group->options; option->name; option++) {
            char long_name[64];
            snprintf(long_name, sizeof long_name, "--%s", option->name);
            assert_non_null(strstr(help.data, long_name));
            snprintf(long_name, sizeof long_name, "\\-\\-%s", option->name);
            assert_non_null(strstr(man.data, long_name));
        }
    assert_non_null(strstr(help.data, "[MODEL]"));
    assert_non_null(strstr(help.data, "\nFirst line.\n")); /* a paragraph is wrapped anew */
    assert_non_null(strstr(man.data, ".PP\n\\&.Second \\e paragraph."));
    for (const char *line = help.data; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        assert_true(strcspn(line, "\n") <= HELP_WIDTH);
    es_text_free(&help);
    es_text_free(&man);
}

static void sizes_count_in_powers_of_two(void **state)
{
    (void)state;
    int64_t value;
    assert_true(es_parse_size("4G", &value) && value == (int64_t)4 << 30);
    assert_true(es_parse_size("4GiB", &value) && value == (int64_t)4 << 30);
    assert_true(es_parse_size("1kB", &value) && value == 1024);
    assert_true(es_parse_size("9223372036854775807", &value) && value == INT64_MAX);
    assert_false(es_parse_size("9223372036854775808", &value));
    assert_false(es_parse_size("4iB", &value));
    assert_false(es_parse_size("", &value));
    assert_false(es_parse_size("K", &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_of_writing_a_value_is_understood),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
        cmocka_unit_test(a_list_has_an_end),
        cmocka_unit_test(the_environment_stands_in),
        cmocka_unit_test(what_is_typed_wins_then_the_environment_then_the_file),
        cmocka_unit_test(a_configuration_that_cannot_be_meant_is_refused),
        cmocka_unit_test(help_and_man_page_name_every_option),
        cmocka_unit_test(sizes_count_in_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
