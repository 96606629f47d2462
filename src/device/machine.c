/* machine.c: reads what Linux tells about the machine. Whatever is not there stays 0 or "?". */
#include "device/machine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "share/pool.h"

static bool read_text(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    if (!file) return false;
    text[fread(text, 1, room - 1, file)] = '\0';
    fclose(file);
    return true;
}

/* "Name:   123 kB" as bytes, or as it is where there is no unit. */
static int64_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (!at) return 0;
    char *end;
    const long long value = strtoll(at + strlen(name), &end, 10);
    return strncmp(end, " kB", 3) == 0 ? (int64_t)value * 1024 : (int64_t)value;
}

static int count_entries(const char *folder, const char *prefix)
{
    DIR *dir = opendir(folder);
    int count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *rest = entry->d_name + strlen(prefix);
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && *rest >= '0' && *rest <= '9';
    }
    if (dir) closedir(dir);
    return count;
}

/* The limit of this process's own cgroup (version 2), or the root's. */
static int64_t cgroup_limit(void)
{
    char text[512], path[640];
    int64_t limit = 0;
    if (read_text("/proc/self/cgroup", text, sizeof text) && strncmp(text, "0::", 3) == 0) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", text + 3);
        if (read_text(path, text, sizeof text)) limit = atoll(text);
    }
    if (limit <= 0 && read_text("/sys/fs/cgroup/memory/memory.limit_in_bytes", text, sizeof text)) limit = atoll(text);
    return limit > 0 && limit < (int64_t)1 << 60 ? limit : 0;
}

static void look_at_gpus(es_machine *m)
{
    DIR *dir = opendir("/proc/driver/nvidia/gpus");
    for (struct dirent *entry; dir && (entry = readdir(dir)) && m->gpus < ES_MOST_GPUS;) {
        if (entry->d_name[0] == '.') continue;
        char path[512], text[1024];
        snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%.200s/information", entry->d_name);
        const char *model = read_text(path, text, sizeof text) ? strstr(text, "Model:") : NULL;
        if (model) model += 6 + strspn(model + 6, " \t");
        snprintf(m->gpu[m->gpus++], sizeof m->gpu[0], "%.*s", model ? (int)strcspn(model, "\n") : 1, model ? model : "?");
    }
    if (dir) closedir(dir);
    char text[256];
    if (read_text("/sys/module/nvidia/version", text, sizeof text)) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(m->gpu_driver, sizeof m->gpu_driver, "nvidia %.80s", text);
    }
}

/* What is set up is one thing, what a cache gets another: memory may be fragmented, or the kernel without them. */
static bool gets_huge_pages(void)
{
    const size_t bytes = (size_t)8 << 20, before = es_memory_in_huge_pages();
    unsigned char *data = es_memory_map(bytes);
    if (!data) return false;
    memset(data, 1, bytes);
    const bool given = es_memory_in_huge_pages() > before;
    es_memory_unmap(data, bytes);
    return given;
}

void es_machine_look(es_machine *m)
{
    char text[4096];
    *m = (es_machine){.cpus = es_pool_cpus(), .cpus_in_all = (int)sysconf(_SC_NPROCESSORS_ONLN), .huge_pages = "?"};
    m->numa_nodes = count_entries("/sys/devices/system/node", "node");
    if (read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) {
        const char *chosen = strchr(text, '[');
        if (chosen) snprintf(m->huge_pages, sizeof m->huge_pages, "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
    }
    if (read_text("/proc/meminfo", text, sizeof text)) {
        m->memory = number_after(text, "MemTotal:");
        m->memory_available = number_after(text, "MemAvailable:");
        m->huge_pages_reserved = number_after(text, "HugePages_Total:");
    }
    m->huge_pages_given = gets_huge_pages();
    m->memory_limit = cgroup_limit();
    look_at_gpus(m);
}
