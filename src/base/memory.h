/* memory.h: how much memory this process may use, as the kernel will enforce it: the smallest cgroup limit above it, or the
 * machine's memory. Containers see the machine's figure in most tools, and are killed at the other. */
#ifndef ES_BASE_MEMORY_H
#define ES_BASE_MEMORY_H

#include <stddef.h>

/** Bytes. Never 0: 1 GiB when nothing can be read. */
size_t es_memory_limit(void);
/** Bytes that could be had now without taking any from others; at most es_memory_limit(). */
size_t es_memory_available(void);
/** Anonymous zeroed memory for large buffers, from the start of a huge page on and in huge pages where the kernel has them; NULL
 *  when refused. */
void *es_memory_map(size_t bytes);
/** Ask the kernel to give the pages of these bytes, all of them mapped with es_memory_map(), their memory now; their content stays
 *  as it is, also while another thread writes it. A wish. */
void es_memory_populate(void *data, size_t bytes);
/** Bytes of this process's memory that the kernel has put in transparent huge pages; 0 where it does not tell. */
size_t es_memory_in_huge_pages(void);
void es_memory_unmap(void *data, size_t bytes);

#endif
