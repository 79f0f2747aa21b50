/* A kernel's fault report in words. */
#include "cuda/run/cuda_fault.h"

#include "cuda/run/cuda_launch.h"

#include <stdio.h>

static const struct {
    bool is_exchange; /* it is epochs that are compared */
    const char *text;
} waits[N_WAIT_KINDS] = {
#define WAIT_ROW(name, is_exchange, text) [name] = { is_exchange, text },
    WAIT_KINDS(WAIT_ROW)
#undef WAIT_ROW
};

const char *cuda_kernel_name(const struct cuda_run *run) {
    const struct decode_mailbox *m = run->prefill;
    if (run->n_columns) return "the decode kernel of several sessions";
    const bool reads = m && (run->n_launches == 1 || !__atomic_load_n(&m->end, __ATOMIC_ACQUIRE));
    return reads ? "the prefill kernel" : "the decode kernel";
}

static bool has_fault(const struct decode_mailbox *m) {
    return m && __atomic_load_n(&m->fault, __ATOMIC_ACQUIRE);
}

const struct decode_mailbox *cuda_faulted_mailbox(const struct cuda_run *run) {
    if (has_fault(run->prefill)) return run->prefill;
    for (int i = 0; i < run->n_columns; i++)
        if (has_fault(run->columns[i]->mapped.mailbox)) return run->columns[i]->mapped.mailbox;
    return has_fault(run->mailbox) ? run->mailbox : NULL;
}

enum reel_status cuda_describe_wait(const struct backend *b, const struct decode_mailbox *m,
                                    const char *kernel, struct reel_error *err) {
    const unsigned kind = m->fault_wait;
    char state[64] = "";
    if (kind < N_WAIT_KINDS && waits[kind].is_exchange)
        snprintf(state, sizeof state, "; epoch %u wanted, %u there", m->fault_want, m->fault_have);
    return err_set(
        err, REEL_E_DEVICE,
        "%s: %s gave up waiting for %s (token %u of the launch, layer %u, block %u, warp %u%s)",
        b->gpu.facts.name, kernel, kind < N_WAIT_KINDS ? waits[kind].text : "something unknown",
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
