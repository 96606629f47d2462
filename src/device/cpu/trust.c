/* trust.c: the entries of a kernel table, and which rows of the harness speak about each. */
#include "device/cpu/trust.h"

#include <string.h>

#define ENTRY(name) {#name, offsetof(es_kernels, name), sizeof(((es_kernels *)NULL)->name)}

/* Every entry but the decoders, which come after these, one for each weight type. The products of bf16 and int8 hand work to
 * each other: they are trusted together. */
static const struct {
    const char *operation;
    size_t offset, bytes;
} entries[] = {ENTRY(dot), ENTRY(fold), ENTRY(rmsnorm), ENTRY(unit_length), ENTRY(gated_norm), ENTRY(swiglu), ENTRY(axpy),
               ENTRY(scale_gate), ENTRY(conv_silu), ENTRY(attn_tile), ENTRY(attn_tile_bf16), ENTRY(attn_tile_q8),
               ENTRY(attn_tile_f16), ENTRY(encode_f16), ENTRY(attn_merge), ENTRY(delta_scan), ENTRY(products), ENTRY(product_bf16dp)};
enum { ENTRIES = sizeof entries / sizeof *entries, TYPES = ES_DTYPES - 1 }; /* I32 is no weight */

/* A table holds decoders, these entries, one flag and a name: a new entry must be added above. */
_Static_assert(sizeof(es_kernels) == (ES_DTYPES + ENTRIES - 1 + 2) * sizeof(void *) + sizeof(es_products),
               "an entry of es_kernels is missing here");

/* Rows that are named otherwise than the entry they exercise. Whole products exercise the decoder of their type, too. */
static const struct {
    const char *entry, *row;
    bool typed;
} also[] = {{"dot", "matvec", true}, {"dot", "matmul", true}, {"fold", "dot", false}, {"fold", "matvec", true},
            {"fold", "matmul", true}, {"attn_tile", "attn_decode", false},
            {"attn_tile_q8", "attn_decode_q8", false}, {"attn_tile_f16", "attn_decode_f16", false},
            {"delta_scan", "delta_step", false},
            {"products", "product_bf16", false}, {"products", "product_int8", true}, {"products", "one_token", true}};
enum { ALSO = sizeof also / sizeof *also };

int es_kernels_entries(void)
{
    return ENTRIES + TYPES;
}

void es_kernels_entry(int index, const char **operation, const char **type)
{
    *operation = index < ENTRIES ? entries[index].operation : "decode";
    *type = index < ENTRIES ? NULL : es_dtype_get_info((es_dtype)(index - ENTRIES))->name;
}

/* Where an entry lies in the table, and how long it is. */
static size_t place_of(int index, size_t *bytes)
{
    *bytes = index < ENTRIES ? entries[index].bytes : sizeof(es_decode_fn);
    if (index < ENTRIES) return entries[index].offset;
    return offsetof(es_kernels, decode) + (size_t)(index - ENTRIES) * sizeof(es_decode_fn);
}

static bool differ(const es_kernels *a, const es_kernels *b, int index)
{
    size_t bytes;
    const size_t offset = place_of(index, &bytes);
    return memcmp((const unsigned char *)a + offset, (const unsigned char *)b + offset, bytes) != 0;
}

bool es_kernels_take(es_kernels *to, const es_kernels *from, int index)
{
    if (!differ(to, from, index)) return false;
    size_t bytes;
    const size_t offset = place_of(index, &bytes);
    memcpy((unsigned char *)to + offset, (const unsigned char *)from + offset, bytes);
    if (offset == offsetof(es_kernels, products)) to->products_by = from->products_by;
    return true;
}

void es_kernel_sets_here(es_kernel_sets *sets)
{
    int all = 0;
    while (es_kernels_set_name(all)) all++;
    sets->count = 1;
    sets->name[0] = "reference";
    es_kernels_reference(&sets->table[0]);
    for (int i = all - 1; i >= 0 && sets->count < ES_KERNEL_LEVELS; i--)
        if (es_kernels_of_set(es_kernels_set_name(i), &sets->table[sets->count]) == ES_OK)
            sets->name[sets->count++] = es_kernels_set_name(i);
}

bool es_kernel_sets_owns(const es_kernel_sets *sets, int level, int entry)
{
    return level > 0 && differ(&sets->table[level], &sets->table[level - 1], entry);
}

static bool row_exercises(int entry, const char *operation, const char *type)
{
    const char *name, *of_type;
    es_kernels_entry(entry, &name, &of_type);
    if (of_type) {
        const bool product = strcmp(operation, "matvec") == 0 || strcmp(operation, "matmul") == 0;
        return type && strcmp(type, of_type) == 0 && (product || strcmp(operation, name) == 0);
    }
    if (strcmp(operation, name) == 0) return true;
    for (int i = 0; i < ALSO; i++)
        if (strcmp(also[i].entry, name) == 0 && strcmp(also[i].row, operation) == 0) return true;
    return false;
}

bool es_kernel_sets_owns_row(const es_kernel_sets *sets, int level, const char *operation, const char *type)
{
    for (int i = 0; i < es_kernels_entries(); i++)
        if (row_exercises(i, operation, type) && es_kernel_sets_owns(sets, level, i)) return true;
    return false;
}

static bool is_bad(es_verdict verdict)
{
    return verdict != ES_VERDICT_UNKNOWN && verdict != ES_VERDICT_TRUSTED && verdict != ES_VERDICT_ABSENT;
}

static es_verdict worse(es_verdict a, es_verdict b)
{
    if (is_bad(a) || is_bad(b)) return is_bad(a) ? a : b;
    return a == ES_VERDICT_TRUSTED ? a : b;
}

/* A product's row says nothing against `dot` and `fold` if it is its type's decoder that fails alone. */
static bool is_decoders_fault(const es_verdicts *v, const char *set, const char *type)
{
    return is_bad(es_verdict_of(v, set, "decode", type));
}

es_verdict es_kernels_entry_verdict(const es_verdicts *v, const char *set, int index)
{
    const char *operation, *type;
    es_kernels_entry(index, &operation, &type);
    es_verdict verdict = es_verdict_of(v, set, operation, type);
    if (type) {
        if (is_bad(es_verdict_of(v, set, "dot", NULL))) return verdict; /* then products fail for another reason */
        return worse(worse(verdict, es_verdict_of(v, set, "matvec", type)), es_verdict_of(v, set, "matmul", type));
    }
    for (int i = 0; i < ALSO; i++) {
        if (strcmp(also[i].entry, operation) != 0) continue;
        if (!also[i].typed) verdict = worse(verdict, es_verdict_of(v, set, also[i].row, NULL));
        for (int t = 0; also[i].typed && t < TYPES; t++) {
            const char *name = es_dtype_get_info((es_dtype)t)->name;
            if (!is_decoders_fault(v, set, name)) verdict = worse(verdict, es_verdict_of(v, set, also[i].row, name));
        }
    }
    return verdict;
}
