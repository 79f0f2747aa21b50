/* A kernel's fault report in words. */
#include "cuda/run/cuda_fault.h"

#include "cuda/run/cuda_launch.h"

#include <stdio.h>

/* In the order of enum wait_kind (kernels/prelude.cuh). */
static const char *const wait_names[] = {
    "nothing",
    "a slot of the weight ring",
    "room in the weight ring",
    "a slot of the K/V ring",
    "room in the K/V ring",
    "the group's q, k and v",
    "the group's partial attention",
    "the sums of the output projection",
    "the group's gated values",
    "the sums of the down projection",
    "the other SMs' best logits",
    "the other SMs' sampling candidates",
    "a stage of activations",
    "the normed activations",
    "the norm's sums of squares",
    "the group's q, k and v of a DeltaNet",
    "the group's value columns of a DeltaNet",
};
enum {
    N_WAITS = (int)(sizeof wait_names / sizeof *wait_names),
    WAIT_QKV = 5,
    WAIT_PICK = 11,
    WAIT_X = 13,
    WAIT_SSQ = 14,
    WAIT_MIX,
    WAIT_DELTA
};

/* Whether it is epochs that are compared. */
static bool is_exchange(unsigned wait) {
    return (wait >= WAIT_QKV && wait <= WAIT_PICK) || (wait >= WAIT_X && wait <= WAIT_DELTA);
}

const char *cuda_kernel_name(const struct cuda_run *run) {
    const struct decode_mailbox *m = run->prefill;
    const bool reads = m && (run->n_launches == 1 || !__atomic_load_n(&m->end, __ATOMIC_ACQUIRE));
    return reads ? "the prefill kernel" : "the decode kernel";
}

static bool has_fault(const struct decode_mailbox *m) {
    return m && __atomic_load_n(&m->fault, __ATOMIC_ACQUIRE);
}

const struct decode_mailbox *cuda_faulted_mailbox(const struct cuda_run *run) {
    if (has_fault(run->prefill)) return run->prefill;
    return has_fault(run->mailbox) ? run->mailbox : NULL;
}

enum reel_status cuda_describe_wait(const struct backend *b, const struct decode_mailbox *m,
                                    const char *kernel, struct reel_error *err) {
    const unsigned kind = m->fault_wait;
    char state[64] = "";
    if (is_exchange(kind))
        snprintf(state, sizeof state, "; epoch %u wanted, %u there", m->fault_want, m->fault_have);
    return err_set(
        err, REEL_E_DEVICE,
        "%s: %s gave up waiting for %s (token %u of the launch, layer %u, block %u, warp %u%s)",
        b->gpu.facts.name, kernel, kind < N_WAITS ? wait_names[kind] : "something unknown",
        m->fault_token, m->fault_layer, m->fault_block, m->fault_warp, state);
}

enum reel_status cuda_describe_fault(const struct cuda_run *run, struct reel_error *err) {
    const struct decode_mailbox *m = cuda_faulted_mailbox(run);
    const struct backend *b = run->state->backend;
    const char *kernel = cuda_kernel_name(run);
    if (m) return cuda_describe_wait(b, m, kernel, err);
    return err_set(err, REEL_E_DEVICE, "%s: %s ended without saying why", b->gpu.facts.name,
                   kernel);
}
