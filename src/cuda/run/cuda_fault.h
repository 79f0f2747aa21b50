/* A kernel's fault report in words. */
#ifndef REEL_CUDA_CUDA_FAULT_H
#define REEL_CUDA_CUDA_FAULT_H

#include "base/error.h"

struct backend;
struct cuda_run;
struct decode_mailbox;

/* The mailbox of the launch's kernel in which a wait gave up and described it; NULL: none did. */
const struct decode_mailbox *cuda_faulted_mailbox(const struct cuda_run *run);
/* What a wait that gave up was waiting for, in words. */
enum reel_status cuda_describe_fault(const struct cuda_run *run, struct reel_error *err);
/* What a mailbox says of a wait that gave up; `kernel`: whose. */
enum reel_status cuda_describe_wait(const struct backend *b, const struct decode_mailbox *m,
                                    const char *kernel, struct reel_error *err);
/* "the prefill kernel": the one that is running, as far as its mailbox says. */
const char *cuda_kernel_name(const struct cuda_run *run);

#endif
