/* memory.c: see memory.h. */
#include "base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What a line "NAME: n kB" of a file says, in bytes; 0 where there is none. */
static size_t bytes_of(const char *path, const char *name)
{
    FILE *f = fopen(path, "r");
    char line[256];
    size_t bytes = 0;
    const size_t length = strlen(name);
    while (f && !bytes && fgets(line, sizeof line, f))
        if (strncmp(line, name, length) == 0 && line[length] == ':') bytes = (size_t)strtoull(line + length + 1, NULL, 10) * 1024;
    if (f) fclose(f);
    return bytes;
}

static size_t number_in(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned long long value = 0;
    if (!f) return 0;
    if (fscanf(f, "%llu", &value) != 1) value = 0; /* "max" is no number */
    fclose(f);
    return (size_t)value;
}

static size_t smaller(size_t a, size_t b)
{
    return b == 0 || (a != 0 && a < b) ? a : b;
}

/* Every ancestor's limit holds: walk from this process's group to the root. */
static size_t limit_above(const char *root, char *group, const char *file)
{
    size_t least = 0;
    for (;;) {
        char path[1024];
        snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        least = smaller(least, number_in(path));
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

static size_t cgroup_bytes(void)
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    char line[768];
    size_t least = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        if (group[0] == '/' && group[1] == '\0') group[0] = '\0';
        if (strcmp(controllers, ":") == 0)
            least = smaller(least, limit_above("/sys/fs/cgroup", group, "memory.max"));
        else if (strstr(controllers, "memory"))
            least = smaller(least, limit_above("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
    fclose(f);
    return least;
}

size_t es_memory_limit(void)
{
    const size_t least = smaller(bytes_of("/proc/meminfo", "MemTotal"), cgroup_bytes());
    return least ? least : (size_t)1 << 30;
}

size_t es_memory_available(void)
{
    return smaller(bytes_of("/proc/meminfo", "MemAvailable"), es_memory_limit());
}

#define HUGE_PAGE ((size_t)2 << 20)

/* From the start of a huge page on, or else its first and last megabyte would lie in small ones. What is mapped too much for that
 * is given back. */
void *es_memory_map(size_t bytes)
{
    const size_t whole = (bytes + 4095) / 4096 * 4096, more = whole + HUGE_PAGE;
    if (whole < bytes || more < whole) return NULL;
    unsigned char *all = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE, after = HUGE_PAGE - before;
    unsigned char *data = all + before;
    if (before) munmap(all, before);
    if (after) munmap(data + whole, after);
    madvise(data, bytes, MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
    return data;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it, and pages come as they are written */
#endif

void es_memory_populate(void *data, size_t bytes)
{
    unsigned char *from = (unsigned char *)data - (uintptr_t)data % 4096;
    if (bytes) madvise(from, bytes + (size_t)((unsigned char *)data - from), MADV_POPULATE_WRITE);
}

size_t es_memory_in_huge_pages(void)
{
    return bytes_of("/proc/self/smaps_rollup", "AnonHugePages");
}

void es_memory_unmap(void *data, size_t bytes)
{
    if (data) munmap(data, bytes);
}
