/* tables.c: open addressing with linear probing, at most half full. */
#include "text/tables.h"

#include <stdlib.h>
#include <string.h>

/* A power of two at least twice `count`; 0 when that cannot be. */
static size_t slots_for(size_t count)
{
    if (count > SIZE_MAX / 256) return 0;
    size_t slots = 8;
    while (slots < count * 2) slots *= 2;
    return slots;
}

bool es_name_table_open(es_name_table *table, size_t count)
{
    const size_t slots = slots_for(count);
    table->slot = slots ? calloc(slots, sizeof *table->slot) : NULL;
    table->mask = slots ? slots - 1 : 0;
    return table->slot != NULL;
}

void es_name_table_close(es_name_table *table)
{
    free(table->slot);
    *table = (es_name_table){0};
}

/* FNV-1a, continued from `hash`, so that a name may come in two parts. */
static uint64_t hash_part(uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint32_t hash_name(const char *left, size_t left_bytes, const char *right, size_t right_bytes)
{
    const uint64_t hash = hash_part(hash_part(UINT64_C(0xCBF29CE484222325), left, left_bytes), right, right_bytes);
    return (uint32_t)es_pair_hash(hash);
}

static es_name_slot *find_slot(const es_name_table *table, uint32_t hash, const char *left, size_t left_bytes,
                               const char *right, size_t right_bytes)
{
    const size_t bytes = left_bytes + right_bytes;
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        es_name_slot *slot = &table->slot[i];
        if (!slot->text) return slot;
        if (slot->hash == hash && slot->bytes == bytes && memcmp(slot->text, left, left_bytes) == 0 &&
            memcmp(slot->text + left_bytes, right, right_bytes) == 0)
            return slot;
    }
}

bool es_name_table_add(es_name_table *table, const char *text, size_t bytes, int32_t value)
{
    const uint32_t hash = hash_name(text, bytes, "", 0);
    es_name_slot *slot = find_slot(table, hash, text, bytes, "", 0);
    if (slot->text) return false;
    *slot = (es_name_slot){.text = text, .bytes = (uint32_t)bytes, .hash = hash, .value = value};
    return true;
}

int32_t es_name_table_find2(const es_name_table *table, const char *left, size_t left_bytes, const char *right,
                            size_t right_bytes)
{
    const es_name_slot *slot = find_slot(table, hash_name(left, left_bytes, right, right_bytes), left, left_bytes, right,
                                         right_bytes);
    return slot->text ? slot->value : -1;
}

int32_t es_name_table_find(const es_name_table *table, const char *text, size_t bytes)
{
    return es_name_table_find2(table, text, bytes, "", 0);
}

bool es_pair_table_open(es_pair_table *table, size_t count)
{
    const size_t slots = slots_for(count);
    table->slot = slots && slots <= SIZE_MAX / sizeof *table->slot ? malloc(slots * sizeof *table->slot) : NULL;
    table->mask = slots ? slots - 1 : 0;
    if (!table->slot) return false;
    memset(table->slot, 0xFF, slots * sizeof *table->slot);
    return true;
}

void es_pair_table_close(es_pair_table *table)
{
    free(table->slot);
    *table = (es_pair_table){0};
}

bool es_pair_table_add(es_pair_table *table, uint64_t key, int32_t first, int32_t second)
{
    for (size_t i = es_pair_hash(key) & table->mask;; i = (i + 1) & table->mask) {
        es_pair_slot *slot = &table->slot[i];
        if (slot->key == key) return false;
        if (slot->key == UINT64_MAX) {
            *slot = (es_pair_slot){.key = key, .first = first, .second = second};
            return true;
        }
    }
}
