/* plugin.h: what the program and libevenshare_cuda.so say to each other: one function, found by name at run time.
 *
 * The library is opened with dlopen, so that one program runs with and without a GPU, and a machine without a driver is told
 * so in a sentence. Both sides must come from one build: the structs of op.h and device.h pass between them as they are. */
#ifndef ES_CUDA_PLUGIN_H
#define ES_CUDA_PLUGIN_H

#include "device/device.h"
#include "evenshare/operators.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What the library needs of the program. */
typedef struct es_cuda_host {
    void (*record)(const char *format, ...); /**< es_error_record(): the sentence that goes with a failure */
} es_cuda_host;

/** One GPU as its driver describes it. */
typedef struct es_cuda_gpu {
    char name[96];
    int major, minor; /**< compute capability */
    int code; /**< 75, 80 or 90: the instructions that kernels have on it (newer cards get those of sm_80); 0: there are none for it */
    int multiprocessors;
    int warp;                 /**< lanes */
    size_t shared;            /**< bytes of shared memory that one block can have */
    size_t cache;             /**< bytes of the second-level cache */
    size_t memory, available; /**< bytes */
    int driver, runtime;      /**< CUDA versions, as 13000 */
} es_cuda_gpu;

/** What the GPU reaches when a kernel does nothing else, per second; measured. */
typedef struct es_cuda_limits {
    int multiprocessors;
    double read_bytes, bf16_flops;
    const char *bf16_by;   /**< the instruction that reaches it; of float32 where kernels have none of bfloat16 */
    double bf16_sustained; /**< the same over a third of a second: what power and heat leave of it */
} es_cuda_limits;

/** What a piece of a row leaves: Σ x² and the largest |x| of its finite numbers. */
typedef struct es_cuda_piece {
    double energy, largest;
} es_cuda_piece;

/** A tensor whose numbers are to be summed up (stats.cu). */
typedef struct es_cuda_stats_job {
    const unsigned char *data; /**< rows side by side, in host memory */
    es_dtype type;             /**< anything but ES_I32 */
    int64_t rows, columns;     /**< whole blocks of the type */
    int64_t piece;             /**< columns of a piece of a row at most: a multiple of the type's block, up to 2^24 */
    int32_t blocks;            /**< of the fold's grid; 0: as many as fill the GPU; changes no bit */
    es_summary *summary;
    uint64_t *bin;       /**< [4096] by the upper 12 bits of a float, or NULL */
    es_cuda_piece *size; /**< [rows · pieces of a row], or NULL */
} es_cuda_stats_job;
typedef struct es_cuda_stats es_cuda_stats;

typedef struct es_cuda_api {
    size_t op_bytes, options_bytes, batch_bytes; /**< sizes of the structs that pass between the two */
    const char *version;
    /** The GPUs there are; at most `room` are written. ES_UNSUPPORTED, with the reason, when there is no driver or no GPU. */
    es_status (*look)(es_cuda_gpu *gpus, int room, int *count);
    /** Measure the first GPU. */
    es_status (*limits)(es_cuda_limits *limits);
    /** The first GPU as a device. */
    es_status (*open)(const es_device_options *options, es_device **device);
    /** Statistics of tensors on the first GPU: memory for two chunks of 2^24 numbers, then as many tensors as there are. */
    es_status (*stats_open)(es_cuda_stats **stats);
    es_status (*stats_run)(es_cuda_stats *stats, const es_cuda_stats_job *job);
    void (*stats_close)(es_cuda_stats *stats); /**< NULL is fine */
} es_cuda_api;

/** The library's one symbol. */
const es_cuda_api *es_cuda_get_api(const es_cuda_host *host);
typedef const es_cuda_api *(*es_cuda_get_api_fn)(const es_cuda_host *host);

#ifdef __cplusplus
}
#endif
#endif
