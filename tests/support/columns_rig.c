#include "support/columns_rig.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cuda/compile/kernel_build.h"
#include "cuda/measure/profile.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_recurrent.h"

#include <string.h>
#include <time.h>

static enum reel_status compile(struct columns_rig *r, const char *program, const char *cache_dir,
                                struct reel_error *err) {
    struct nvrtc nvrtc = { 0 };
    struct buffer constants = { 0 };
    struct kernel_image image = { 0 };
    struct backend *b = r->b;
    enum reel_status status =
        nvrtc_open(&nvrtc, folder_of_nvrtc(&b->tuning.folders), b->driver.version, err);
    if (status == REEL_OK) status = plan_constants(&r->plan, &constants, err);
    if (status == REEL_OK) status = buffer_printf(&constants, err, "T_PROFILE=%d\n", r->stamped);
    if (status == REEL_OK && r->b->tuning.lineinfo)
        status = buffer_text(&constants, "-lineinfo\n", err);
    if (status == REEL_OK) {
        const struct kernel_build build = { .nvrtc = &nvrtc,
                                            .sources = kernel_sources,
                                            .n_sources = n_kernel_sources,
                                            .program = program,
                                            .constants = constants.bytes,
                                            .compute = b->plan.compute,
                                            .gpu_compute = b->gpu.facts.compute,
                                            .driver_version = b->driver.version,
                                            .cache_dir = cache_dir };
        status = kernel_build(&image, &build, err);
    }
    if (status == REEL_OK) status = cuda_module_load(&b->gpu, &r->module, image.bytes, err);
    kernel_image_release(&image);
    buffer_release(&constants);
    nvrtc_close(&nvrtc);
    return status;
}

bool columns_rig_crowd(struct backend *b, int columns, bool follows, enum columns_crowd crowd) {
    enum { STEP = 256 };
    struct plan plan;
    int *bytes = &b->plan.gpu.shared_bytes;
    for (; *bytes > 0; *bytes -= STEP) {
        if (plan_columns(&plan, &b->plan, columns, follows, NULL) != REEL_OK) continue;
        const bool odd = plan.ring_slots % (plan.tape.head_unit / plan.slot_tiles);
        if (crowd == CROWD_OVERLAID ? plan.overlaid : odd) return true;
    }
    return false;
}

/* One column is decode.cu, which the backend has loaded, without stamps. */
static enum reel_status find_kernel(struct columns_rig *r, int columns, bool follows,
                                    const char *cache_dir, struct reel_error *err) {
    struct backend *b = r->b;
    const bool one = columns == 1;
    r->plan = b->plan, r->function = b->decode;
    if (one && !r->stamped) return REEL_OK;
    enum reel_status status =
        one ? REEL_OK : plan_columns(&r->plan, &b->plan, columns, follows, err);
    if (status == REEL_OK) status = compile(r, one ? "decode.cu" : "columns.cu", cache_dir, err);
    if (status == REEL_OK)
        status =
            cuda_function_find(&b->gpu, &r->function, r->module, one ? "decode" : "columns", err);
    return status == REEL_OK
               ? cuda_function_set_shared(&b->gpu, &r->function, r->plan.shared_bytes, err)
               : status;
}

static size_t stamps_of(const struct columns_rig *r, int n) {
    return (size_t)n * (size_t)r->plan.tape.n_sms * (size_t)profile_stamps(&r->plan);
}

enum reel_status columns_rig_open(struct columns_rig *r, struct backend *b, int columns,
                                  bool follows, const char *cache_dir, bool stamped,
                                  struct reel_error *err) {
    *r = (struct columns_rig){ .b = b, .stamped = stamped };
    const size_t vocab = (size_t)b->model->config.vocab;
    const size_t table = (size_t)PLAN_MOST_COLUMNS * vocab * sizeof(unsigned);
    void *host = NULL;
    enum reel_status status = find_kernel(r, columns, follows, cache_dir, err);
    if (status == REEL_OK)
        status =
            cuda_alloc(&b->gpu, &r->words, (size_t)r->plan.n_words * 8 + (size_t)r->plan.kept_bytes,
                       "exchange words", err);
    if (status == REEL_OK) status = cuda_alloc(&b->gpu, &r->table, table, "counts of ids", err);
    if (status == REEL_OK && stamped)
        status = cuda_alloc(&b->gpu, &r->stamps, stamps_of(r, COLUMNS_STAMPED) * sizeof(uint32_t),
                            "time stamps", err);
    if (status == REEL_OK)
        status = cuda_host_alloc(&b->gpu, &host, &r->mailbox_address, sizeof *r->mailbox,
                                 "a mailbox", err);
    r->mailbox = host;
    if (status != REEL_OK) columns_rig_close(r);
    return status;
}

void columns_rig_close(struct columns_rig *r) {
    const struct cuda_gpu *gpu = &r->b->gpu;
    cuda_free(gpu, r->words);
    cuda_free(gpu, r->table);
    cuda_free(gpu, r->stamps);
    cuda_host_free(gpu, r->mailbox);
    cuda_module_unload(gpu, r->module);
    *r = (struct columns_rig){ .b = r->b };
}

enum reel_status columns_rig_stamps(const struct columns_rig *r, int n, uint32_t **stamps,
                                    struct reel_error *err) {
    const size_t all = stamps_of(r, n);
    enum reel_status status = mem_zeroed(stamps, all, sizeof **stamps, "time stamps", err);
    if (status != REEL_OK) return status;
    return cuda_download(&r->b->gpu, *stamps, r->stamps, all * sizeof **stamps, NULL, err);
}

/* ---- a launch ---- */

/* A session's memory for its positions, and the recurrent state of the first of them. */
static enum reel_status ready_session(const struct columns_job *job, struct reel_error *err) {
    struct backend_state *s = job->state;
    enum reel_status status =
        cuda_pages_reach_all(s, job->position, job->position + job->n_tokens, err);
    if (status == REEL_OK) status = cuda_pages_queue_table(s, err);
    if (status == REEL_OK) status = cuda_recurrent_rewind(s, job->position, err);
    return status;
}

static void give_guesses(const struct columns_job *job, struct decode_mailbox *m) {
    for (int i = 0; job->guesses && i < job->n_tokens + job->most_drafts && i < MAILBOX_GUESSES;
         i++) {
        const unsigned position = (unsigned)(job->position + 1 + i);
        if (job->guesses[i] >= 0)
            m->guesses[position % MAILBOX_GUESSES] =
                (uint64_t)(position + 1) << 32 | (uint32_t)job->guesses[i];
    }
}

static enum reel_status give_job(struct columns_rig *r, const struct columns_job *job, int column,
                                 struct decode_args *a, struct reel_error *err) {
    struct backend_state *s = job->state;
    struct decode_mailbox *m = s->mapped.mailbox;
    const size_t vocab = (size_t)r->b->model->config.vocab;
    cuda_args_start(s, a);
    memset(m, 0, sizeof *m);
    m->stop = job->stop_after < 0;
    give_guesses(job, m);
    *s->mapped.ids = job->id;
    a->ids = cuda_pointer(cuda_mapped_address(s, s->mapped.ids));
    a->position = job->position;
    a->n_tokens = job->n_tokens;
    a->n_given = 1, a->pick = 1;
    a->hidden_from = a->n_tokens;
    a->lead = job->stop_after > 0 ? (unsigned)job->stop_after : MAILBOX_IDS - 1;
    a->logits = cuda_pointer(s->out);
    a->n_stop_ids = job->stop_id >= 0;
    a->stop_ids[0] = job->stop_id;
    enum reel_status status = cuda_recurrent_begin(s, &a->delta, err);
    if (status != REEL_OK || !job->sampling) return status;
    a->sampling = *job->sampling;
    if (!a->sampling.adjust) return REEL_OK;
    const cu_address seen = r->table + (cu_address)((size_t)column * vocab * sizeof(unsigned));
    a->sampling.seen = cuda_pointer(seen);
    return cuda_fill(&r->b->gpu, seen, 0, vocab * sizeof(unsigned), NULL, err);
}

/* The session's further columns. */
static void give_drafts(const struct columns_job *job, int first, struct columns_args *args) {
    bool any = true;
    for (int i = 1; i <= job->most_drafts; i++) {
        any = any && i < job->n_tokens && job->guesses && job->guesses[i - 1] >= 0;
        args->column[first + i] = args->column[first];
        args->draft[first + i] = any ? job->guesses[i - 1] : -1;
        args->follows |= 1U << (first + i);
    }
}

static void take_result(struct columns_job *job) {
    const struct decode_mailbox *m = job->state->mapped.mailbox;
    job->n_made = (int)m->n_made, job->n_evaluated = (int)m->n_evaluated,
    job->n_drafted = (int)m->n_drafted, job->end = (enum decode_end)m->end;
    for (int i = 0; i < job->n_made && i < job->n_tokens; i++) {
        job->ids[i] = (int32_t)((uint32_t)m->ids[i] & ~MAILBOX_DRAFTED);
        job->n_right += ((uint32_t)m->ids[i] & MAILBOX_DRAFTED) != 0;
    }
    for (int i = 0; i < MAILBOX_IDS; i++)
        job->n_told += m->ids[i] != 0;
    if (!job->end) return;
    job->state->n_positions = job->position + job->n_evaluated;
    cuda_recurrent_advance(job->state, job->state->n_positions);
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Every other question is answered late: passes come and go meanwhile. The simulator runs in this
 * process, so its own time tells of them, however busy the machine is; and how long a pass takes,
 * however slow it is, is what went by before a column's first question. */
static bool is_time(struct columns_job *job, uint64_t asked) {
    enum { MOST_LOOKS = 5000 };
    const double now = cpu_ms();
    if (job->asked == 0) job->late_ms = 2 * (now - job->asked_ms);
    if (job->asked != asked) job->asked = asked, job->asked_ms = now, job->n_looks = 0;
    return asked % 2 || now - job->asked_ms >= job->late_ms || ++job->n_looks >= MOST_LOOKS;
}

/* Gives a session the id that its column waits for. */
static void answer(const struct columns_rig *r, struct columns_job *job) {
    struct decode_mailbox *m = job->state->mapped.mailbox;
    const float *logits = job->state->mapped.logits;
    const int vocab = r->b->model->config.vocab;
    const uint64_t asked = __atomic_load_n(&m->asks, __ATOMIC_ACQUIRE);
    int best = 0;
    if (asked == 0 || m->given >> 32 == asked || !is_time(job, asked)) return;
    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    __atomic_store_n(&m->given, asked << 32 | (uint64_t)best, __ATOMIC_RELEASE);
}

/* Waits for the end in the mailbox, or for a launch that is over without one. */
static enum reel_status look_for_end(const struct columns_rig *r, struct columns_job *jobs, int n,
                                     struct reel_error *err) {
    const struct timespec nap = { 0, 1000000 };
    enum reel_status status = REEL_OK;
    bool done = false;
    while (status == REEL_OK && !done && !__atomic_load_n(&r->mailbox->end, __ATOMIC_ACQUIRE)) {
        nanosleep(&nap, NULL);
        for (int i = 0; i < n; i++)
            if (jobs[i].host_draws) answer(r, &jobs[i]);
        status = cuda_poll(&r->b->gpu, NULL, &done, "a pass of several columns", err);
    }
    return status;
}

static enum reel_status launch(struct columns_rig *r, struct columns_args *args,
                               struct columns_job *jobs, int n, struct reel_error *err) {
    const struct cuda_gpu *gpu = &r->b->gpu;
    void *arguments[] = { r->plan.columns == 1 ? (void *)&args->column[0] : args };
    const struct cuda_launch launch = { .function = &r->function,
                                        .blocks = r->plan.tape.n_sms,
                                        .threads = r->plan.threads,
                                        .shared_bytes = r->plan.shared_bytes,
                                        .cooperative = true,
                                        .arguments = arguments };
    enum reel_status status = cuda_fill(gpu, r->words, 0, (size_t)r->plan.n_words * 8, NULL, err);
    if (status == REEL_OK) status = cuda_wait(gpu, NULL, "what came before", err);
    const double start = clock_ms();
    for (int i = 0; i < n; i++)
        jobs[i].asked = 0, jobs[i].asked_ms = cpu_ms();
    if (status == REEL_OK) status = cuda_launch(gpu, &launch, err);
    if (status == REEL_OK && r->looks) status = look_for_end(r, jobs, n, err);
    const int n_seen = (int)r->mailbox->n_evaluated;
    if (status == REEL_OK) status = cuda_wait(gpu, NULL, "a pass of several columns", err);
    r->launch_ms = clock_ms() - start;
    r->n_passes = r->looks ? n_seen : (int)r->mailbox->n_evaluated;
    if (status == REEL_OK && r->plan.columns > 1 && !r->mailbox->end)
        status = err_set(err, REEL_E_DEVICE, "the launch of several columns gave up");
    return status;
}

enum reel_status columns_rig_run(struct columns_rig *r, struct columns_job *jobs, int n,
                                 int n_passes, bool ends_early, struct reel_error *err) {
    struct columns_args args = { .n_passes = n_passes, .ends_early = ends_early };
    struct decode_args *common = NULL;
    bool idle[PLAN_MOST_COLUMNS];
    enum reel_status status = REEL_OK;
    int c = 0;
    memset(r->mailbox, 0, sizeof *r->mailbox);
    args.mailbox = cuda_pointer(r->mailbox_address);
    for (int i = 0; i < PLAN_MOST_COLUMNS; i++)
        idle[i] = true;
    for (int i = 0; i < n && status == REEL_OK; c += 1 + jobs[i++].most_drafts) {
        if (!jobs[i].state) continue;
        status = ready_session(&jobs[i], err);
        if (status == REEL_OK) status = give_job(r, &jobs[i], c, &args.column[c], err);
        give_drafts(&jobs[i], c, &args);
        args.shown[c] =
            cuda_pointer(cuda_mapped_address(jobs[i].state, jobs[i].state->mapped.logits));
        if (jobs[i].host_draws) {
            args.asks |= 1U << c;
            args.column[c].sampling.adjust = 1;
            args.column[c].logits = args.shown[c];
        }
        for (int k = 0; k <= jobs[i].most_drafts; k++)
            idle[c + k] = false;
        if (!common) common = &args.column[c];
    }
    for (c = 0; c < r->plan.columns && common; c++) {
        struct decode_args *a = &args.column[c];
        if (idle[c]) *a = *common, a->n_tokens = 0;
        a->words = cuda_pointer(r->words +
                                (cu_address)c * 8 * (r->plan.n_words / (unsigned)r->plan.columns));
        a->abort = common->abort;
        a->profile = cuda_pointer(r->stamps);
        a->epoch = 1;
        a->cap_layers = r->plan.cap_layers, a->cap_head = r->plan.cap_head,
        a->cap_kv = r->plan.cap_kv;
    }
    if (status == REEL_OK) status = launch(r, &args, jobs, n, err);
    for (int i = 0; i < n && status == REEL_OK; i++)
        if (jobs[i].state) take_result(&jobs[i]);
    return status;
}
