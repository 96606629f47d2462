/* file_statistics.c: summary statistics of a file of float32 numbers, with nothing but the fold library.
 *
 *   ./example_file_statistics weights.f32 [threads] */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "evenshare/operators.h"

static int fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 2) return fail("usage: example_file_statistics FILE [THREADS]");
    const int fd = open(argv[1], O_RDONLY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0 || about.st_size == 0) return fail("the file cannot be read, or is empty");
    const size_t bytes = (size_t)about.st_size;
    const void *numbers = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (numbers == MAP_FAILED) return fail("the file cannot be mapped");

    es_team *team;
    if (es_team_open(argc > 2 ? atoi(argv[2]) : 0, &team) != ES_OK) return fail(es_error_message());
    const es_operator summary = es_operator_summary(ES_ITEM_F32);
    const es_source source = es_source_array(numbers, sizeof(float), (int64_t)(bytes / sizeof(float)));
    es_summary s;
    if (es_fold(team, &summary, &source, NULL, &s) != ES_OK) return fail(es_error_message());
    es_team_close(team);

    printf("numbers   %" PRId64 " (and %" PRId64 " NaN, %" PRId64 " infinite)\n", s.count, s.nans, s.plus_infs + s.minus_infs);
    printf("range     %.9g to %.9g\n", s.min, s.max);
    printf("mean      %.17g\n", s.mean);
    printf("deviation %.17g\n", es_summary_deviation(&s));
    printf("skewness  %.17g\n", es_summary_skewness(&s));
    printf("kurtosis  %.17g\n", es_summary_kurtosis(&s));
    return 0;
}
