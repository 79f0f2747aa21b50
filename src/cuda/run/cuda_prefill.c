/* Reading prompts: the scratch memory of kernels/prefill.cu, and its launches: one for each step of
 * each layer, which may begin while the one before ends; or, for a short prompt, one of
 * kernels/short.cu for all. The scratch memory is the backend's: launches of all sessions come one
 * after the other, and what reads a launch's residual stream is submitted together with it. */
#include "cuda/run/cuda_prefill.h"

#include "cuda/measure/cuda_prefill_timer.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_share.h"
#include "plan/plan_layout.h"

/* Some words of short prompts have 8 bits of epoch: before they come round the words are cleared. A
 * launch has one for each layer and two besides. */
enum { SHORT_EPOCHS_MOST = 256, SHORT_EPOCHS_A_LAUNCH = PLAN_SHORT_EPOCHS };

bool cuda_prefills(const struct backend *b) {
    return b->plan.prefill_tokens > 0 && b->tuning.prefill_from > 0;
}

bool cuda_reads_shorts(const struct backend *b) {
    return cuda_prefills(b) && b->plan.short_tokens > 0 && b->tuning.short_positions > 0;
}

/* Exchange words of short prompts, behind the scratch memory of the others. */
static uint64_t short_bytes(const struct backend *b) {
    return b->memory.bytes[GPU_PROMPTS] - b->plan.scratch.bytes;
}
static cu_address short_words(const struct backend *b) {
    return b->scratch + b->plan.scratch.bytes;
}

enum reel_status cuda_prefill_open(struct backend *b, struct reel_error *err) {
    const size_t n = (size_t)b->memory.bytes[GPU_PROMPTS];
    const unsigned first = b->tuning.first_epoch;
    b->short_epoch = first < SHORT_EPOCHS_MOST ? first : SHORT_EPOCHS_MOST;
    if (n == 0) return REEL_OK;
    enum reel_status status = cuda_part_alloc(&b->gpu, &b->memory, GPU_PROMPTS, &b->scratch, err);
    return status == REEL_OK ? cuda_fill(&b->gpu, b->scratch, 0, n, NULL, err) : status;
}

bool cuda_reads_shorts_far(const struct backend *b) {
    return cuda_reads_shorts(b) && b->tuning.short_far;
}

/* What reads so many tokens. One launch does while they are few and have few positions before them,
 * which all SMs of a group go through; the more tokens, the fewer positions. Behind more positions
 * another does, whose SMs share them. */
enum way { BY_QUEUE, BY_SHORT, BY_SHORT_FAR };

static enum way way_of(const struct backend *b, int position, int n_tokens) {
    enum { LEAST = 16 };
    const long long tokens = n_tokens > LEAST ? n_tokens : LEAST;
    if (!cuda_reads_shorts(b) || n_tokens > b->plan.short_tokens) return BY_QUEUE;
    if (position * tokens <= (long long)b->tuning.short_positions * PLAN_SHORT_TOKENS)
        return BY_SHORT;
    return cuda_reads_shorts_far(b) ? BY_SHORT_FAR : BY_QUEUE;
}

bool cuda_prefill_is_short(const struct backend *b, int position, int n_tokens) {
    return way_of(b, position, n_tokens) != BY_QUEUE;
}

int cuda_prefill_chunk(const struct backend *b, int position, int left) {
    enum { POSITIONS_A_TOKEN = 256 };
    int n = left < b->plan.prefill_tokens ? left : b->plan.prefill_tokens;
    int least = b->tuning.prefill_from;
    const enum way way = way_of(b, position, n);
    /* where all SMs of a group go through all positions these cost decoding less: it is the better
     * for a token more every so many */
    const int few = b->tuning.short_from + (way == BY_SHORT_FAR ? 0 : position / POSITIONS_A_TOKEN);
    if (way != BY_QUEUE && few < least) least = few;
    if (!cuda_prefills(b) || left < least) return 0;
    if (b->tuning.launch_tokens && n > b->tuning.launch_tokens) n = b->tuning.launch_tokens;
    return n;
}

static void *scratch_at(const struct backend *b, uint64_t offset) {
    return cuda_pointer(b->scratch + offset);
}

void cuda_prefill_start(const struct backend_state *s, struct prefill_args *args) {
    const struct backend *b = s->backend;
    const struct plan_scratch *at = &b->plan.scratch;
    *args = (struct prefill_args){ .h = scratch_at(b, at->h),
                                   .ssq = scratch_at(b, at->ssq),
                                   .x = scratch_at(b, at->x),
                                   .qkv = scratch_at(b, at->qkv),
                                   .attention = scratch_at(b, at->attention),
                                   .gated = scratch_at(b, at->gated),
                                   .delta = { .q = scratch_at(b, at->delta.q),
                                              .k = scratch_at(b, at->delta.k),
                                              .v = scratch_at(b, at->delta.v),
                                              .gates = scratch_at(b, at->delta.gates),
                                              .decay = scratch_at(b, at->delta.decay),
                                              .kept = scratch_at(b, at->delta.kept),
                                              .w = scratch_at(b, at->delta.w),
                                              .u = scratch_at(b, at->delta.u),
                                              .asked = scratch_at(b, at->delta.asked),
                                              .learned = scratch_at(b, at->delta.learned),
                                              .states = scratch_at(b, at->delta.states) },
                                   .parts = { scratch_at(b, at->parts) } };
    cuda_args_start(s, &args->decode);
    args->decode.mailbox = cuda_pointer(cuda_mapped_address(s, s->mapped.prefill_mailbox));
    args->decode.profile = NULL; /* stamps of decoding have their own shape */
}

cu_address cuda_prefill_h(const struct backend *b, int token) {
    const size_t row = (size_t)b->model->config.hidden * sizeof(float);
    return b->scratch + (cu_address)(b->plan.scratch.h + (size_t)token * row);
}

/* ---- launches ------------------------------------------------------------------------------- */

struct cuda_kernel_shape cuda_prefill_kernel(const struct backend *b, int kernel) {
    const struct plan *p = &b->plan;
    const int few = PLAN_PREFILL_CONSUMERS, many = p->prefill_threads, ring = p->prefill_shared;
    const int no_ring = prefill_shared_bytes(0, p->prefill_k_places);
    const int chunk = p->prefill_chunk_shared, conv = PREFILL_CONV_BYTES(p->delta.taps);
    /* of these two share an SM where there is room: one computes while the other's copies come */
    const int pairs = 2 * chunk <= p->gpu.shared_bytes ? 2 * b->gpu.facts.n_sms : 0;
    const struct cuda_kernel_shape kernels[CUDA_PREFILL_KERNELS] = {
        [PREFILL_EMBED] = { "prefill_embed", few, no_ring, 0 },
        [PREFILL_THIN] = { "prefill_thin", many, ring, 0 },
        [PREFILL_HALVES] = { "prefill_halves", many, ring, 0 },
        [PREFILL_WIDE1] = { "prefill_wide1", many, ring, 0 },
        [PREFILL_WIDE2] = { "prefill_wide2", many, ring, 0 },
        [PREFILL_ROPE] = { "prefill_rope", few, no_ring, 0 },
        [PREFILL_ATTENTION] = { "prefill_attention", many, ring, 0 },
        [PREFILL_CONV] = { "prefill_conv", few, conv, 2 * b->gpu.facts.n_sms },
        [PREFILL_CHUNK] = { "prefill_chunk", few, chunk, pairs },
        [PREFILL_CHAIN] = { "prefill_chain", many, ring, 0 },
        [PREFILL_ANSWER] = { "prefill_answer", few, chunk, pairs },
        [PREFILL_JOIN] = { "prefill_join", few, no_ring, 0 },
        [PREFILL_END] = { "prefill_end", 32, 0, 1 },
    };
    struct cuda_kernel_shape k = kernels[kernel];
    if (p->n_gpus == 1 && kernel == PREFILL_JOIN) k.name = NULL;
    if (p->delta.n_layers == 0 && kernel >= PREFILL_CONV && kernel <= PREFILL_ANSWER) k.name = NULL;
    if (p->delta.n_layers == p->tape.n_layers &&
        (kernel == PREFILL_ROPE || kernel == PREFILL_ATTENTION))
        k.name = NULL;
    return k;
}

static int product_kernel(const struct prefill_cut *cut) {
    if (cut->split_k == 8) return PREFILL_THIN;
    if (cut->split_k) return PREFILL_HALVES;
    return cut->blocks == 1 ? PREFILL_WIDE1 : PREFILL_WIDE2;
}

/* One chunk's launches. */
struct queue {
    const struct backend *b;
    struct prefill_args *args;
    struct cuda_prefill_timer *timer; /* or NULL */
    bool overlap;                     /* of its launches, but for the first */
    bool packed;                      /* args are the first member of struct packed_args */
};

/* Packed texts have kernels of their own where it matters which text a token is of. */
static const struct cuda_function *function_of(const struct queue *q, int kernel) {
    const struct cuda_function *packed = q->b->packed.kernels;
    if (q->packed && kernel == PREFILL_ROPE) return &packed[PACKED_ROPE];
    if (q->packed && kernel == PREFILL_ATTENTION) return &packed[PACKED_ATTENTION];
    return &q->b->prefill[kernel];
}

/* Of a launch: the kernel's own number, or a block for each SM. */
static int blocks_of(const struct queue *q, int kernel, const struct cuda_kernel_shape *k) {
    const struct tape_shape *t = &q->b->plan.tape;
    const int row_tiles = t->group_sms * t->segment[TAPE_OUT].row_tiles;
    if (kernel == PREFILL_JOIN) return PREFILL_JOIN_BLOCKS(row_tiles, q->args->decode.n_tokens);
    return k->blocks ? k->blocks : q->b->gpu.facts.n_sms;
}

static enum reel_status launch_kernel(const struct queue *q, int kernel, int phase, int layer,
                                      struct reel_error *err) {
    const struct backend *b = q->b;
    const struct cuda_kernel_shape k = cuda_prefill_kernel(b, kernel);
    /* what comes before the first does not know of it, and these two come after a meeting */
    const bool alone = kernel == PREFILL_EMBED || kernel == PREFILL_JOIN ||
                       (kernel == PREFILL_END && b->gpu.n > 1);
    void *arguments[] = { q->args, &phase, &layer };
    struct cuda_shared_prefill shared = {
        .all = { .b = b }, .prefill = q->args, .phase = &phase, .layer = &layer
    };
    const struct cuda_launch launch = { .function = function_of(q, kernel),
                                        .blocks = blocks_of(q, kernel, &k),
                                        .threads = k.threads,
                                        .shared_bytes = k.shared_bytes,
                                        .overlaps = q->overlap && !alone,
                                        .arguments = arguments,
                                        .arguments_of = cuda_share_prefill,
                                        .user = &shared };
    enum reel_status status = q->timer ? cuda_timer_mark(q->timer, b, err) : REEL_OK;
    return status == REEL_OK ? cuda_launch(&b->gpu, &launch, err) : status;
}

static enum reel_status launch_product(const struct queue *q, int phase, int layer,
                                       struct reel_error *err) {
    return launch_kernel(q, product_kernel(&q->args->cut[phase]), phase, layer, err);
}

/* A product of which each GPU makes a part: out or down. */
static enum reel_status launch_sum(const struct queue *q, int phase, int layer,
                                   struct reel_error *err) {
    enum reel_status status = launch_product(q, phase, layer, err);
    if (q->b->gpu.n == 1) return status;
    if (status == REEL_OK) status = cuda_meet(&q->b->gpu, err);
    return status == REEL_OK ? launch_kernel(q, PREFILL_JOIN, phase, layer, err) : status;
}

/* Between a layer's first product and out. */
static enum reel_status launch_steps(const struct queue *q, const int *kernels, int n, int layer,
                                     struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = launch_kernel(q, kernels[i], 0, layer, err);
    return status;
}

static enum reel_status launch_mixer(const struct queue *q, int layer, struct reel_error *err) {
    static const int attention[] = { PREFILL_ROPE, PREFILL_ATTENTION };
    static const int delta[] = { PREFILL_CONV, PREFILL_CHUNK, PREFILL_CHAIN, PREFILL_ANSWER };
    const bool is_delta = tape_is_delta(&q->b->plan.tape, layer);
    enum reel_status status = launch_product(q, is_delta ? TAPE_MIX : TAPE_QKV, layer, err);
    if (status == REEL_OK)
        status = is_delta ? launch_steps(q, delta, 4, layer, err)
                          : launch_steps(q, attention, 2, layer, err);
    return status == REEL_OK ? launch_sum(q, TAPE_OUT, layer, err) : status;
}

static enum reel_status launch_layer(const struct queue *q, int layer, struct reel_error *err) {
    const struct backend *b = q->b;
    const uint64_t mixed =
        tape_is_delta(&b->plan.tape, layer) ? b->plan.scratch.mixed : b->plan.scratch.attention;
    /* columns beyond those of its kind hold 0: so each kind has its own */
    q->args->attention = scratch_at(b, mixed);
    enum reel_status status = launch_mixer(q, layer, err);
    if (status == REEL_OK) status = launch_product(q, TAPE_GATE_UP, layer, err);
    return status == REEL_OK ? launch_sum(q, TAPE_DOWN, layer, err) : status;
}

/* Columns that belong to no weight are multiplied with 0 and must be numbers. They hold 0 from the
 * start, but laid out for another number of tokens they are where values were, of whatever prompt.
 */
static enum reel_status clear_padding(struct backend *b, int room, struct reel_error *err) {
    const struct plan *p = &b->plan;
    const int before = b->scratch_room;
    struct plan_scratch size;
    plan_prefill_scratch(&size, p, room);
    const struct {
        uint64_t at, bytes;
    } parts[] = { { p->scratch.x, size.qkv - size.x },
                  { p->scratch.attention, size.mixed - size.attention },
                  { p->scratch.mixed, size.gated - size.mixed },
                  { p->scratch.gated, size.parts - size.gated } };
    b->scratch_room = room;
    if (before == 0 || before == room || !p->prefill_padded) return REEL_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes == 0) continue;
        enum reel_status status =
            cuda_fill(&b->gpu, b->scratch + parts[i].at, 0, (size_t)parts[i].bytes, NULL, err);
        if (status == REEL_OK) continue;
        b->scratch_room = -1; /* neither's */
        return status;
    }
    return REEL_OK;
}

static enum reel_status launch_vectors(const struct queue *q, struct reel_error *err) {
    const struct backend *b = q->b;
    const struct cuda_kernel_shape k = cuda_packed_kernel(b, PACKED_VECTORS);
    int phase = 0, layer = 0; /* of no meaning here */
    void *arguments[] = { q->args, &phase, &layer };
    const struct cuda_launch launch = { .function = &b->packed.kernels[PACKED_VECTORS],
                                        .blocks = b->gpu.facts.n_sms,
                                        .threads = k.threads,
                                        .shared_bytes = k.shared_bytes,
                                        .overlaps = q->overlap,
                                        .arguments = arguments };
    return cuda_launch(&b->gpu, &launch, err);
}

static enum reel_status launch_queue(struct backend *b, struct prefill_args *args, bool packed,
                                     struct cuda_prefill_timer *timer, struct reel_error *err) {
    const struct plan *p = &b->plan;
    const struct queue queue = { b, args, timer, p->copy == 2 && !timer, packed };
    args->room = p->prefill_tokens;
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        if (i == TAPE_HEAD || (i == TAPE_MIX && p->delta.n_layers == 0)) continue;
        args->cut[i] = plan_prefill_cut(p, i, args->decode.n_tokens);
        if (args->cut[i].split_k == 8) args->room = (args->decode.n_tokens + 7) / 8 * 8;
    }
    enum reel_status status = clear_padding(b, args->room, err);
    if (status == REEL_OK) status = launch_kernel(&queue, PREFILL_EMBED, 0, 0, err);
    for (int layer = 0; layer < p->tape.n_layers && status == REEL_OK; layer++)
        status = launch_layer(&queue, layer, err);
    if (status == REEL_OK && packed) status = launch_vectors(&queue, err);
    if (status == REEL_OK) status = cuda_meet(&b->gpu, err); /* the host hears when all are done */
    return status == REEL_OK ? launch_kernel(&queue, PREFILL_END, 0, 0, err) : status;
}

/* ---- short prompts --------------------------------------------------------------------------- */

/* Slots in flight: six exchanges a layer want the memory quieter than decoding's four. */
enum { SHORT_CAP = 1 };

/* The first epoch of a launch. */
static enum reel_status take_short_epochs(struct backend *b, uint32_t *epoch,
                                          struct reel_error *err) {
    const uint32_t n = (uint32_t)b->plan.tape.n_layers + SHORT_EPOCHS_A_LAUNCH;
    if (b->short_dirty || b->short_epoch + n > SHORT_EPOCHS_MOST) {
        const enum reel_status status =
            cuda_fill(&b->gpu, short_words(b), 0, (size_t)short_bytes(b), NULL, err);
        if (status != REEL_OK) return status;
        b->short_dirty = false;
        b->short_epoch = 1;
    }
    *epoch = b->short_epoch;
    b->short_epoch += n;
    return REEL_OK;
}

static enum reel_status launch_short(struct backend *b, struct prefill_args *args,
                                     struct cuda_prefill_timer *timer, struct reel_error *err) {
    const struct plan *p = &b->plan;
    const struct queue queue = { b, args, timer, false, false };
    void *arguments[] = { args };
    const bool far = way_of(b, args->decode.position, args->decode.n_tokens) == BY_SHORT_FAR;
    struct cuda_shared_prefill shared = { .all = { .b = b }, .prefill = args };
    const struct cuda_launch launch_all = { .function =
                                                far ? &b->prefill_short_far : &b->prefill_short,
                                            .blocks = plan_gpu_sms(p),
                                            .threads = p->threads,
                                            .shared_bytes = p->short_shared,
                                            .cooperative = true,
                                            .arguments = arguments,
                                            .arguments_of = cuda_share_short,
                                            .user = &shared };
    args->decode.words = cuda_pointer(short_words(b));
    args->decode.cap_layers = SHORT_CAP;
    enum reel_status status = take_short_epochs(b, &args->decode.epoch, err);
    if (status == REEL_OK && timer) status = cuda_timer_mark(timer, b, err);
    if (status == REEL_OK) status = cuda_launch(&b->gpu, &launch_all, err);
    if (status == REEL_OK) status = cuda_meet(&b->gpu, err); /* h is on all when all are done */
    return status == REEL_OK ? launch_kernel(&queue, PREFILL_END, 0, 0, err) : status;
}

enum reel_status cuda_prefill_launch(struct backend *b, struct prefill_args *args,
                                     struct cuda_prefill_timer *timer, struct reel_error *err) {
    cuda_timer_restart(timer);
    const enum reel_status status =
        cuda_prefill_is_short(b, args->decode.position, args->decode.n_tokens)
            ? launch_short(b, args, timer, err)
            : launch_queue(b, args, false, timer, err);
    return status == REEL_OK && timer ? cuda_timer_mark(timer, b, err) : status;
}

enum reel_status cuda_prefill_launch_packed(struct backend *b, struct packed_args *args,
                                            struct reel_error *err) {
    return launch_queue(b, &args->prefill, true, NULL, err);
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
