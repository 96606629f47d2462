/* tables.h: the two hash tables a vocabulary needs: text → token, and pair of numbers → two numbers.
 *
 * Both are filled once under a size known beforehand and never grow; afterwards they are read by any number of threads. */
#ifndef ES_TEXT_TABLES_H
#define ES_TEXT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct es_name_slot {
    const char *text; /**< borrowed; NULL = free */
    uint32_t bytes, hash;
    int32_t value;
} es_name_slot;

typedef struct es_name_table {
    es_name_slot *slot; /**< owned */
    size_t mask;
} es_name_table;

/** Room for `count` names. False when memory is short. */
bool es_name_table_open(es_name_table *table, size_t count);
void es_name_table_close(es_name_table *table);
/** False when the name was there already: the first one stays. */
bool es_name_table_add(es_name_table *table, const char *text, size_t bytes, int32_t value);
/** The value of the name `left` + `right`, or −1. */
int32_t es_name_table_find2(const es_name_table *table, const char *left, size_t left_bytes, const char *right,
                            size_t right_bytes);
int32_t es_name_table_find(const es_name_table *table, const char *text, size_t bytes);

typedef struct es_pair_slot {
    uint64_t key; /**< UINT64_MAX = free */
    int32_t first, second;
} es_pair_slot;

typedef struct es_pair_table {
    es_pair_slot *slot; /**< owned */
    size_t mask;
} es_pair_table;

bool es_pair_table_open(es_pair_table *table, size_t count);
void es_pair_table_close(es_pair_table *table);
/** False when the key was there already: the first one stays. */
bool es_pair_table_add(es_pair_table *table, uint64_t key, int32_t first, int32_t second);

static inline size_t es_pair_hash(uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0xD6E8FEB86659FD93);
    key ^= key >> 32;
    key *= UINT64_C(0xD6E8FEB86659FD93);
    return (size_t)(key ^ key >> 32);
}

static inline uint64_t es_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/** The slot of a key, or NULL. */
static inline const es_pair_slot *es_pair_table_find(const es_pair_table *table, uint64_t key)
{
    for (size_t i = es_pair_hash(key) & table->mask;; i = (i + 1) & table->mask) {
        const es_pair_slot *slot = &table->slot[i];
        if (slot->key == key) return slot;
        if (slot->key == UINT64_MAX) return NULL;
    }
}

#endif
