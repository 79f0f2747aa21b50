/* kernels/columns.cu, compiled for passes of 2, 4 and 8 columns: of several sessions (cuda_step.h),
 * or of one session and its drafts (cuda_drafts.h). Compiling takes seconds, so a thread makes them
 * while sessions decode without, the largest first: it does for fewer columns, too. */
#ifndef REEL_CUDA_CUDA_PROGRAMS_H
#define REEL_CUDA_CUDA_PROGRAMS_H

#include "cuda/driver/driver.h"
#include "kernels/args.h"
#include "plan/plan.h"

#include <pthread.h>
#include <stdatomic.h>

struct backend;

struct cuda_program {
    struct plan *plan; /* NULL: not there yet */
    struct cu_module *module;
    struct cuda_function function;
    cu_address words;
    double pass_ms; /* of the last launch; 0: there was none */
    bool failed;    /* it could not be made, and will not be tried again */
};

struct cuda_programs {
    bool follows;                              /* columns may follow others: they take drafts */
    bool leaves;                               /* and leave hidden states for the draft layer */
    struct cuda_program of[PLAN_COLUMN_SIZES]; /* of[i]: of plan_column_size(i) columns */
    struct decode_mailbox *mailbox;            /* of launches; NULL: not there yet */
    cu_address mailbox_address;
    atomic_int made;         /* bit i: of[i] is there */
    atomic_bool closing;     /* compiling is to end */
    atomic_bool over;        /* the thread has ended; so may read who was told: */
    char why[200];           /* why the last one that failed did */
    struct backend *backend; /* the thread's; NULL before there was one */
    bool begun, has_thread;
    pthread_t thread;
};

/* Size of the largest program that the model can have; -1: none. */
int cuda_programs_largest(const struct backend *b, bool follows);

/* Has them made, from the first call on. Only one thread at a time may call it. wait: and waits
 * until they are. */
void cuda_programs_make(struct backend *b, struct cuda_programs *programs, bool wait);
/* The smallest of those that are there with room for n columns, or NULL. */
struct cuda_program *cuda_programs_fitting(struct cuda_programs *programs, int n);
/* The smallest program that has room for n columns, made on this thread if need be, where no other
 * one makes them. Where that fails it fails from then on, at once: REEL_E_UNSUPPORTED. */
enum reel_status cuda_program_open(struct backend *b, struct cuda_programs *programs, int n,
                                   struct cuda_program **out, struct reel_error *err);
/* Gives all of it back, on the device only where that may be touched. */
void cuda_programs_close(struct backend *b, struct cuda_programs *programs);

/* Fills in what a launch of a program is told of each of its columns, which have their sessions'
 * arguments already, and of itself. */
void cuda_program_args(const struct cuda_programs *programs, const struct cuda_program *program,
                       struct columns_args *args);

#endif
