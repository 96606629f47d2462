/* trust.h: which kernel of which instruction set a table may take, given verdicts. */
#ifndef ES_CPU_TRUST_H
#define ES_CPU_TRUST_H

#include "device/cpu/kernels.h"
#include "device/verdict.h"

/** The kernels of one instruction set ("avx512", "avx2", "reference"), whatever is known of them. ES_UNSUPPORTED where this
 *  machine lacks it, ES_INVALID for another name. */
es_status es_kernels_of_set(const char *set, es_kernels *kernels);
/** Names, the fastest first, the reference not among them; NULL past the end. */
const char *es_kernels_set_name(int index);

/** How many entries a kernel table has, and what entry i is called: operation, and weight type or NULL. */
int es_kernels_entries(void);
void es_kernels_entry(int index, const char **operation, const char **type);
/** What is known of an entry, from all rows of the harness that exercise it: the worst of their verdicts. */
es_verdict es_kernels_entry_verdict(const es_verdicts *verdicts, const char *set, int index);
/** to's entry becomes from's; false when they were the same. */
bool es_kernels_take(es_kernels *to, const es_kernels *from, int index);

/** What this machine has, the slowest first: level 0 is the reference. A set takes over what it does not do better: a level
 *  owns an entry when it is another kernel than the level's before. */
enum { ES_KERNEL_LEVELS = 8 };
typedef struct es_kernel_sets {
    int count;
    const char *name[ES_KERNEL_LEVELS];
    es_kernels table[ES_KERNEL_LEVELS];
} es_kernel_sets;
void es_kernel_sets_here(es_kernel_sets *sets);
bool es_kernel_sets_owns(const es_kernel_sets *sets, int level, int entry);
/** Whether a row of the harness exercises anything that the level owns. */
bool es_kernel_sets_owns_row(const es_kernel_sets *sets, int level, const char *operation, const char *type);

/** For a test program, which may define it: spoil the kernels of a set. Absent from every other program. */
void es_kernels_spoil(const char *set, es_kernels *kernels) __attribute__((weak));

#endif
