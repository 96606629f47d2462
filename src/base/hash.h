/* hash.h: a quick hash of bytes, for checksums and keys. It finds accidents; it is no defence against anybody. */
#ifndef ES_BASE_HASH_H
#define ES_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/** 64-bit words in four lanes, folded with the length. Another seed, another hash. */
uint64_t es_hash(uint64_t seed, const void *data, size_t bytes);

#endif
