/* build.c: see build.h. */
#include "base/build.h"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char build[64] = ES_VERSION;

static int take_build_id(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size, (void)argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_NOTE) continue;
        const unsigned char *at = (const unsigned char *)(uintptr_t)(info->dlpi_addr + header->p_vaddr);
        const unsigned char *end = at + header->p_memsz;
        while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            const unsigned char *name = at + sizeof note, *id = name + (note.n_namesz + 3) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                size_t n = (size_t)snprintf(build, sizeof build, "%s-", ES_VERSION);
                for (uint32_t b = 0; b < note.n_descsz && n + 3 < sizeof build; b++, n += 2)
                    snprintf(build + n, 3, "%02x", id[b]);
                return 1;
            }
            at = id + (note.n_descsz + 3) / 4 * 4;
        }
    }
    return 1; /* the first object is the program itself: shared libraries do not matter */
}

static void find(void)
{
    dl_iterate_phdr(take_build_id, NULL);
}

const char *es_build_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return build;
}
