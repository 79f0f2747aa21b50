#include "cuda/run/cuda_share.h"

#include "plan/plan_layout.h"

_Static_assert((int)ARGS_MOST_GPUS == (int)CUDA_MOST_GPUS, "kernels know as many as share a model");

cu_address cuda_share_tape(const struct backend *b, int g) {
    const uint64_t before = (uint64_t)g * (uint64_t)plan_gpu_sms(&b->plan) * b->plan.tape.sm_bytes;
    return cuda_on(&b->gpu, b->tape, g) - before;
}

static void *on(const struct backend *b, const void *pointer, int g) {
    return cuda_pointer(cuda_on(&b->gpu, (cu_address)(uintptr_t)pointer, g));
}

/* Logits, hidden states and time stamps stay the first GPU's: all write theirs there. */
static void make_own(const struct backend *b, struct decode_args *a, int g) {
    a->tape = cuda_pointer(cuda_share_tape(b, g));
    a->embedding = on(b, a->embedding, g);
    a->norms = on(b, a->norms, g);
    a->qkv_vectors = on(b, a->qkv_vectors, g);
    a->rope = on(b, a->rope, g);
    a->words = on(b, a->words, g);
    a->kv_pages = on(b, a->kv_pages, g);
    a->delta.gates = on(b, a->delta.gates, g);
    a->delta.constants = on(b, a->delta.constants, g);
    a->delta.state = on(b, a->delta.state, g);
    a->delta.window = on(b, a->delta.window, g);
    a->ids = on(b, a->ids, g);
    a->embeddings = on(b, a->embeddings, g);
    a->start = on(b, a->start, g);
    a->abort = on(b, a->abort, g);
    a->sampling.bias = on(b, a->sampling.bias, g);
    a->sampling.seen = on(b, a->sampling.seen, g);
}

static void tell_of_all(struct cuda_shared_args *s, int gpu, const struct decode_args *first) {
    const struct backend *b = s->b;
    const cu_address words = (cu_address)(uintptr_t)on(b, first->words, gpu);
    int n = 0;
    s->gpus = (struct gpu_args){ .gpu = gpu };
    for (int g = 0; g < b->gpu.n; g++) {
        const cu_address there = (cu_address)(uintptr_t)on(b, first->words, g);
        if (g != gpu) s->gpus.peers[n++] = (long long)(there - words);
        s->gpus.tape[g] = cuda_pointer(cuda_share_tape(b, g));
        s->gpus.abort[g] = on(b, first->abort, g);
    }
}

static void make_own_delta(const struct backend *b, struct prefill_delta *d, int g) {
    d->q = on(b, d->q, g);
    d->k = on(b, d->k, g);
    d->v = on(b, d->v, g);
    d->gates = on(b, d->gates, g);
    d->decay = on(b, d->decay, g);
    d->kept = on(b, d->kept, g);
    d->w = on(b, d->w, g);
    d->u = on(b, d->u, g);
    d->asked = on(b, d->asked, g);
    d->learned = on(b, d->learned, g);
    d->states = on(b, d->states, g);
    d->keep_state = on(b, d->keep_state, g);
    d->keep_window = on(b, d->keep_window, g);
}

/* A GPU counts its own groups alone, and its SMs' tapes from its own first one. */
void **cuda_share_prefill(void *user, int g) {
    struct cuda_shared_prefill *s = user;
    const struct backend *b = s->all.b;
    struct prefill_args *own = &s->own;
    tell_of_all(&s->all, g, &s->prefill->decode);
    *own = *s->prefill;
    make_own(b, &own->decode, g);
    own->decode.tape = cuda_pointer(cuda_on(&b->gpu, b->tape, g));
    own->h = on(b, own->h, g);
    own->ssq = on(b, own->ssq, g);
    own->x = on(b, own->x, g);
    own->qkv = on(b, own->qkv, g);
    own->attention = on(b, own->attention, g);
    own->gated = on(b, own->gated, g);
    make_own_delta(b, &own->delta, g);
    own->gpus = s->all.gpus;
    for (int i = 0; i < b->gpu.n; i++)
        own->parts[i] = on(b, s->prefill->parts[0], i);
    s->arguments[0] = own, s->arguments[1] = s->phase, s->arguments[2] = s->layer;
    return s->arguments;
}

void **cuda_share_short(void *user, int g) {
    struct cuda_shared_prefill *s = user;
    (void)cuda_share_prefill(user, g);
    s->own.decode.tape = cuda_pointer(cuda_share_tape(s->all.b, g));
    s->arguments[1] = &s->all.gpus;
    return s->arguments;
}

void **cuda_share_args(void *user, int g) {
    struct cuda_shared_args *s = user;
    tell_of_all(s, g, s->decode ? s->decode : &s->columns->column[0]);
    if (s->decode) {
        s->own_decode = *s->decode;
        make_own(s->b, &s->own_decode, g);
        s->own[0] = &s->own_decode;
    } else {
        s->own_columns = *s->columns;
        for (int i = 0; i < ARGS_MAX_COLUMNS; i++)
            make_own(s->b, &s->own_columns.column[i], g);
        s->own[0] = &s->own_columns;
    }
    s->own[1] = &s->gpus;
    return s->own;
}
