/* The tokenizer over small hand-made vocabularies: merges, added tokens, foreign bytes, streaming back, hostile sources. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "base/text.h"
#include "text/normalize.h"
#include "text/tokenizer_source.h"
#include "text/utf8.h"

#define TOKENS_MAX 512
#define MERGES_MAX 200

/* A vocabulary under construction: tokens 0 to 255 are the single bytes. */
typedef struct vocabulary {
    char text[TOKENS_MAX][64];
    es_token_source tokens[TOKENS_MAX];
    es_merge_source merges[MERGES_MAX];
    es_tokenizer_source source;
} vocabulary;

static vocabulary *start(void)
{
    vocabulary *v = calloc(1, sizeof *v);
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        es_text t = {0};
        es_text_put_codepoint(&t, itself ? b : next++);
        memcpy(v->text[b], t.data, t.bytes);
        v->tokens[b] = (es_token_source){.text = v->text[b], .bytes = t.bytes};
        es_text_free(&t);
    }
    v->source = (es_tokenizer_source){
        .where = "test", .tokens = v->tokens, .size = 256, .merges = v->merges, .bos = ES_NO_TOKEN, .eos = ES_NO_TOKEN};
    return v;
}

static es_token add(vocabulary *v, const char *text, es_token_kind kind)
{
    const es_token id = v->source.size++;
    strcpy(v->text[id], text);
    v->tokens[id] = (es_token_source){.text = v->text[id], .bytes = strlen(text), .kind = kind};
    return id;
}

/* A merge of two tokens, and the token they make. */
static es_token merge(vocabulary *v, es_token left, es_token right)
{
    char text[128];
    snprintf(text, sizeof text, "%s%s", v->text[left], v->text[right]);
    v->merges[v->source.merge_count++] = (es_merge_source){.left = v->text[left], .left_bytes = strlen(v->text[left]),
                                                           .right = v->text[right], .right_bytes = strlen(v->text[right])};
    for (es_token i = 0; i < v->source.size; i++)
        if (strcmp(v->text[i], text) == 0) return i;
    return add(v, text, ES_TOKEN_NORMAL);
}

static es_tokenizer *build(const vocabulary *v)
{
    es_tokenizer *t = NULL;
    if (es_tokenizer_build(&v->source, &t) != ES_OK) fail_msg("%s", es_error_message());
    return t;
}

static void expect(const es_tokenizer *t, const char *text, size_t bytes, unsigned flags, const es_token *wanted, size_t count)
{
    es_token *tokens = NULL;
    size_t found = 0;
    assert_int_equal(es_tokenizer_encode(t, text, bytes, flags, &tokens, &found), ES_OK);
    if (found != count || (count && memcmp(tokens, wanted, count * sizeof *tokens) != 0)) {
        for (size_t i = 0; i < found; i++) print_error("%d ", (int)tokens[i]);
        fail_msg("\"%s\": %zu tokens, %zu expected", text, found, count);
    }
    free(tokens);
}

#define EXPECT(t, text, flags, ...)                                                                  \
    do {                                                                                             \
        const es_token wanted[] = {__VA_ARGS__};                                                     \
        expect(t, text, sizeof(text) - 1, flags, wanted, sizeof wanted / sizeof *wanted);            \
    } while (0)

static void the_best_merge_comes_first_and_of_equals_the_leftmost(void **state)
{
    (void)state;
    vocabulary *v = start();
    const es_token bc = merge(v, 'b', 'c'), ab = merge(v, 'a', 'b'), abc = merge(v, 'a', bc), aa = merge(v, 'a', 'a');
    es_tokenizer *t = build(v);
    EXPECT(t, "abc", 0, abc);
    EXPECT(t, "ab", 0, ab);
    EXPECT(t, "aaa", 0, aa, 'a');
    EXPECT(t, "aabc", 0, 'a', abc);
    EXPECT(t, "abab", 0, ab, ab);
    EXPECT(t, "a b", 0, 'a', ' ', 'b');
    expect(t, "", 0, 0, NULL, 0);
    assert_int_equal(es_tokenizer_find(t, "abc"), abc);
    assert_int_equal(es_tokenizer_find(t, " "), ' ');
    assert_int_equal(es_tokenizer_find(t, "nothing"), ES_NO_TOKEN);
    assert_int_equal(es_tokenizer_size(t), 260);
    size_t bytes;
    assert_memory_equal(es_tokenizer_piece(t, abc, &bytes), "abc", 3);
    assert_int_equal(bytes, 3);
    assert_null(es_tokenizer_piece(t, -1, &bytes));
    assert_null(es_tokenizer_piece(t, 260, &bytes));
    es_tokenizer_close(t);
    free(v);
}

static void a_whole_word_needs_no_merges_where_the_model_says_so(void **state)
{
    (void)state;
    vocabulary *v = start();
    const es_token xyz = add(v, "xyz", ES_TOKEN_NORMAL);
    es_tokenizer *t = build(v);
    EXPECT(t, "xyz", 0, 'x', 'y', 'z');
    es_tokenizer_close(t);
    v->source.ignore_merges = true;
    t = build(v);
    EXPECT(t, "xyz", 0, xyz);
    EXPECT(t, "xyzz", 0, 'x', 'y', 'z', 'z');
    es_tokenizer_close(t);
    free(v);
}

/* The definition, read aloud: find the best pair, merge it, start over. */
static size_t merge_by_definition(const es_token (*made)[TOKENS_MAX], const int (*rank)[TOKENS_MAX],
                                  es_token *s, size_t n)
{
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (rank[s[i]][s[i + 1]] && (best == n || rank[s[i]][s[i + 1]] < rank[s[best]][s[best + 1]])) best = i;
        if (best == n) return n;
        s[best] = made[s[best]][s[best + 1]];
        memmove(s + best + 1, s + best + 2, (n - best - 2) * sizeof *s);
        n--;
    }
}

static void short_and_long_words_follow_the_definition(void **state)
{
    (void)state;
    static es_token made[TOKENS_MAX][TOKENS_MAX];
    static int rank[TOKENS_MAX][TOKENS_MAX];
    for (uint64_t seed = 0; seed < 30; seed++) {
        memset(made, 0, sizeof made);
        memset(rank, 0, sizeof rank);
        vocabulary *v = start();
        es_token known[64] = {'a', 'b', 'c'};
        size_t count = 3;
        for (uint64_t i = 0; i < 40; i++) {
            const es_token l = known[(size_t)(es_random_unit(seed, 1, i, 0) * (double)count)];
            const es_token r = known[(size_t)(es_random_unit(seed, 1, i, 1) * (double)count)];
            if (rank[l][r] || strlen(v->text[l]) + strlen(v->text[r]) > 40) continue;
            const es_token token = merge(v, l, r);
            made[l][r] = token;
            rank[l][r] = (int)v->source.merge_count;
            known[count++] = token;
        }
        es_tokenizer *t = build(v);
        for (uint64_t w = 0; w < 60; w++) {
            char word[400];
            es_token wanted[400];
            const size_t n = 1 + (size_t)(es_random_unit(seed, 2, w, 0) * (w % 2 ? 400 : 80)) % 400;
            for (size_t i = 0; i < n; i++) {
                word[i] = (char)('a' + (int)(es_random_unit(seed, 3, w * 400 + i, 0) * 3));
                wanted[i] = word[i];
            }
            expect(t, word, n, 0, wanted, merge_by_definition(made, rank, wanted, n));
        }
        es_tokenizer_close(t);
        free(v);
    }
}

/* Quadratic time would be hours here. */
static void megabytes_of_one_word_are_no_trouble(void **state)
{
    (void)state;
    vocabulary *v = start();
    es_token run = 'a';
    for (int i = 0; i < 5; i++) run = merge(v, run, run);
    v->source.nfc = true;
    es_tokenizer *t = build(v);
    const size_t n = (size_t)4 << 20;
    char *text = malloc(n);
    memset(text, 'a', n);
    es_token *tokens;
    size_t count;
    assert_int_equal(es_tokenizer_encode(t, text, n, 0, &tokens, &count), ES_OK);
    assert_int_equal(count, n / 32);
    for (size_t i = 0; i < count; i++) assert_int_equal(tokens[i], run);
    free(tokens);

    /* Marks in the worst order: all of class 230, then all of class 220. */
    for (size_t i = 0; i < n; i += 2) memcpy(text + i, i < n / 2 ? "\xCC\x80" : "\xCC\xA3", 2);
    assert_int_equal(es_tokenizer_encode(t, text, n, 0, &tokens, &count), ES_OK);
    assert_int_equal(count, n);
    assert_int_equal(tokens[1], 0xA3);
    assert_int_equal(tokens[n - 1], 0x80);
    free(tokens);
    free(text);
    es_tokenizer_close(t);
    free(v);
}

static void nfc_composes_and_orders(void **state)
{
    (void)state;
    static const struct {
        const char *text, *nfc;
    } cases[] = {
        {"plain", "plain"},
        {"e\xCC\x81", "\xC3\xA9"},                                  /* e + acute */
        {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},                 /* dot above, dot below: below comes first */
        {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},   /* Hangul */
        {"\xE2\x84\xA6", "\xCE\xA9"},                               /* ohm sign: omega */
        {"\xCD\x84", "\xCC\x88\xCC\x81"},                           /* never composed again */
        {"\xEF\xAC\x81", "\xEF\xAC\x81"},                           /* a ligature stays (that would be NFKC) */
        {"e\xCC\x81\xFF" "e\xCC\x81\xCC", "\xC3\xA9\xFF\xC3\xA9\xCC"}, /* around bytes that are no UTF-8 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_text out = {0};
        assert_int_equal(es_nfc_append((const unsigned char *)cases[i].text, strlen(cases[i].text), &out), ES_OK);
        assert_string_equal(out.data, cases[i].nfc);
        es_text_free(&out);
    }
}

static void special_tokens_are_text_unless_asked_for(void **state)
{
    (void)state;
    vocabulary *v = start();
    const es_token end = add(v, "<e>", ES_TOKEN_CONTROL), think = add(v, "<t>", ES_TOKEN_USER),
                   longer = add(v, "<e>>", ES_TOKEN_CONTROL);
    const es_token inside = add(v, ">q", ES_TOKEN_USER);
    v->source.bos = end;
    es_tokenizer *t = build(v);
    EXPECT(t, "a<e>b", ES_ENCODE_SPECIAL, 'a', end, 'b');
    EXPECT(t, "a<e>b", 0, 'a', '<', 'e', '>', 'b');
    EXPECT(t, "<t>", 0, think);
    EXPECT(t, "<e>q>q", 0, '<', 'e', '>', 'q', inside); /* a match turned down is passed over whole */
    EXPECT(t, "<e>><e>", ES_ENCODE_SPECIAL, longer, end);
    EXPECT(t, "<e", ES_ENCODE_SPECIAL, '<', 'e');
    EXPECT(t, "a", ES_ENCODE_BOS, 'a'); /* the model's own tokenizer does not add it */
    assert_true(es_tokenizer_is_special(t, end));
    assert_false(es_tokenizer_is_special(t, think));
    assert_false(es_tokenizer_is_special(t, -1));
    assert_int_equal(es_tokenizer_find(t, "<e>"), end);
    assert_int_equal(es_tokenizer_bos(t), end);
    assert_int_equal(es_tokenizer_eos(t), ES_NO_TOKEN);
    es_tokenizer_close(t);
    v->source.add_bos = true;
    t = build(v);
    EXPECT(t, "a", ES_ENCODE_BOS, end, 'a');
    EXPECT(t, "a", 0, 'a');
    EXPECT(t, "", ES_ENCODE_BOS, end);
    es_tokenizer_close(t);
    free(v);
}

static void added_tokens_take_in_space_and_want_whole_words(void **state)
{
    (void)state;
    vocabulary *v = start();
    const es_token l = add(v, "<l>", ES_TOKEN_USER), r = add(v, "<r>", ES_TOKEN_USER), w = add(v, "word", ES_TOKEN_USER);
    const es_token n = add(v, "\xC3\xA9!", ES_TOKEN_USER), raw = add(v, "e\xCC\x81?", ES_TOKEN_USER);
    v->tokens[l].lstrip = v->tokens[r].rstrip = v->tokens[w].single_word = v->tokens[n].normalized = true;
    v->source.nfc = true;
    es_tokenizer *t = build(v);
    EXPECT(t, "a \t<l> b", 0, 'a', l, ' ', 'b');
    EXPECT(t, "a <r>\xC2\xA0 b", 0, 'a', ' ', r, 'b');
    EXPECT(t, "<r> <l>", 0, r, l);
    EXPECT(t, "a word.", 0, 'a', ' ', w, '.');
    EXPECT(t, "words", 0, 'w', 'o', 'r', 'd', 's');
    EXPECT(t, "word", 0, w);
    EXPECT(t, "\xC3\xA9word", 0, 0xC3, 0xA9, 'w', 'o', 'r', 'd');
    EXPECT(t, "e\xCC\x81!", 0, n);     /* found in the normalised text */
    EXPECT(t, "e\xCC\x81?", 0, raw);   /* found before it is normalised */
    EXPECT(t, "\xC3\xA9?", 0, 0xC3, 0xA9, '?');
    es_tokenizer_close(t);
    free(v);
}

static void foreign_bytes_are_encoded_one_by_one(void **state)
{
    (void)state;
    vocabulary *v = start();
    merge(v, 0xC3, 0xA9);
    merge(v, 0xFF, 0xFF);
    const es_token e = 256;
    es_tokenizer *t = build(v);
    EXPECT(t, "\xC3\xA9\xFF\xFF\xC3", 0, e, 0xFF, 0xFF, 0xC3);
    EXPECT(t, "\xED\xA0\x80", 0, 0xED, 0xA0, 0x80); /* a surrogate */
    static const char *const invalid[] = {"\xED\xA0\x80",     "\xC0\xAF",         "\xE0\x9F\xBF",
                                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\x80"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        assert_int_equal(es_utf8_valid((const unsigned char *)invalid[i], strlen(invalid[i])), 0);
    EXPECT(t, "a\0b", 0, 'a', 0, 'b');
    es_tokenizer_close(t);
    free(v);
}

static void bytes_without_a_token_are_dropped_or_unknown(void **state)
{
    (void)state;
    vocabulary *v = start();
    v->tokens[4].text = v->tokens[6].text = NULL;
    const es_token unknown = add(v, "<u>", ES_TOKEN_CONTROL);
    es_tokenizer *t = build(v);
    EXPECT(t, "\4a\6", 0, 'a');
    expect(t, "\4", 1, 0, NULL, 0);
    es_tokenizer_close(t);
    v->source.has_unknown = true;
    v->source.unknown = unknown;
    t = build(v);
    EXPECT(t, "\4\6a", 0, unknown, unknown, 'a');
    es_tokenizer_close(t);
    v->source.fuse_unknown = true;
    t = build(v);
    EXPECT(t, "\4\6a", 0, unknown, 'a');
    es_tokenizer_close(t);
    free(v);
}

/* Every cut of a text into tokens streams back to the same text, valid at each step. */
static void streaming_never_cuts_a_character(void **state)
{
    (void)state;
    vocabulary *v = start();
    es_tokenizer *t = build(v);
    const char text[] = "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80z\xE2\x82\xAC";
    const size_t n = sizeof text - 1;
    es_detokenizer *d;
    assert_int_equal(es_detokenizer_open(t, false, &d), ES_OK);
    for (size_t stop = 0; stop <= n; stop++) {
        es_text all = {0};
        const char *piece;
        size_t bytes;
        for (size_t i = 0; i < stop; i++) {
            assert_int_equal(es_detokenizer_add(d, (unsigned char)text[i], &piece, &bytes), ES_OK);
            assert_int_equal(es_utf8_valid((const unsigned char *)piece, bytes), bytes);
            es_text_append(&all, piece, bytes);
            assert_int_equal(all.bytes, es_utf8_valid((const unsigned char *)text, i + 1));
        }
        const size_t whole = es_utf8_valid((const unsigned char *)text, stop);
        assert_int_equal(es_detokenizer_finish(d, &piece, &bytes), ES_OK);
        if (whole < stop)
            assert_memory_equal(piece, "\xEF\xBF\xBD", 3);
        else
            assert_int_equal(bytes, 0);
        if (whole) assert_memory_equal(all.data, text, whole);
        es_text_free(&all);
    }
    es_detokenizer_close(d);
    es_tokenizer_close(t);
    free(v);
}

static void bytes_that_are_no_character_become_replacements(void **state)
{
    (void)state;
    vocabulary *v = start();
    const es_token end = add(v, "<e>", ES_TOKEN_CONTROL);
    es_tokenizer *t = build(v);
    /* The longest beginning of a character counts as one. */
    static const struct {
        const char *bytes, *text;
    } cases[] = {{"\xE4\xB8" "a", "\xEF\xBF\xBD" "a"}, {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xF0\x9F\x98\xE4\xB8\xAD", "\xEF\xBF\xBD\xE4\xB8\xAD"}, {"\xFF\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9"},
                 {"\xF4\x90", "\xEF\xBF\xBD\xEF\xBF\xBD"}};
    es_detokenizer *d;
    assert_int_equal(es_detokenizer_open(t, true, &d), ES_OK);
    const char *piece;
    size_t bytes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_text all = {0};
        for (const char *p = cases[i].bytes; *p; p++) {
            assert_int_equal(es_detokenizer_add(d, (unsigned char)*p, &piece, &bytes), ES_OK);
            es_text_append(&all, piece, bytes);
        }
        assert_int_equal(es_detokenizer_finish(d, &piece, &bytes), ES_OK);
        es_text_append(&all, piece, bytes);
        assert_string_equal(all.data, cases[i].text);
        es_text_free(&all);
    }
    assert_int_equal(es_detokenizer_add(d, end, &piece, &bytes), ES_OK);
    assert_string_equal(piece, "<e>");
    assert_int_equal(es_detokenizer_add(d, 0xC3, &piece, &bytes), ES_OK);
    es_detokenizer_reset(d);
    assert_int_equal(es_detokenizer_add(d, 'a', &piece, &bytes), ES_OK);
    assert_string_equal(piece, "a");
    assert_int_equal(es_detokenizer_add(d, 257, &piece, &bytes), ES_INVALID);
    assert_int_equal(es_detokenizer_add(d, -1, &piece, &bytes), ES_INVALID);
    es_detokenizer_close(d);

    assert_int_equal(es_detokenizer_open(t, false, &d), ES_OK);
    assert_int_equal(es_detokenizer_add(d, end, &piece, &bytes), ES_OK);
    assert_int_equal(bytes, 0);
    es_detokenizer_close(d);
    es_tokenizer_close(t);
    free(v);
}

static void refuse(vocabulary *v, es_status status, const char *why)
{
    es_tokenizer *t = NULL;
    assert_int_equal(es_tokenizer_build(&v->source, &t), status);
    if (!strstr(es_error_message(), why)) fail_msg("\"%s\" does not say \"%s\"", es_error_message(), why);
    assert_null(t);
    free(v);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    vocabulary *v = start();
    v->source.size = 0;
    refuse(v, ES_BAD_FILE, "empty");
    v = start();
    v->source.bos = 256;
    refuse(v, ES_BAD_FILE, "beginning-of-sequence token is number 256");
    v = start();
    v->source.eos = -2;
    refuse(v, ES_BAD_FILE, "end-of-sequence");
    v = start();
    v->source.has_unknown = true;
    v->source.unknown = 1000;
    refuse(v, ES_BAD_FILE, "unknown");
    v = start();
    merge(v, 'a', 'b');
    v->source.size = 256;
    refuse(v, ES_BAD_FILE, "lacks the two together");
    v = start();
    v->merges[v->source.merge_count++] = (es_merge_source){.left = "aa", .left_bytes = 2, .right = "b", .right_bytes = 1};
    refuse(v, ES_BAD_FILE, "lacks the first");
    v = start();
    v->source.merge_count = SIZE_MAX;
    refuse(v, ES_BAD_FILE, "merges");
    v = start();
    v->tokens[7].bytes = SIZE_MAX;
    refuse(v, ES_BAD_FILE, "too long together");
    v = start();
    static char text[5000];
    memset(text, 'x', sizeof text);
    v->tokens[9] = (es_token_source){.text = text, .bytes = sizeof text, .kind = ES_TOKEN_CONTROL};
    refuse(v, ES_UNSUPPORTED, "added token 9");
    v = start();
    v->source.split = ES_SPLIT_REGEX;
    v->source.pattern = "[";
    refuse(v, ES_UNSUPPORTED, "PCRE2");
}

/* What one of several threads does over and over: always the same tokens. */
static void *encode_many_times(void *tokenizer)
{
    static const char text[] = "aab ab word <e> 12 caf\xC3\xA9 e\xCC\x81 \xFF";
    es_token *first = NULL;
    size_t count = 0, same = 0;
    if (es_tokenizer_encode(tokenizer, text, sizeof text - 1, ES_ENCODE_SPECIAL, &first, &count) != ES_OK) return NULL;
    for (int i = 0; i < 200; i++) {
        es_token *tokens = NULL;
        size_t n = 0;
        if (es_tokenizer_encode(tokenizer, text, sizeof text - 1, ES_ENCODE_SPECIAL, &tokens, &n) != ES_OK) break;
        same += n == count && memcmp(tokens, first, n * sizeof *tokens) == 0;
        free(tokens);
    }
    free(first);
    return same == 200 ? tokenizer : NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    static const es_split splits[] = {ES_SPLIT_QWEN35, ES_SPLIT_REGEX};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        vocabulary *v = start();
        merge(v, 'a', 'b');
        add(v, "<e>", ES_TOKEN_CONTROL);
        v->source.nfc = true;
        v->source.split = splits[i];
        v->source.pattern = "\\p{L}+|\\s";
        es_tokenizer *t = build(v);
        pthread_t thread[3];
        for (int k = 0; k < 3; k++) assert_int_equal(pthread_create(&thread[k], NULL, encode_many_times, t), 0);
        for (int k = 0; k < 3; k++) {
            void *result = NULL;
            pthread_join(thread[k], &result);
            assert_ptr_equal(result, t);
        }
        es_tokenizer_close(t);
        free(v);
    }
}

/* Odd, but no contradiction: files like these exist. */
static void oddities_are_taken(void **state)
{
    (void)state;
    vocabulary *v = start();
    const es_token twice = add(v, "a", ES_TOKEN_NORMAL), literal = add(v, "[PAD 1]", ES_TOKEN_UNUSED);
    const es_token nothing = add(v, "", ES_TOKEN_CONTROL), foreign = add(v, "\xFF\xFE", ES_TOKEN_NORMAL);
    merge(v, 'a', 'b');
    merge(v, 'a', 'b');
    es_tokenizer *t = build(v);
    EXPECT(t, "aab", ES_ENCODE_SPECIAL, 'a', es_tokenizer_find(t, "ab"));
    size_t bytes;
    assert_memory_equal(es_tokenizer_piece(t, literal, &bytes), "[PAD 1]", 7);
    assert_int_equal(bytes, 7);
    es_tokenizer_piece(t, nothing, &bytes);
    assert_int_equal(bytes, 0);
    assert_memory_equal(es_tokenizer_piece(t, foreign, &bytes), "\xFF\xFE", 2);
    assert_memory_equal(es_tokenizer_piece(t, twice, &bytes), "a", 1);
    es_token *tokens;
    size_t count;
    assert_int_equal(es_tokenizer_encode(t, "", (size_t)INT32_MAX + 1, 0, &tokens, &count), ES_TOO_LONG);
    es_tokenizer_close(t);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_merge_comes_first_and_of_equals_the_leftmost),
        cmocka_unit_test(a_whole_word_needs_no_merges_where_the_model_says_so),
        cmocka_unit_test(short_and_long_words_follow_the_definition),
        cmocka_unit_test(megabytes_of_one_word_are_no_trouble),
        cmocka_unit_test(nfc_composes_and_orders),
        cmocka_unit_test(special_tokens_are_text_unless_asked_for),
        cmocka_unit_test(added_tokens_take_in_space_and_want_whole_words),
        cmocka_unit_test(foreign_bytes_are_encoded_one_by_one),
        cmocka_unit_test(bytes_without_a_token_are_dropped_or_unknown),
        cmocka_unit_test(streaming_never_cuts_a_character),
        cmocka_unit_test(bytes_that_are_no_character_become_replacements),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(oddities_are_taken),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
