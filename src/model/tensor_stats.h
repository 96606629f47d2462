/* tensor_stats.h: what there is to know about a tensor's numbers, in one pass over its bytes.
 *
 *   es_stats_input input = es_stats_of_tensor(tensor, &kernels);
 *   es_tensor_stats stats;
 *   es_tensor_stats_compute(team, &input, &(es_stats_options){.histogram = true}, &stats);
 *   ...
 *   es_tensor_stats_free(&stats);
 *
 * The same bits for any team. */
#ifndef ES_MODEL_TENSOR_STATS_H
#define ES_MODEL_TENSOR_STATS_H

#include "device/cpu/kernels.h"
#include "evenshare/operators.h"
#include "model/npy.h"
#include "model/tensor_file.h"

/** Numbers in rows, as they lie in memory. */
typedef struct es_stats_input {
    const unsigned char *data;
    int64_t rows, columns;
    size_t row_bytes;
    int block, block_bytes;   /**< of the storage type: 1 and the item's size for plain ones */
    es_dtype stored;          /**< how the items lie; ES_DTYPES: as no weight does (numpy's integers and doubles) */
    es_item_type type;        /**< of the items as they lie, or as they are after `decode` (F32) or `convert` (F64) */
    es_decode_fn decode;      /**< for stored types that have to be unpacked, and F16 for the histogram */
    bool unpack;              /**< moments, too, are taken from what `decode` gives */
    void (*convert)(const unsigned char *from, int64_t count, double *out); /**< for numpy's other integers */
} es_stats_input;

es_stats_input es_stats_of_tensor(const es_tensor *tensor, const es_kernels *kernels);
/** Rows are as they lie in memory: of an array in Fortran order, its columns. */
es_stats_input es_stats_of_npy(const es_npy *npy, const es_kernels *kernels);

/** The histogram counts finite and other numbers by the upper 12 bits of their float32: sign, exponent and three bits of the
 *  fraction. Its edges are powers of two and their eighths, so no range need be known beforehand. */
#define ES_STATS_BINS 4096
/** The bin at `place` in ascending order: −inf … −0, +0 … +inf. Its numbers have magnitudes from the nearer of low and high to
 *  below the farther; both are infinite for infinities. False for the bins of NaN. */
bool es_stats_bin(int place, int *bin, double *low, double *high);

/** A row that stands out: its root mean square or its largest magnitude, over the median of all rows. */
typedef struct es_outlier_row {
    int64_t row;
    double rms, largest, ratio;
} es_outlier_row;
#define ES_STATS_OUTLIERS 8
/** How many times the median makes an outlier. */
#define ES_STATS_OUTLIER_RMS 4.0
#define ES_STATS_OUTLIER_LARGEST 8.0

typedef struct es_tensor_stats {
    es_summary summary;
    int64_t rows, columns;
    uint64_t *histogram;                        /**< [ES_STATS_BINS], or NULL */
    double median_rms, median_largest;          /**< over rows, to within 1 %; 0 with fewer than 8 rows */
    int64_t outlier_rows;                       /**< how many there are */
    es_outlier_row outlier[ES_STATS_OUTLIERS];  /**< the worst of them, by ratio */
    int64_t zero_rows_at_end;                   /**< rows of zeros only after the last other row; 0 if there is no other */
} es_tensor_stats;

/** A GPU that computes. What it does not read (integers, doubles) the host does. Counts, extremes and histograms are the host's;
 *  moments agree with exact ones to 1e-12 (the host's own of BF16 to 1e-6); denormals that unpacking makes count as zero. */
typedef struct es_stats_gpu es_stats_gpu;
/** ES_UNSUPPORTED where there is none, with the reason. */
es_status es_stats_gpu_open(es_stats_gpu **gpu);
void es_stats_gpu_close(es_stats_gpu *gpu);

typedef struct es_stats_options {
    bool histogram;
    es_stats_gpu *gpu; /**< or NULL: `team` computes */
    int32_t blocks;    /**< of a GPU's grid; 0: as many as fill it; changes no bit */
} es_stats_options;

es_status es_tensor_stats_compute(es_team *team, const es_stats_input *input, const es_stats_options *options,
                                  es_tensor_stats *stats);
void es_tensor_stats_free(es_tensor_stats *stats);

#endif
