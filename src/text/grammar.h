/* grammar.h: what an answer may look like, and which tokens keep it so.
 *
 * A grammar is GBNF text (llama.cpp's notation). JSON schemas, patterns and lists of choices are turned into such text first
 * (grammar_schema.h), so that there is one notation, one compiler and one thing for a request to carry: es_request.grammar.
 *
 *   es_grammar *grammar;                            // immutable: any number of threads and matchers may share it
 *   ES_TRY(es_grammar_compile(text, bytes, es_token_trie_writable(trie), 0, &grammar));
 *   es_matcher *matcher;                            // one per answer; all its memory is taken here
 *   ES_TRY(es_matcher_open(trie, &matcher));
 *   es_matcher_start(matcher, grammar);
 *   for (;;) {
 *       ES_TRY(es_matcher_mask(matcher, allowed));  // the tokens that may come; if es_matcher_is_complete(), so may the end
 *       ...choose a token...
 *       ES_TRY(es_matcher_take(matcher, token));
 *   }
 *
 * What must hold: after every token the text so far is a beginning of some sentence of the grammar, and as long as the text
 * is not a whole sentence some token is allowed. So rules that can never end are left out when a grammar is compiled, as are
 * bytes that the vocabulary cannot write; a grammar of which nothing is left is refused. */
#ifndef ES_TEXT_GRAMMAR_H
#define ES_TEXT_GRAMMAR_H

#include "base/error.h"
#include "evenshare/tokenizer.h"

enum {
    ES_GRAMMAR_BYTES_MAX = 1 << 20,  /**< of a grammar's text */
    ES_GRAMMAR_RULES_MAX = 1 << 14,  /**< named rules and repetitions */
    ES_GRAMMAR_STATES_MAX = 1 << 18, /**< of the compiled automaton */
    ES_GRAMMAR_NEST_MAX = 64,        /**< parentheses in parentheses */
    ES_GRAMMAR_REPEAT_MAX = 1 << 20, /**< n of x{m,n} */
    ES_GRAMMAR_DEPTH_MAX = 256,      /**< rules open at once while matching: deeper ones are not begun */
};

typedef struct es_grammar es_grammar;

/** Compile GBNF: rules `name ::= ...`, of which "root" is the whole text. `writable`: 256 bits, byte b may be written if
 *  bit b mod 8 of byte b / 8 is set; NULL: all may. ES_INVALID with line and column for what is no grammar, left-recursive,
 *  too large, or has no finite sentence. Takes time in proportion to the caps above at most. */
es_status es_grammar_compile(const char *text, size_t bytes, const uint8_t *writable, unsigned flags, es_grammar **grammar);
enum { ES_GRAMMAR_LINES_BEFORE = 1 /**< up to two newlines may come before the text */ };
void es_grammar_close(es_grammar *grammar);

/** A vocabulary as a tree of bytes: built once for a model, shared by all matchers. */
typedef struct es_token_trie es_token_trie;

/** `vocabulary`: bits in a mask (a model's output may be longer than its tokenizer's list). Left out, and hence never allowed,
 *  are special tokens, the `stop_count` tokens in `stops`, empty tokens and those of more than 255 bytes. ES_NO_MEMORY. */
es_status es_token_trie_open(const es_tokenizer *tokenizer, const es_token *stops, size_t stop_count, int32_t vocabulary,
                             es_token_trie **trie);
void es_token_trie_close(es_token_trie *trie);
/** The bytes that have a token of their own, for es_grammar_compile(). */
const uint8_t *es_token_trie_writable(const es_token_trie *trie);

/** Where an answer stands in its grammar. Belongs to one thread at a time. */
typedef struct es_matcher es_matcher;

/** Bytes that es_matcher_open() takes; they become resident as they are used. */
size_t es_matcher_bytes(const es_token_trie *trie);
/** `trie` NULL: a matcher for bytes only, without masks. ES_NO_MEMORY. */
es_status es_matcher_open(const es_token_trie *trie, es_matcher **matcher);
void es_matcher_close(es_matcher *matcher);
/** Begin at the beginning of `grammar`, which must outlive its use here. ES_UNSUPPORTED when its first state already is more
 *  than a matcher's memory holds. None of the functions below allocates. */
es_status es_matcher_start(es_matcher *matcher, const es_grammar *grammar);

/** Set bit i mod 8 of mask[i / 8] for each token i that may come next, and clear all others. Stop tokens are the caller's
 *  business. ES_UNSUPPORTED when the grammar is too ambiguous for a matcher's memory. */
es_status es_matcher_mask(es_matcher *matcher, uint8_t *mask);
/** Go on by a token's bytes, or by any bytes. ES_INVALID when they may not come here; the matcher stays as it was. */
es_status es_matcher_take(es_matcher *matcher, es_token token);
es_status es_matcher_take_bytes(es_matcher *matcher, const char *text, size_t bytes);
/** The text so far is a whole sentence. */
bool es_matcher_is_complete(const es_matcher *matcher);
/** Something may follow. Not complete implies that something may. */
bool es_matcher_can_go_on(const es_matcher *matcher);

#endif
