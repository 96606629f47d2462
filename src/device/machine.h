/* machine.h: what this machine has, as far as an engine cares. */
#ifndef ES_DEVICE_MACHINE_H
#define ES_DEVICE_MACHINE_H

#include "base/error.h"

enum { ES_MOST_GPUS = 16 };

typedef struct es_machine {
    int cpus;                    /**< in this process's affinity mask */
    int cpus_in_all, numa_nodes;
    char huge_pages[16];         /**< of transparent ones: "always", "madvise", "never"; "?" */
    bool huge_pages_given;       /**< memory that asks for transparent ones, as caches do, was just given some */
    int64_t huge_pages_reserved; /**< explicit ones, in the pool */
    int64_t memory, memory_available; /**< bytes; 0 = unknown */
    int64_t memory_limit;        /**< the cgroup's; 0 = none */
    int gpus;
    char gpu[ES_MOST_GPUS][96];
    char gpu_driver[96];
} es_machine;

void es_machine_look(es_machine *machine);

#endif
