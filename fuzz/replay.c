/* replay.c: runs a fuzz target over the files of a folder, so that every build replays what the fuzzer once found. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 1;
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    /* An exact allocation, so that ASan sees one byte too far. */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    const size_t got = data && size > 0 ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    if (data) LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            fprintf(stderr, "%s: not a folder\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder));) {
            char path[4096];
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (replay_file(path)) return 1;
            files++;
        }
        closedir(folder);
    }
    printf("%d inputs replayed\n", files);
    return files ? 0 : 1;
}
