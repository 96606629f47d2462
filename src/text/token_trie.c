/* token_trie.c: see token_trie.h. */
#include "text/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

/* What stands where while the trees are built. */
typedef struct piece {
    const unsigned char *text;
    uint32_t bytes;
    uint32_t characters; /* of an ordinary token; 0: it is none */
    es_token token;
} piece;

/* Characters of a token made of ordinary ones only, or 0. */
static uint32_t count_ordinary(const unsigned char *text, size_t bytes)
{
    uint32_t count = 0;
    if (es_utf8_valid(text, bytes) != bytes) return 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < 0x20 || text[i] == '"' || text[i] == '\\' || text[i] == 0x7F) return 0;
        count += (text[i] & 0xC0) != 0x80;
    }
    return count;
}

static bool is_stop(es_token token, const es_token *stops, size_t stop_count)
{
    for (size_t i = 0; i < stop_count; i++)
        if (stops[i] == token) return true;
    return false;
}

static void find_writable(es_token_trie *trie, const piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].bytes == 1) trie->writable[*pieces[i].text / 8] |= (uint8_t)(1 << (*pieces[i].text % 8));
}

/* A byte that no token writes alone is one that a grammar does without: see es_grammar_compile(). */
static uint32_t drop_unwritable(const es_token_trie *trie, piece *pieces, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool whole = true;
        for (uint32_t b = 0; b < pieces[i].bytes; b++) {
            const unsigned char byte = pieces[i].text[b];
            whole &= trie->writable[byte / 8] >> (byte % 8) & 1;
        }
        if (whole) pieces[kept++] = pieces[i];
    }
    return kept;
}

static uint32_t gather(es_token_trie *trie, const es_token *stops, size_t stop_count, piece *pieces)
{
    const int32_t size = es_tokenizer_size(trie->tokenizer);
    uint32_t count = 0;
    for (es_token token = 0; token < size && token < trie->vocabulary; token++) {
        size_t bytes = 0;
        const char *text = es_tokenizer_piece(trie->tokenizer, token, &bytes);
        if (!text || bytes == 0 || bytes > ES_TRIE_TOKEN_MAX || es_tokenizer_is_special(trie->tokenizer, token) ||
            is_stop(token, stops, stop_count))
            continue;
        pieces[count++] = (piece){(const unsigned char *)text, (uint32_t)bytes, 0, token};
    }
    find_writable(trie, pieces, count);
    count = drop_unwritable(trie, pieces, count);
    for (uint32_t i = 0; i < count; i++) pieces[i].characters = count_ordinary(pieces[i].text, pieces[i].bytes);
    return count;
}

static int compare_pieces(const void *a, const void *b)
{
    const piece *left = a, *right = b;
    const bool left_rest = left->characters == 0, right_rest = right->characters == 0;
    if (left_rest != right_rest) return left_rest - right_rest;
    const uint32_t common = left->bytes < right->bytes ? left->bytes : right->bytes;
    const int order = memcmp(left->text, right->text, common);
    if (order) return order;
    if (left->bytes != right->bytes) return left->bytes < right->bytes ? -1 : 1;
    return (left->token > right->token) - (left->token < right->token);
}

/* What stands below each node, from the last to the first: `below` gathers, by depth, what the nodes since the last one above say. */
static void describe_nodes(es_trie_tree *tree)
{
    struct {
        uint8_t kinds, height;
    } below[ES_TRIE_TOKEN_MAX + 2] = {0};
    for (uint32_t i = tree->count; i-- > 0;) {
        es_trie_node *node = &tree->nodes[i];
        const uint32_t depth = node->depth;
        node->kinds = below[depth + 1].kinds;
        node->height = below[depth + 1].height;
        below[depth + 1].kinds = below[depth + 1].height = 0;
        below[depth].kinds |= node->kinds | es_trie_kind(node->byte);
        if (node->height >= below[depth].height) below[depth].height = (uint8_t)(node->height + 1);
    }
    for (uint32_t i = 0; i < tree->count; i++) {
        es_trie_node *node = &tree->nodes[i];
        if (node->token >= 0) tree->tokens[tree->token_count++] = node->token;
        node->first = tree->token_count;
    }
    tree->nodes[tree->count] = (es_trie_node){.token = ES_NO_TOKEN, .first = tree->token_count};
}

/* Pieces in order; each adds the nodes that the one before it did not need. */
static es_status build_tree(const piece *pieces, uint32_t count, es_trie_tree *tree)
{
    size_t total = 1;
    uint32_t open[ES_TRIE_TOKEN_MAX + 1], depth = 0, nodes = 0;
    for (uint32_t i = 0; i < count; i++) total += pieces[i].bytes;
    tree->nodes = malloc(total * sizeof *tree->nodes);
    tree->tokens = malloc(((size_t)count + 1) * sizeof *tree->tokens);
    if (!tree->nodes || !tree->tokens) return es_fail(ES_NO_MEMORY, "no memory for a vocabulary's tree");
    for (uint32_t i = 0; i < count; i++) {
        const piece *p = &pieces[i];
        uint32_t common = 0;
        while (common < depth && common < p->bytes - 1 && tree->nodes[open[common]].byte == p->text[common]) common++;
        while (depth > common) tree->nodes[open[--depth]].skip = nodes;
        for (; depth < p->bytes; depth++) {
            tree->nodes[nodes] = (es_trie_node){.token = ES_NO_TOKEN, .byte = p->text[depth], .depth = (uint8_t)depth};
            open[depth] = nodes++;
        }
        tree->nodes[nodes - 1].token = p->token;
    }
    while (depth > 0) tree->nodes[open[--depth]].skip = nodes;
    tree->count = nodes;
    es_trie_node *fitted = realloc(tree->nodes, ((size_t)nodes + 1) * sizeof *fitted);
    if (fitted) tree->nodes = fitted;
    describe_nodes(tree);
    return ES_OK;
}

static int compare_longer(const void *a, const void *b)
{
    const es_trie_long *left = a, *right = b;
    if (left->characters != right->characters) return left->characters < right->characters ? -1 : 1;
    return (left->token > right->token) - (left->token < right->token);
}

static es_status build_levels(es_token_trie *trie, const piece *pieces, uint32_t count)
{
    for (int n = 0; n <= ES_TRIE_LEVELS; n++)
        if (!(trie->level[n] = calloc(1, trie->mask_bytes)))
            return es_fail(ES_NO_MEMORY, "no memory for a vocabulary's masks");
    trie->longer = malloc(((size_t)count + 1) * sizeof *trie->longer);
    if (!trie->longer) return es_fail(ES_NO_MEMORY, "no memory for a vocabulary's masks");
    for (uint32_t i = 0; i < count; i++) {
        const es_token token = pieces[i].token;
        const uint32_t characters = pieces[i].characters;
        const uint8_t bit = (uint8_t)(1 << (token % 8));
        if (characters > trie->longest) trie->longest = characters;
        trie->level[0][token / 8] |= bit;
        for (uint32_t n = characters; n <= ES_TRIE_LEVELS; n++) trie->level[n][token / 8] |= bit;
        if (characters > ES_TRIE_LEVELS) trie->longer[trie->longer_count++] = (es_trie_long){token, characters};
    }
    qsort(trie->longer, trie->longer_count, sizeof *trie->longer, compare_longer);
    return ES_OK;
}

static es_status fill(es_token_trie *trie, const es_token *stops, size_t stop_count, piece *pieces)
{
    const uint32_t count = gather(trie, stops, stop_count, pieces);
    uint32_t ordinary = 0;
    qsort(pieces, count, sizeof *pieces, compare_pieces);
    while (ordinary < count && pieces[ordinary].characters) ordinary++;
    ES_TRY(build_tree(pieces, ordinary, &trie->ordinary));
    ES_TRY(build_tree(pieces + ordinary, count - ordinary, &trie->rest));
    return build_levels(trie, pieces, ordinary);
}

es_status es_token_trie_open(const es_tokenizer *tokenizer, const es_token *stops, size_t stop_count, int32_t vocabulary,
                             es_token_trie **out)
{
    es_token_trie *trie = calloc(1, sizeof *trie);
    piece *pieces = malloc(((size_t)es_tokenizer_size(tokenizer) + 1) * sizeof *pieces);
    es_status status = ES_OK;
    if (!trie || !pieces) status = es_fail(ES_NO_MEMORY, "no memory for a vocabulary's tree");
    if (status == ES_OK) {
        trie->tokenizer = tokenizer;
        trie->vocabulary = vocabulary;
        trie->mask_bytes = ((size_t)vocabulary + 7) / 8;
        status = fill(trie, stops, stop_count, pieces);
    }
    free(pieces);
    if (status != ES_OK) {
        es_token_trie_close(trie);
        return status;
    }
    *out = trie;
    return ES_OK;
}

void es_token_trie_close(es_token_trie *trie)
{
    if (!trie) return;
    free(trie->ordinary.nodes);
    free(trie->rest.nodes);
    free(trie->ordinary.tokens);
    free(trie->rest.tokens);
    for (int n = 0; n <= ES_TRIE_LEVELS; n++) free(trie->level[n]);
    free(trie->longer);
    free(trie);
}

const uint8_t *es_token_trie_writable(const es_token_trie *trie)
{
    return trie->writable;
}
