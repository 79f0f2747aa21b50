/* Passes of several sessions (docs/BATCHES.md): kernels/columns.cu, compiled for 2, 4 and 8
 * columns. */
#ifndef REEL_CUDA_CUDA_STEP_H
#define REEL_CUDA_CUDA_STEP_H

#include "cuda/driver/driver.h"
#include "kernels/args.h"

#include <stdatomic.h>

struct backend;
struct backend_batch;
struct plan;

enum { CUDA_STEP_SIZES = 3 }; /* 2, 4 and 8 columns */

/* A program is compiled, and takes its memory, when so many sessions decode for the first time. The
 * thread of the passes alone uses them. */
struct cuda_step_program {
    struct plan *plan; /* NULL: not there yet */
    struct cu_module *module;
    struct cuda_function function;
    cu_address words;
    double pass_ms; /* of the last launch; 0: there was none */
    bool failed;    /* it could not be made; sessions decode one after the other */
};

struct cuda_step_programs {
    bool follows;              /* columns may follow others: they take drafts (cuda_drafts.h) */
    const atomic_bool *cancel; /* as cuda_open_columns_kernel has it */
    struct cuda_step_program of[CUDA_STEP_SIZES];
    struct decode_mailbox *mailbox; /* of launches; NULL: not there yet */
    cu_address mailbox_address;
};

/* Columns of a pass, at most; 0: this model has none. */
int cuda_step_columns(const struct backend *b);
/* As backend_ops have it. */
void cuda_step(struct backend *b, const struct backend_batch *batch);
/* Gives all of it back, on the device only where that may be touched. */
void cuda_step_close(struct backend *b);

/* Columns of program `size`. */
static inline int cuda_program_columns(int size) { return 2 << size; }
/* The smallest program that has room for n columns, made if need be. Where that fails it fails from
 * then on, at once: REEL_E_UNSUPPORTED. */
enum reel_status cuda_program_open(struct backend *b, struct cuda_step_programs *programs, int n,
                                   struct cuda_step_program **out, struct reel_error *err);
void cuda_programs_close(struct backend *b, struct cuda_step_programs *programs);
/* Fills in what a launch of a program is told of each of its columns, which have their sessions'
 * arguments already, and of itself. */
void cuda_program_args(const struct cuda_step_programs *programs,
                       const struct cuda_step_program *program, struct columns_args *args);

#endif
