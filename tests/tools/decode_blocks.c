/* decode_blocks TYPE [ref|avx2|avx512]: raw blocks on standard input, float32 numbers on standard output. For
 * tests/py/test_quants.py. Exit code 77 where the processor lacks the instruction set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/decode.h"

static es_decode_fn choose(const char *set, es_dtype type)
{
    if (strcmp(set, "ref") == 0) return es_decode_ref(type);
#if defined(__x86_64__)
    if (strcmp(set, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return es_decode_avx2(type);
    if (strcmp(set, "avx512") == 0 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return es_decode_avx512(type);
#endif
    return NULL;
}

int main(int argc, char **argv)
{
    es_dtype type;
    if (argc < 2 || !es_dtype_from_name(argv[1], &type)) {
        fprintf(stderr, "usage: decode_blocks TYPE [ref|avx2|avx512] < BLOCKS > FLOATS\n");
        return 2;
    }
    const es_decode_fn decode = choose(argc > 2 ? argv[2] : "ref", type);
    if (!decode) return 77;
    const es_dtype_info *info = es_dtype_get_info(type);
    unsigned char block[256];
    float out[256];
    while (fread(block, (size_t)info->block_bytes, 1, stdin) == 1) {
        decode(block, out, info->block);
        if (fwrite(out, sizeof *out, (size_t)info->block, stdout) != (size_t)info->block) return 1;
    }
    return fflush(stdout) ? 1 : 0;
}
