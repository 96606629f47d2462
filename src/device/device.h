/* device.h: what the engine asks of a device: memory, and the execution of recorded operations.
 *
 *   es_device *device;
 *   es_device_open_cpu(&options, &device);
 *   es_buffer *x;
 *   es_device_alloc(device, bytes, &x);
 *   ...record a program over buffers, once...
 *   es_device_submit(device, &program, &batch);      // every step
 *   es_device_read(device, logits, 0, host, bytes);
 *
 * Everything a step needs is allocated when the device opens, sized from es_device_options; submit allocates nothing. */
#ifndef ES_DEVICE_DEVICE_H
#define ES_DEVICE_DEVICE_H

#include "device/op.h"
#include "evenshare/engine.h"

typedef struct es_device es_device;

/** Is told how long each operation of a step took, from when all workers had done the one before to when they had done it. Of
 *  several that were run as one, the one that does most of the work is told. */
typedef struct es_op_watch {
    void (*tell)(void *user, const es_op *op, double seconds); /**< on a thread of the device; NULL: nobody asks */
    void *user;
} es_op_watch;

/** Ceilings of everything a step may ask for, and who works. */
typedef struct es_device_options {
    int threads;           /**< workers; 0 = the affinity mask */
    int32_t rows;          /**< most rows in a step */
    int32_t spans;         /**< most spans in a step */
    int64_t context;       /**< most tokens of a sequence */
    int64_t columns;       /**< widest input of a product */
    es_attn_shape attn;    /**< of the attention layers; zeros when there are none */
    es_numeric numeric;
    es_kv_type kv_type;
    es_attention attention;
    const char *instruction_set; /**< highest to use: "avx512", "avx2", "reference"; NULL = the best, or $ES_INSTRUCTION_SET */
    bool copy_weights;     /**< the CPU copies imported weights into memory of its own, in huge pages where there are any */
    bool random_weights;   /**< a GPU fills imported weights with random numbers of its own instead of copying them */
    es_op_watch watch;     /**< the CPU's alone: a GPU's steps are graphs, whose operations it does not time */
} es_device_options;

typedef struct es_device_info {
    const char *name;            /**< "cpu" */
    const char *instruction_set; /**< what its kernels use */
    es_numeric numeric;
    int threads;
    size_t workspace;            /**< bytes allocated for steps */
    int32_t row_step;            /**< a step's rows are best a multiple of this: one row more costs as much as so many */
    uint64_t meetings;           /**< barriers that its workers have passed so far; of a GPU: kernels launched */
} es_device_info;

/** The functions a device fills in. */
typedef struct es_device_ops {
    void (*close)(es_device *device);
    es_status (*alloc)(es_device *device, size_t bytes, es_buffer **buffer);
    es_status (*import)(es_device *device, const void *host, size_t bytes, es_buffer **buffer);
    void (*release)(es_device *device, es_buffer *buffer);
    es_status (*write)(es_device *device, es_buffer *buffer, size_t offset, const void *host, size_t bytes);
    es_status (*read)(es_device *device, const es_buffer *buffer, size_t offset, void *host, size_t bytes);
    const void *(*peek)(es_device *device, const es_buffer *buffer, size_t offset, size_t bytes);
    es_status (*copy)(es_device *device, es_buffer *buffer, size_t from, size_t to, size_t bytes);
    es_status (*submit)(es_device *device, const es_program *program, const es_batch *batch);
    void (*populate)(es_device *device, es_buffer *buffer, size_t offset, size_t bytes); /**< NULL: memory is there from the start */
} es_device_ops;

struct es_device {
    const es_device_ops *ops;
    es_device_info info;
};

/** The kind that ES_DEVICE_AUTO means here; the others are themselves. */
es_device_kind es_device_resolve(es_device_kind kind);
/** Open a resolved kind. */
es_status es_device_open(es_device_kind kind, const es_device_options *options, es_device **device);
/** The fastest numeric mode for weights of a type on a resolved kind. */
es_numeric es_device_numeric(es_device_kind kind, es_dtype weights);
/** Bytes that weights, caches and workspaces may take together on a resolved kind. */
es_status es_device_memory(es_device_kind kind, size_t *bytes);

/** Whether weights of so many bytes are to be copied into memory of the device's own: what was asked for, or, on a CPU, whether it
 *  leaves at least as much memory again as they take. */
bool es_device_copies_weights(es_device_kind kind, es_weights asked, size_t bytes);

/** The fastest numeric mode that this machine's trusted kernels offer for weights of a type. */
es_numeric es_device_best_numeric(es_dtype weights);

/** The first NVIDIA GPU, through libevenshare_cuda.so (cuda/load.c). ES_UNSUPPORTED says what is missing. */
es_status es_device_open_cuda(const es_device_options *options, es_device **device);
/** The host's own cores. */
es_status es_device_open_cpu(const es_device_options *options, es_device **device);
void es_device_close(es_device *device);

/** Zeroed memory on the device, aligned to 64 bytes at least. Released with es_device_release(). */
es_status es_device_alloc(es_device *device, size_t bytes, es_buffer **buffer);
/** Make host memory usable by the device: in place where it can, copied where it must. The host memory must outlive it. */
es_status es_device_import(es_device *device, const void *host, size_t bytes, es_buffer **buffer);
void es_device_release(es_device *device, es_buffer *buffer);
es_status es_device_write(es_device *device, es_buffer *buffer, size_t offset, const void *host, size_t bytes);
es_status es_device_read(es_device *device, const es_buffer *buffer, size_t offset, void *host, size_t bytes);
/** The bytes of a buffer as the host can read them until the next submit: in place, or in a staging area of the device. */
const void *es_device_peek(es_device *device, const es_buffer *buffer, size_t offset, size_t bytes);
/** Copy bytes inside a buffer; the two ranges may not overlap. */
es_status es_device_copy(es_device *device, es_buffer *buffer, size_t from, size_t to, size_t bytes);
/** Have the machine give these bytes their memory now, and not when they are first written; their content stays. May be called on
 *  any thread, also while a program runs. A wish: where it fails, the first write waits for the memory. */
void es_device_populate(es_device *device, es_buffer *buffer, size_t offset, size_t bytes);
/** Run a program over a batch and wait for it. */
es_status es_device_submit(es_device *device, const es_program *program, const es_batch *batch);

/** The type of keys and values that `asked` means in a numeric mode; all but ES_KV_AUTO are themselves. */
es_kv_type es_kv_type_resolve(es_kv_type asked, es_numeric numeric);
/** What a resolved type of keys and values is made of. */
es_dtype es_kv_dtype(es_kv_type type);
/** Bytes of one page of one layer's keys (and as many of its values), of a resolved type. */
size_t es_kv_page_bytes(const es_attn_shape *shape, es_kv_type type);

#endif
