/* The hand-written splitters cut exactly where their regular expressions do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/random.h"
#include "base/text.h"
#include "text/split.h"
#include "text/utf8.h"

#define CUTS_MAX 4096

/* Where words end. */
typedef struct cuts {
    size_t end[CUTS_MAX];
    size_t count;
} cuts;

static void cut(const es_splitter *splitter, const char *text, size_t bytes, size_t offset, cuts *out)
{
    es_split_run run;
    assert_int_equal(es_split_start(splitter, (const unsigned char *)text, bytes, &run), ES_OK);
    while (run.at < bytes) {
        const size_t begin = run.at;
        assert_int_equal(es_split_next(&run), ES_OK);
        assert_true(run.at > begin && run.at <= bytes && out->count < CUTS_MAX);
        out->end[out->count++] = offset + run.at;
    }
    es_split_stop(&run);
}

enum { STEPS_MAX = 4 };

/* Several steps, one after the other: each sees what the one before it has cut as texts of their own. */
static void cut_in_steps(const es_splitter *steps, int count, const char *text, size_t bytes, cuts *out)
{
    static cuts pieces;
    out->end[0] = bytes;
    out->count = 1;
    for (int i = 0; i < count; i++) {
        pieces = *out;
        out->count = 0;
        size_t begin = 0;
        for (size_t k = 0; k < pieces.count; begin = pieces.end[k++])
            cut(&steps[i], text + begin, pieces.end[k] - begin, begin, out);
    }
}

/* The steps of a kind as regular expressions. SmolLM sets digits apart before GPT-2's pattern; what llama.cpp calls its default
 * takes four patterns in turn. */
static int open_steps(es_split kind, es_splitter *steps)
{
    static const char *const more[][STEPS_MAX] = {
        [ES_SPLIT_SMOLLM] = {"\\p{N}", "G"},
        [ES_SPLIT_DEFAULT] = {"[\\p{P}\\$\\+<=>\\^~\\|]+", "G", "\\p{N}+", "[0-9][0-9][0-9]"},
    };
    int count = 0;
    const bool several = kind == ES_SPLIT_SMOLLM || kind == ES_SPLIT_DEFAULT;
    for (; several && count < STEPS_MAX && more[kind][count]; count++) {
        const char *pattern = more[kind][count][0] == 'G' ? es_split_pattern(ES_SPLIT_GPT2) : more[kind][count];
        assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, pattern, "test", &steps[count]), ES_OK);
    }
    if (several) return count;
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, es_split_pattern(kind), "test", steps), ES_OK);
    return 1;
}

/* Characters of every class, the ones with a role in a pattern more often. */
static unsigned random_character(uint64_t seed, uint64_t position)
{
    static const unsigned special[] = {
        '\'',   '\'',   '\'',   ' ',    ' ',    ' ',   '\n',   '\r',  '\t',   's',    't',    'm',      'd',     'r',   'e',
        'v',    'l',    'S',    'T',    'R',    'E',   'L',    'D',   0x17F,  '1',    '2',    '3',      '0',     0xB2,  0x2167,
        0x663,  'a',    'Z',    0xE9,   0x4E2D, 0x301, 0x20DD, 0x93E, '.',    '!',    '-',    0x20AC,   0x1F600, 0xA0,  0x85,
        0x180E, 0x200B, 0x2028, 0x3000, 0x1C,   0x7F,  0,      0x0B,  0x1680, 0xFEFF, 0xE000, 0x10FFFF, 0x1D7D8, 0x2B0, 0x1C5};
    const double u = es_random_unit(seed, 1, position, 0), v = es_random_unit(seed, 1, position, 1);
    if (u < 0.9) return special[(size_t)(v * (double)(sizeof special / sizeof *special))];
    return (unsigned)(v * (u < 0.97 ? 0x250 : 0x3000));
}

static void compare(es_split kind, int texts)
{
    es_splitter ours = {0}, steps[STEPS_MAX] = {{0}};
    assert_int_equal(es_splitter_open(kind, NULL, "test", &ours), ES_OK);
    const int count = open_steps(kind, steps);
    assert_true((ours.regex == NULL) == (kind != ES_SPLIT_DEFAULT));
    assert_non_null(steps[0].regex);

    es_text text = {0};
    for (int i = 0; i < texts; i++) {
        es_text_clear(&text);
        const uint64_t seed = (uint64_t)i * 8 + (uint64_t)kind;
        const int length = 1 + (int)(es_random_unit(seed, 0, 0, 0) * (i % 100 == 0 ? 300 : 24));
        for (int c = 0; c < length; c++) {
            unsigned codepoint = random_character(seed, (uint64_t)c);
            /* Characters newer than PCRE2's tables have no class there. */
            if (codepoint == 0xCF3 || codepoint == 0xECE) codepoint = 'x';
            es_text_put_codepoint(&text, codepoint);
        }
        static cuts a, b;
        a.count = b.count = 0;
        cut(&ours, text.data, text.bytes, 0, &a);
        cut_in_steps(steps, count, text.data, text.bytes, &b);
        if (a.count != b.count || memcmp(a.end, b.end, a.count * sizeof *a.end) != 0) {
            for (size_t k = 0; k < text.bytes; k++) print_error("%02x ", (unsigned char)text.data[k]);
            print_error("\nours: ");
            for (size_t k = 0; k < a.count; k++) print_error("%zu ", a.end[k]);
            print_error("\nregex: ");
            for (size_t k = 0; k < b.count; k++) print_error("%zu ", b.end[k]);
            fail_msg("kind %d cuts text %d differently", (int)kind, i);
        }
    }
    es_text_free(&text);
    es_splitter_close(&ours);
    for (int i = 0; i < count; i++) es_splitter_close(&steps[i]);
}

static void splitters_equal_their_patterns(void **state)
{
    (void)state;
    for (int kind = ES_SPLIT_GPT2; kind < ES_SPLIT_REGEX; kind++) compare((es_split)kind, getenv("ES_LONG") ? 40000 : 10000);
}

static bool has_class(pcre2_code *code, pcre2_match_data *match, const es_text *character)
{
    return pcre2_match(code, (PCRE2_SPTR)character->data, character->bytes, 0, 0, match, NULL) > 0;
}

/* One table against another: utf8proc's categories and PCRE2's, for every character that PCRE2 knows. */
static void classes_agree_on_every_character(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        unsigned class;
    } classes[] = {{"\\p{L}", ES_CHAR_LETTER}, {"\\p{N}", ES_CHAR_NUMBER}, {"\\p{M}", ES_CHAR_MARK},
                   {"\\p{White_Space}", ES_CHAR_SPACE}, {"[\\r\\n]", ES_CHAR_NEWLINE},
                   {"[^\\p{L}\\p{N}\\p{M}\\p{White_Space}]", ES_CHAR_OTHER}, {"\\p{Cn}", 0}};
    enum { CLASSES = sizeof classes / sizeof *classes };
    pcre2_code *code[CLASSES];
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (int i = 0; i < CLASSES; i++) {
        int error;
        PCRE2_SIZE at;
        code[i] =
            pcre2_compile((PCRE2_SPTR)classes[i].pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
        assert_non_null(code[i]);
    }
    es_text character = {0};
    for (unsigned c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        es_text_clear(&character);
        es_text_put_codepoint(&character, c);
        if (has_class(code[CLASSES - 1], match, &character)) continue;
        unsigned class = 0;
        for (int i = 0; i + 1 < CLASSES; i++)
            if (has_class(code[i], match, &character)) class |= classes[i].class;
        if (class != es_char_class(c)) fail_msg("U+%04X: class %u here, %u in PCRE2", c, es_char_class(c), class);
    }
    es_text_free(&character);
    for (int i = 0; i < CLASSES; i++) pcre2_code_free(code[i]);
    pcre2_match_data_free(match);
}

static void patterns_are_recognised_by_their_text(void **state)
{
    (void)state;
    assert_int_equal(es_split_from_pattern(es_split_pattern(ES_SPLIT_GPT2)), ES_SPLIT_GPT2);
    assert_int_equal(es_split_from_pattern(es_split_pattern(ES_SPLIT_LLAMA3)), ES_SPLIT_LLAMA3);
    assert_int_equal(es_split_from_pattern(es_split_pattern(ES_SPLIT_QWEN2)), ES_SPLIT_QWEN2);
    assert_int_equal(es_split_from_pattern(es_split_pattern(ES_SPLIT_QWEN35)), ES_SPLIT_QWEN35);
    assert_int_equal(es_split_from_pattern("\\s+"), ES_SPLIT_REGEX);
    assert_null(es_split_pattern(ES_SPLIT_REGEX));
    /* As the files spell it. */
    assert_string_equal(es_split_pattern(ES_SPLIT_QWEN2),
                        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?"
                        "[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
}

static void words_are_the_matches_and_what_lies_between(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        size_t end[8];
    } cases[] = {
        {"b+", "abbcb", {1, 3, 4, 5}},
        {"x*", "axxb", {1, 3, 4}}, /* empty matches cut nothing */
        {"(?=b)", "ab", {2}},
        {"q", "abc", {3}},
        {"\\s", "a\xE1\xA0\x8E b", {4, 5, 6}}, /* U+180E is no space */
        {"^b", "a\nb", {2, 3}},                  /* ^ sees lines */
        {"(?<=a)b", "abab", {1, 2, 3, 4}},       /* a lookbehind sees the word before */
        {"\xC3\xA9", "a\xC3\xA9""b", {1, 3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_splitter s = {0};
        static cuts found;
        found.count = 0;
        assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, cases[i].pattern, "test", &s), ES_OK);
        cut(&s, cases[i].text, strlen(cases[i].text), 0, &found);
        for (size_t k = 0; k < found.count; k++) assert_int_equal(found.end[k], cases[i].end[k]);
        assert_int_equal(cases[i].end[found.count], 0);
        es_splitter_close(&s);
    }
}

static void bad_patterns_are_refused(void **state)
{
    (void)state;
    es_splitter s = {0};
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, "(", "file.json", &s), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "file.json"));
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, "", "file.json", &s), ES_BAD_FILE);
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, NULL, "file.json", &s), ES_BAD_FILE);
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, "\\C", "file.json", &s), ES_UNSUPPORTED);
    char *huge = malloc(70000);
    memset(huge, 'a', 69999);
    huge[69999] = '\0';
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, huge, "file.json", &s), ES_UNSUPPORTED);
    free(huge);
    assert_int_equal(es_splitter_open((es_split)99, NULL, "file.json", &s), ES_INVALID);
}

/* A pattern that backtracks without end gives up with an error instead of stalling whoever waits. */
static void matching_is_bounded(void **state)
{
    (void)state;
    es_splitter s = {0};
    assert_int_equal(es_splitter_open(ES_SPLIT_REGEX, "(?:a|aa|a.)+(?:b|c)", "test", &s), ES_OK);
    char text[200];
    memset(text, 'a', sizeof text);
    es_split_run run;
    assert_int_equal(es_split_start(&s, (const unsigned char *)text, sizeof text, &run), ES_OK);
    assert_int_equal(es_split_next(&run), ES_INVALID);
    assert_non_null(strstr(es_error_message(), "gave up"));
    es_split_stop(&run);
    es_splitter_close(&s);
}

static void gguf_names_are_known_or_listed(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        es_split split;
    } names[] = {
        {"gpt-2",            ES_SPLIT_GPT2  },
        {"gpt2",             ES_SPLIT_GPT2  },
        {"smollm",           ES_SPLIT_SMOLLM},
        {"llama-bpe",        ES_SPLIT_LLAMA3},
        {"llama3",           ES_SPLIT_LLAMA3},
        {"qwen2",            ES_SPLIT_QWEN2 },
        {"deepseek-r1-qwen", ES_SPLIT_QWEN2 },
        {"qwen35",           ES_SPLIT_QWEN35},
        {"default",          ES_SPLIT_DEFAULT}
    };
    es_split split;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        split = ES_SPLIT_REGEX;
        assert_int_equal(es_split_from_gguf(names[i].pre, &split), ES_OK);
        assert_int_equal(split, names[i].split);
    }
    assert_int_equal(es_split_from_gguf("tekken", &split), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "\"tekken\""));
    assert_non_null(strstr(es_error_message(), "qwen35"));
    assert_int_equal(es_split_from_gguf(NULL, &split), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitters_equal_their_patterns),
        cmocka_unit_test(classes_agree_on_every_character),
        cmocka_unit_test(patterns_are_recognised_by_their_text),
        cmocka_unit_test(words_are_the_matches_and_what_lies_between),
        cmocka_unit_test(bad_patterns_are_refused),
        cmocka_unit_test(matching_is_bounded),
        cmocka_unit_test(gguf_names_are_known_or_listed),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
