#include "cuda/run/cuda_programs.h"

#include "base/memory.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_kernels.h"
#include "cuda/run/cuda_memory.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int cuda_programs_largest(const struct backend *b, bool follows) {
    struct plan plan;
    for (int size = PLAN_COLUMN_SIZES - 1; size >= 0 && !b->tuning.profile; size--)
        if (plan_columns(&plan, &b->plan, plan_column_size(size), follows, NULL) == REEL_OK)
            return size;
    return -1;
}

/* ---- one of them ---- */

static void close_program(struct backend *b, struct cuda_program *p) {
    if (!cuda_untouchable(b)) {
        cuda_module_unload(&b->gpu, p->module);
        cuda_free(&b->gpu, p->words);
    }
    mem_free(p->plan);
    *p = (struct cuda_program){ .failed = p->failed };
}

static enum reel_status open_mailbox(struct backend *b, struct cuda_programs *programs,
                                     struct reel_error *err) {
    void *host = NULL;
    if (programs->mailbox) return REEL_OK;
    enum reel_status status = cuda_part_host_alloc(
        &b->gpu, &b->memory, programs->follows ? GPU_DRAFT_MAILBOX : GPU_STEP_MAILBOX, &host,
        &programs->mailbox_address, err);
    programs->mailbox = host;
    return status;
}

static enum reel_status make_program(struct backend *b, struct cuda_programs *programs,
                                     struct cuda_program *p, int columns, struct reel_error *err) {
    enum reel_status status = open_mailbox(b, programs, err);
    if (status == REEL_OK) status = mem_zeroed(&p->plan, 1, sizeof *p->plan, "a plan", err);
    if (status == REEL_OK)
        status = plan_columns(p->plan, &b->plan, columns, programs->follows, err);
    if (status == REEL_OK) p->plan->leaves = programs->leaves;
    if (status == REEL_OK)
        status =
            cuda_open_columns_kernel(b, p->plan, &programs->closing, &p->module, &p->function, err);
    if (status == REEL_OK)
        status =
            cuda_alloc(&b->gpu, &p->words, (size_t)gpu_column_bytes(p->plan),
                       gpu_part_text(programs->follows ? GPU_DRAFT_WORDS : GPU_STEP_WORDS), err);
    return status;
}

enum reel_status cuda_program_open(struct backend *b, struct cuda_programs *programs, int n,
                                   struct cuda_program **out, struct reel_error *err) {
    int size = 0;
    while (plan_column_size(size) < n)
        size++;
    struct cuda_program *p = *out = &programs->of[size];
    if (atomic_load(&programs->made) >> size & 1) return REEL_OK;
    struct reel_error why = { 0 };
    enum reel_status status = p->failed ? REEL_E_UNSUPPORTED : REEL_OK;
    if (status == REEL_OK) status = make_program(b, programs, p, plan_column_size(size), &why);
    if (status == REEL_OK) {
        atomic_fetch_or(&programs->made, 1 << size);
        return REEL_OK;
    }
    p->failed = true;
    close_program(b, p);
    return err_set(err, REEL_E_UNSUPPORTED, "a pass of %d columns: %.200s", n,
                   why.text[0] ? why.text : "it has failed before");
}

/* ---- all of them ---- */

/* For a draft or two 4 columns do as well as 2. */
static void *make_programs(void *user) {
    struct cuda_programs *programs = user;
    struct backend *b = programs->backend;
    for (int size = cuda_programs_largest(b, programs->follows); size >= 0; size--) {
        struct cuda_program *p = NULL;
        struct reel_error err = { 0 };
        if (atomic_load(&programs->closing)) break;
        if (size == 0 && programs->follows && atomic_load(&programs->made)) break;
        if (cuda_program_open(b, programs, plan_column_size(size), &p, &err) != REEL_OK)
            (void)snprintf(programs->why, sizeof programs->why, "%.*s",
                           (int)sizeof programs->why - 1, err.text);
    }
    atomic_store(&programs->over, true);
    return NULL;
}

/* Signals are for the program's own threads. */
static bool start_thread(struct cuda_programs *programs) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&programs->thread, NULL, make_programs, programs) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Also with a kernel that hangs: the thread uses the backend. A forked child has no such thread. */
static void join(struct cuda_programs *programs) {
    if (programs->has_thread && programs->backend->process == getpid())
        pthread_join(programs->thread, NULL);
    programs->has_thread = false;
}

void cuda_programs_make(struct backend *b, struct cuda_programs *programs, bool wait) {
    if (!programs->begun) {
        programs->begun = true; /* once: what fails will fail again */
        programs->backend = b;
        programs->has_thread = start_thread(programs);
        if (!programs->has_thread) make_programs(programs);
    }
    if (wait) join(programs);
}

struct cuda_program *cuda_programs_fitting(struct cuda_programs *programs, int n) {
    const int made = atomic_load(&programs->made);
    for (int size = 0; size < PLAN_COLUMN_SIZES; size++)
        if (made >> size & 1 && plan_column_size(size) >= n) return &programs->of[size];
    return NULL;
}

void cuda_programs_close(struct backend *b, struct cuda_programs *programs) {
    atomic_store(&programs->closing, true);
    join(programs);
    for (int i = 0; i < PLAN_COLUMN_SIZES; i++)
        close_program(b, &programs->of[i]);
    if (!cuda_untouchable(b)) cuda_host_free(&b->gpu, programs->mailbox);
    programs->mailbox = NULL;
}

/* ---- a launch ---- */

void cuda_program_args(const struct cuda_programs *programs, const struct cuda_program *program,
                       struct columns_args *args) {
    const struct plan *plan = program->plan;
    const cu_address stride = (cu_address)(plan->n_words / (unsigned)plan->columns) * 8;
    args->ends_early = 1;
    args->mailbox = cuda_pointer(programs->mailbox_address);
    for (int i = 0; i < plan->columns; i++) {
        struct decode_args *a = &args->column[i];
        a->words = cuda_pointer(program->words + (cu_address)i * stride);
        a->abort = args->column[0].abort;
        a->epoch = 1;
        a->cap_layers = plan->cap_layers, a->cap_head = plan->cap_head, a->cap_kv = plan->cap_kv;
        a->hidden_from = 0;
        a->profile = NULL;
    }
}
