/* probe.h: runs kernels where they can do no harm: in a child process with a deadline. */
#ifndef ES_CLI_PROBE_H
#define ES_CLI_PROBE_H

#include "device/verdict.h"

typedef struct es_probe_options {
    double deadline;  /**< seconds for one kernel */
    bool timed;       /**< also how fast it is */
    const char *only; /**< NULL, or what must be in the kernel's name ("avx2/dot") */
} es_probe_options;

/** Probe every kernel of every instruction set, and put what comes out into `verdicts`. A child that crashes or does not come
 *  back costs its kernel the trust, and the next child goes on after it. One that cannot even be killed marks the device, and
 *  nothing more is launched. */
es_status es_probe_kernels(es_verdicts *verdicts, const es_probe_options *options);

/** The same for a GPU's operations, in verdicts of es_verdicts_open_gpu(): rows "cuda-bf16/matmul/Q4_K". Compared with the CPU's
 *  kernels within a tolerance, and with themselves in other company bit by bit. */
es_status es_probe_gpu(es_verdicts *verdicts, const es_probe_options *options);

/** True when every kernel that this machine could run has a verdict. */
bool es_probe_is_complete(const es_verdicts *verdicts);

/** The child's side: "avx2:3,4,17" or "cuda:0,1", and "timed" or not. Returns the exit code. */
int es_probe_child(const char *what, bool timed);

#endif
