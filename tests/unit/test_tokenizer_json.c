/* Reading tokenizer.json: what is understood, and what is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "text/tokenizer_source.h"

/* A small file, part by part; each test replaces some. A `'` stands for a double quote. */
typedef struct parts {
    const char *added, *normalizer, *pre, *post, *model;
} parts;

#define VOCAB "'vocab':{'a':0,'b':1,'ab':2,'\\u0120':3,'1':4,'\\u00c3':5,'\\u00a9':6}"
#define MODEL "{'type':'BPE'," VOCAB ",'merges':[['a','b']]}"
#define BYTE_LEVEL "{'type':'ByteLevel','add_prefix_space':false,'use_regex':true}"
#define BYTES_ONLY "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define SEQUENCE(list, ...) "{'type':'Sequence','" list "':[" __VA_ARGS__ "]}"
#define SPLIT(pattern, rest) "{'type':'Split','pattern':{'Regex':'" pattern "'}," rest "}"
#define TOKEN(id, text, rest) "{'id':" #id ",'content':'" text "'" rest "}"

static es_status open_parts(parts p, const char *config, es_tokenizer **t)
{
    es_text json = {0}, settings = {0};
    es_text_printf(&json, "{'added_tokens':%s,'normalizer':%s,'pre_tokenizer':%s,'post_processor':%s,'model':%s}",
                   p.added ? p.added : "[]", p.normalizer ? p.normalizer : "null", p.pre ? p.pre : BYTE_LEVEL,
                   p.post ? p.post : "null", p.model ? p.model : MODEL);
    if (config) es_text_puts(&settings, config);
    for (size_t i = 0; i < json.bytes; i++)
        if (json.data[i] == '\'') json.data[i] = '"';
    for (size_t i = 0; i < settings.bytes; i++)
        if (settings.data[i] == '\'') settings.data[i] = '"';
    const es_status status = es_tokenizer_read_json("t.json", json.data, json.bytes, settings.data, settings.bytes, t);
    es_text_free(&json);
    es_text_free(&settings);
    return status;
}

static es_tokenizer *good(parts p, const char *config)
{
    es_tokenizer *t = NULL;
    if (open_parts(p, config, &t) != ES_OK) fail_msg("%s", es_error_message());
    return t;
}

/* Encode, compare and close. */
static void gives(es_tokenizer *t, const char *text, const char *wanted)
{
    es_token *tokens = NULL;
    size_t count = 0;
    assert_int_equal(es_tokenizer_encode(t, text, strlen(text), ES_ENCODE_SPECIAL | ES_ENCODE_BOS, &tokens, &count), ES_OK);
    es_text list = {0};
    es_text_puts(&list, "");
    for (size_t i = 0; i < count; i++) es_text_printf(&list, "%s%d", i ? " " : "", (int)tokens[i]);
    assert_string_equal(list.data ? list.data : "", wanted);
    es_text_free(&list);
    free(tokens);
    es_tokenizer_close(t);
}

static void merges_come_as_pairs_or_as_strings(void **state)
{
    (void)state;
    gives(good((parts){0}, NULL), "abb a", "2 1 3 0");
    gives(good((parts){.model = "{'type':'BPE'," VOCAB ",'merges':['a b']}"}, NULL), "abb a", "2 1 3 0");
    gives(good((parts){.model = "{" VOCAB ",'merges':[]}"}, NULL), "ab", "0 1");
    gives(good((parts){.model = "{" VOCAB ",'merges':[],'ignore_merges':true}"}, NULL), "ab", "2");
    gives(good((parts){.model = "{" VOCAB ",'merges':[],'unk_token':'b'}"}, NULL), "axy", "0 1 1");
    gives(good((parts){.model = "{" VOCAB ",'merges':[],'unk_token':'b','fuse_unk':true}"}, NULL), "axy", "0 1");
}

static void pre_tokenizers_are_recognised(void **state)
{
    (void)state;
    static const char digits[] = "{'type':'Digits','individual_digits':true}";
    char sequence[400];
    gives(good((parts){.normalizer = "{'type':'NFC'}"}, NULL), "e\xCC\x81", "5 6");
    gives(good((parts){.normalizer = SEQUENCE("normalizers", "{'type':'NFC'}")}, NULL), "e\xCC\x81", "5 6");
    snprintf(sequence, sizeof sequence, SEQUENCE("pretokenizers", "%s," BYTE_LEVEL), digits);
    gives(good((parts){.pre = sequence}, NULL), "a1", "0 4");
    gives(good((parts){.pre = SEQUENCE("pretokenizers", SPLIT("\\\\p{N}", "'behavior':'Isolated'") "," BYTE_LEVEL)}, NULL),
          "a1", "0 4");
    gives(good((parts){.pre = SEQUENCE("pretokenizers", SPLIT("a", "'behavior':'Isolated'") "," BYTES_ONLY)}, NULL), "ab",
          "0 1");
    gives(good((parts){.pre = BYTES_ONLY}, NULL), "ab ab", "2 3 2");
}

static void added_tokens_have_their_switches(void **state)
{
    (void)state;
    es_tokenizer *t =
        good((parts){.added = "[" TOKEN(9, "<x>", ",'special':true,'rstrip':true") "," TOKEN(8, "<y>", "") "]"}, NULL);
    assert_int_equal(es_tokenizer_size(t), 10);
    assert_true(es_tokenizer_is_special(t, 9));
    assert_false(es_tokenizer_is_special(t, 8));
    size_t bytes = 1;
    assert_non_null(es_tokenizer_piece(t, 7, &bytes));
    assert_int_equal(bytes, 0);
    gives(t, "a<x> <y>", "0 9 8");
}

static void the_ends_come_from_the_configuration_and_the_template(void **state)
{
    (void)state;
    const char *added = "[" TOKEN(7, "<x>", ",'special':true") "," TOKEN(8, "<y>", ",'special':true") "]";
    es_tokenizer *t = good((parts){.added = added}, "{'bos_token':'<x>','eos_token':{'content':'<y>'}}");
    assert_int_equal(es_tokenizer_bos(t), 7);
    assert_int_equal(es_tokenizer_eos(t), 8);
    gives(t, "a", "0");
    t = good((parts){.added = added}, "{'bos_token':null,'eos_token':'<none>'}");
    assert_int_equal(es_tokenizer_bos(t), ES_NO_TOKEN);
    assert_int_equal(es_tokenizer_eos(t), ES_NO_TOKEN);
    es_tokenizer_close(t);
    const char *post =
        SEQUENCE("processors", "{'type':'ByteLevel'},{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<y>',"
                               "'type_id':0}},{'Sequence':{'id':'A','type_id':0}}]}");
    t = good((parts){.added = added, .post = post}, NULL);
    assert_int_equal(es_tokenizer_bos(t), 8);
    gives(t, "a", "8 0");
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        parts p;
        const char *says;
    } cases[] = {
        {{.model = "{'type':'Unigram','vocab':[]}"}, "Unigram"},
        {{.model = "{'type':'WordPiece','vocab':{}}"}, "WordPiece"},
        {{.model = "{'vocab':{}}"}, "without a type"},
        {{.model = "{'type':'BPE','byte_fallback':true," VOCAB ",'merges':[]}"}, "byte_fallback"},
        {{.model = "{'type':'BPE','end_of_word_suffix':'</w>'," VOCAB ",'merges':[]}"}, "</w>"},
        {{.normalizer = "{'type':'Lowercase'}"}, "Lowercase"},
        {{.normalizer = SEQUENCE("normalizers", "{'type':'NFC'},{'type':'Strip'}")}, "Strip"},
        {{.pre = "null"}, "ByteLevel"},
        {{.pre = "{'type':'Metaspace'}"}, "Metaspace"},
        {{.pre = "{'type':'Digits','individual_digits':false}"}, "individual_digits"},
        {{.pre = "{'type':'ByteLevel'}"}, "add_prefix_space"},
        {{.pre = SEQUENCE("pretokenizers", BYTE_LEVEL "," BYTE_LEVEL)}, "after ByteLevel"},
        {{.pre = SEQUENCE("pretokenizers", SPLIT("a", "'behavior':'Isolated'") "," BYTE_LEVEL)}, "use_regex"},
        {{.pre = SEQUENCE("pretokenizers", SPLIT("a", "'behavior':'Removed'") "," BYTES_ONLY)}, "Removed"},
        {{.pre = SEQUENCE("pretokenizers", SPLIT("a", "'behavior':'Removed','invert':true") "," BYTES_ONLY)}, "Removed"},
        {{.pre = SEQUENCE("pretokenizers", SPLIT("(", "'behavior':'Isolated'") "," BYTES_ONLY)}, "PCRE2"},
        {{.pre = SEQUENCE("pretokenizers", SPLIT("a", "'behavior':'Isolated'") "," SPLIT("b", "'behavior':'Isolated'"))},
         "more than one"},
        {{.pre = SEQUENCE("pretokenizers", "{'type':'Split','pattern':{'String':' '},'behavior':'Isolated'}")}, "Regex only"},
        {{.post = "{'type':'BertProcessing'}"}, "BertProcessing"},
        {{.post = "{'type':'TemplateProcessing','single':[{'Sequence':{}},{'SpecialToken':{'id':'b'}}]}"}, "\"b\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_tokenizer *t = NULL;
        const es_status status = open_parts(cases[i].p, NULL, &t);
        if (status != ES_UNSUPPORTED || !strstr(es_error_message(), cases[i].says) || !strstr(es_error_message(), "t.json"))
            fail_msg("case %zu: %s: %s (expected: %s)", i, es_status_name(status), es_error_message(), cases[i].says);
    }
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        parts p;
        const char *says;
    } cases[] = {
        {{.model = "null"}, "model"},
        {{.model = "{'type':'BPE','vocab':[],'merges':[]}"}, "vocab"},
        {{.model = "{'type':'BPE','vocab':{},'merges':[]}"}, "empty"},
        {{.model = "{'type':'BPE'," VOCAB "}"}, "merges"},
        {{.model = "{'type':'BPE'," VOCAB ",'merges':['ab']}"}, "merge 0"},
        {{.model = "{'type':'BPE'," VOCAB ",'merges':['a b c']}"}, "merge 0"},
        {{.model = "{'type':'BPE'," VOCAB ",'merges':[['a']]}"}, "merge 0"},
        {{.model = "{'type':'BPE'," VOCAB ",'merges':[['a',1]]}"}, "merge 0"},
        {{.model = "{'type':'BPE'," VOCAB ",'merges':[['a','a']]}"}, "lacks the two together"},
        {{.model = "{'type':'BPE','vocab':{'a':0,'b':0},'merges':[]}"}, "both number 0"},
        {{.model = "{'type':'BPE','vocab':{'a':-1},'merges':[]}"}, "no sensible number"},
        {{.model = "{'type':'BPE','vocab':{'a':2147483647},'merges':[]}"}, "no sensible number"},
        {{.model = "{'type':'BPE','vocab':{'a':9223372036854775807},'merges':[]}"}, "no sensible number"},
        {{.model = "{'type':'BPE','vocab':{'a':1.5},'merges':[]}"}, "no sensible number"},
        {{.model = "{'type':'BPE','vocab':{'a':0,'a':1},'merges':[]}"}, "duplicate"},
        {{.added = "{}"}, "added_tokens"},
        {{.added = "[1]"}, "added token 0"},
        {{.added = "[" TOKEN(0, "<x>", "") "]"}, "says otherwise"},
        {{.added = "[" TOKEN(7, "a", "") "]"}, "says otherwise"},
        {{.added = "[" TOKEN(99999999, "<x>", "") "]"}, "no sensible number"},
        {{.normalizer = "7"}, "not an object"},
        {{.normalizer = "{'type':'Sequence'}"}, "Sequence"},
        {{.post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<q>'}}]}"}, "<q>"},
        {{.post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{}}]}"}, "without an id"},
    };
    es_tokenizer *t = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const es_status status = open_parts(cases[i].p, NULL, &t);
        if (status != ES_BAD_FILE || !strstr(es_error_message(), cases[i].says))
            fail_msg("case %zu: %s: %s (expected: %s)", i, es_status_name(status), es_error_message(), cases[i].says);
    }
    assert_int_equal(open_parts((parts){0}, "[]", &t), ES_BAD_FILE);
    assert_int_equal(es_tokenizer_read_json("t.json", "", 0, NULL, 0, &t), ES_BAD_FILE);
    assert_int_equal(es_tokenizer_read_json("t.json", "[]", 2, NULL, 0, &t), ES_BAD_FILE);
    assert_int_equal(es_tokenizer_open_json("/no/such/file", NULL, &t), ES_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_come_as_pairs_or_as_strings),
        cmocka_unit_test(pre_tokenizers_are_recognised),
        cmocka_unit_test(added_tokens_have_their_switches),
        cmocka_unit_test(the_ends_come_from_the_configuration_and_the_template),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests_name("tokenizer_json", tests, NULL, NULL);
}
