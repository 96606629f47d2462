/* grammar_matcher.h: the inside of a matcher, shared by grammar_match.c (how it moves) and grammar_mask.c (what may come).
 *
 * While a rule is being read, those that opened it wait. Who waits is a *return*: a set of (state to go on in, repetitions
 * counted, who waits behind that), and what is behind is a return again: stacks whose common parts are there once, however
 * many ways there are to read a text. A *set* is all that the text so far can mean: pairs of a state that reads a byte and its
 * return. Equal returns and equal sets have one number each, so that where a byte leads from a set is computed once and then
 * looked up, and so is what it allows.
 *
 * All of it lies in arrays of fixed size. When they fill up, what the present set does not need is thrown away. */
#ifndef ES_TEXT_GRAMMAR_MATCHER_H
#define ES_TEXT_GRAMMAR_MATCHER_H

#include "text/grammar_internal.h"
#include "text/token_trie.h"

enum {
    ES_MATCH_RETURNS = 1 << 14,
    ES_MATCH_ENTRIES = 1 << 16,
    ES_MATCH_SETS = 1 << 12,
    ES_MATCH_ITEMS = 1 << 16,
    ES_MATCH_PLACES = 1 << 13,
    ES_MATCH_MASKS = 16,     /* kept for sets whose masks took long */
    ES_MATCH_WORK = 1 << 19, /* steps of making sets in one call, about 10 ms: hardly any grammar needs a hundredth of it */
};

/* Numbers that sets are not given. */
enum { ES_SET_UNKNOWN, ES_SET_DEAD, ES_SET_FIRST };

typedef struct es_match_entry {
    uint32_t state, count; /* where to go on, and how often its repetition has happened */
    uint32_t behind;       /* a return */
} es_match_entry;

typedef struct es_match_return {
    uint32_t first, count; /* entries, sorted */
    uint32_t hash;
    uint32_t depth; /* returns on the longest way to the last one */
} es_match_return;

typedef struct es_match_item {
    uint32_t state, wait; /* wait: a return */
} es_match_item;

typedef struct es_match_set {
    uint32_t first, count; /* items, sorted by state */
    uint32_t hash;
    uint32_t run; /* ordinary characters that may come in a row, as far as one repetition tells; UINT32_MAX: no end */
    bool accept;  /* the text so far is a sentence */
    bool closed;  /* nothing else but `run` can take an ordinary character */
    uint8_t kinds; /* of bytes (token_trie.h) of which `most` may come in a row, as far as one repetition tells */
    uint8_t loops; /* of bytes that lead back to this set; none as long as nobody has looked */
    bool looked;
    uint32_t most;
} es_match_set;

/* While a set is being made: a state that can be reached, the repetitions counted there, and who waits. */
typedef struct es_match_place {
    uint32_t state, count, wait;
    uint32_t next; /* place + 1 that calls the same rule; 0: none */
    bool queued, listed;
} es_match_place;

struct es_matcher {
    const es_grammar *grammar;
    const es_token_trie *trie;
    size_t mapped; /* bytes of this block */
    uint32_t set;  /* where the text so far leads */
    uint32_t work; /* done in this call */
    bool full;     /* an array was too small, or there was too much to do: what was being computed is not to be used */

    es_match_return *returns; /* number 0: nobody waits */
    es_match_entry *entries;
    es_match_set *sets;
    es_match_item *items;
    uint32_t return_count, entry_count, set_count, item_count;
    uint32_t *return_slots, *set_slots;   /* hash tables of numbers + 1, twice as large as what they hold */
    uint16_t *row;                        /* [sets][256] where a byte leads */
    uint16_t path[ES_TRIE_TOKEN_MAX + 2]; /* sets along a token */

    es_match_place *places; /* scratch from here on */
    uint32_t *place_slots, *queue;
    uint32_t place_count, queue_head, queue_count;
    bool starting; /* nothing has been read in the rules being entered: their ends are not reached */
    bool accept;
    uint64_t *pending; /* bit o: the rule whose order is o is called */
    uint32_t *callers; /* [rules] place + 1 that calls it, the first of a list; 0: none */
    es_match_entry *gathered;
    uint32_t *renumber; /* [returns] */

    uint8_t *masks;                      /* [ES_MATCH_MASKS][mask_bytes] */
    uint32_t mask_owner[ES_MATCH_MASKS]; /* sets; 0: free */
    uint32_t next_mask;
};

/* The set after a byte; ES_SET_DEAD when it cannot come. Sets matcher->full when memory is short. */
uint32_t es_match_step(es_matcher *matcher, uint32_t set, uint8_t byte);
/* Throw away what the present set does not need, if memory is becoming short. */
void es_match_make_room(es_matcher *matcher, bool at_once);
es_status es_match_fail_full(void);
/* Full for want of memory: worth a second try with more room. */
static inline bool es_match_wants_room(const es_matcher *m)
{
    return m->full && m->work <= ES_MATCH_WORK;
}

/* What is known of a step already, or the way to find out. */
static inline uint32_t es_match_next(es_matcher *m, uint32_t set, uint8_t byte)
{
    const uint32_t next = m->row[set * 256 + byte];
    return next != ES_SET_UNKNOWN ? next : es_match_step(m, set, byte);
}

#endif
