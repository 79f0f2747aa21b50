/* Reading prompts: the scratch memory of kernels/prefill.cu, and its launches. The scratch memory
 * is the backend's: launches of all sessions come one after the other, and what reads a launch's
 * residual stream is submitted together with it. */
#include "cuda/cuda_backend.h"

bool cuda_prefills(const struct backend *b) {
    return b->plan.prefill_tokens > 0 && b->tuning.prefill_from > 0;
}

uint64_t cuda_prefill_bytes(const struct backend *b) {
    return cuda_prefills(b) ? b->plan.scratch.bytes : 0;
}

enum reel_status cuda_prefill_open(struct backend *b, struct reel_error *err) {
    const size_t n = (size_t)cuda_prefill_bytes(b);
    if (n == 0) return REEL_OK;
    enum reel_status status =
        cuda_alloc(&b->gpu, &b->scratch, n, "scratch memory for prompts", err);
    return status == REEL_OK ? cuda_fill(&b->gpu, b->scratch, 0, n, NULL, err) : status;
}

int cuda_prefill_chunk(const struct backend *b, int left) {
    int n = left < b->plan.prefill_tokens ? left : b->plan.prefill_tokens;
    if (!cuda_prefills(b) || left < b->tuning.prefill_from) return 0;
    if (b->tuning.launch_tokens && n > b->tuning.launch_tokens) n = b->tuning.launch_tokens;
    return n;
}

static void *part(const struct backend *b, uint64_t offset) {
    return cuda_pointer(b->scratch + offset);
}

void cuda_prefill_start(const struct backend_state *s, struct prefill_args *args) {
    const struct backend *b = s->backend;
    const struct plan_scratch *at = &b->plan.scratch;
    *args = (struct prefill_args){ .layers = b->plan.tape.n_layers,
                                   .h = part(b, at->h),
                                   .ssq = part(b, at->ssq),
                                   .x = part(b, at->x),
                                   .qkv = part(b, at->qkv),
                                   .attention = part(b, at->attention),
                                   .gated = part(b, at->gated),
                                   .arrived = part(b, at->arrived) };
    cuda_args_start(s, &args->decode);
    args->decode.mailbox = cuda_pointer(cuda_mapped_address(s, s->mapped.prefill_mailbox));
    args->decode.profile = NULL; /* stamps of decoding have their own shape */
}

const float *cuda_prefill_h(const struct backend *b, int token) {
    return (const float *)part(b, b->plan.scratch.h) +
           (size_t)token * (size_t)b->model->config.hidden;
}

enum reel_status cuda_prefill_launch(struct backend *b, struct prefill_args *args,
                                     struct reel_error *err) {
    const struct plan *p = &b->plan;
    void *arguments[] = { args };
    const struct cuda_launch launch = { .function = &b->prefill,
                                        .blocks = p->gpu.n_sms,
                                        .threads = p->prefill_threads,
                                        .shared_bytes = p->prefill_shared,
                                        .cooperative = true,
                                        .arguments = arguments };
    for (int i = 0; i < PREFILL_PRODUCTS; i++)
        args->cut[i] = plan_prefill_cut(p, i, args->decode.n_tokens);
    enum reel_status status =
        cuda_fill(&b->gpu, b->scratch + p->scratch.arrived, 0, sizeof *args->arrived, NULL, err);
    return status == REEL_OK ? cuda_launch(&b->gpu, &launch, err) : status;
}

/* ---- how long it takes ----------------------------------------------------------------------- */

/* Launches of about as many tokens: by powers of two. */
static int size_class(int n_tokens) {
    int class = 0;
    while (class < CUDA_PREFILL_SIZES - 1 && n_tokens >> (class + 1))
        class ++;
    return class;
}

double cuda_prefill_ms(struct backend *b, int n_tokens) {
    pthread_mutex_lock(&b->mutex);
    const double ms = b->prefill_ms[size_class(n_tokens)];
    pthread_mutex_unlock(&b->mutex);
    return ms;
}

void cuda_prefill_took(struct backend *b, int n_tokens, double ms) {
    b->prefill_ms[size_class(n_tokens)] = ms;
}
