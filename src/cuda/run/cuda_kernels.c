/* The kernels of a model: compiled side by side or taken from the cache, loaded, and proven to be
 * resident on the whole GPU at once. */
#include "cuda/run/cuda_kernels.h"

#include "base/clock.h"
#include "cuda/compile/kernel_build.h"
#include "cuda/run/cuda_backend.h"
#include "plan/plan_layout.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { N_PARTS = 7, PROGRESS_MS = 50 };

/* One program on its way. */
struct part {
    struct cu_module **module;
    struct kernel_build build;
    struct kernel_image image;
    enum reel_status status;
    struct reel_error err;
    struct reel_error said; /* the last line of its log; text "": none */
    enum reel_log_level level;
    struct parts *parts;
    pthread_t thread;
    bool has_thread;
};

struct parts {
    struct part part[N_PARTS];
    int n;
    atomic_bool cancel;
    atomic_int n_over;
};

/* ---- a thread for each program --------------------------------------------------------------- */

/* What the compiler's own reports are answered with: the caller hears from its own thread. */
static bool is_wanted(void *user, const char *stage, uint64_t done, uint64_t total) {
    const struct parts *parts = user;
    (void)stage, (void)done, (void)total;
    return !atomic_load(&parts->cancel);
}

static void keep_line(void *user, enum reel_log_level level, const char *text) {
    struct part *part = user;
    part->level = level;
    err_set(&part->said, REEL_OK, "%s", text);
}

static void *build_part(void *user) {
    struct part *part = user;
    part->status = kernel_build(&part->image, &part->build, &part->err);
    if (part->status != REEL_OK)
        atomic_store(&part->parts->cancel, true); /* the others are in vain */
    atomic_fetch_add(&part->parts->n_over, 1);
    return NULL;
}

/* The caller's signal handlers are not for these threads. */
static bool start_thread(struct part *part) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    part->has_thread = pthread_create(&part->thread, NULL, build_part, part) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return part->has_thread;
}

/* Until all have ended. What comes from the cache is there in a moment, of which nothing is said.
 */
static void wait_for_all(struct parts *parts, const struct backend_options *options) {
    const struct timespec pause = { 0, 1000000 };
    for (int ms = 1; options->progress && atomic_load(&parts->n_over) < parts->n; ms++) {
        nanosleep(&pause, NULL);
        if (ms % PROGRESS_MS == 0 && !atomic_load(&parts->cancel) &&
            !options->progress(options->progress_user, "compiling kernels", 0, 0))
            atomic_store(&parts->cancel, true);
    }
    for (int i = 0; i < parts->n; i++)
        if (parts->part[i].has_thread) pthread_join(parts->part[i].thread, NULL);
}

/* Why it failed: parts that were only cancelled because of another say nothing. */
static const struct part *first_failure(const struct parts *parts) {
    const struct part *first = NULL;
    for (int i = 0; i < parts->n; i++) {
        const struct part *part = &parts->part[i];
        const bool failed = part->status != REEL_OK;
        if (failed && (!first || first->status == REEL_E_CANCELLED)) first = part;
    }
    return first;
}

static enum reel_status load_modules(struct backend *b, struct parts *parts,
                                     const struct backend_options *options,
                                     struct reel_error *err) {
    const struct part *failed = first_failure(parts);
    enum reel_status status = REEL_OK;
    if (failed) status = err_set(err, failed->status, "%s", failed->err.text);
    for (int i = 0; i < parts->n; i++) {
        struct part *part = &parts->part[i];
        if (part->said.text[0] && options->log)
            options->log(options->log_user, part->level, part->said.text);
        if (status == REEL_OK)
            status = cuda_module_load(&b->gpu, part->module, part->image.bytes, err);
        kernel_image_release(&part->image);
    }
    return status;
}

static void tell_time(const struct backend *b, const struct backend_options *options) {
    struct reel_error text;
    if (!options->log) return;
    if (b->times.compile > 0)
        err_set(&text, REEL_OK, "%s: kernels compiled in %.1f s", b->gpu.facts.name,
                b->times.compile / 1e3);
    else
        err_set(&text, REEL_OK, "%s: kernels from the cache", b->gpu.facts.name);
    options->log(options->log_user, REEL_LOG_INFO, text.text);
}

static enum reel_status build_programs(struct backend *b, struct parts *parts,
                                       const struct backend_options *options,
                                       struct reel_error *err) {
    const double start = clock_ms();
    bool compiled = false;
    for (int i = 0; i < parts->n; i++) {
        parts->part[i].parts = parts;
        if (i == parts->n - 1 && !options->progress) break; /* this thread has nothing else to do */
        start_thread(&parts->part[i]);
    }
    for (int i = 0; i < parts->n; i++)
        if (!parts->part[i].has_thread) build_part(&parts->part[i]);
    wait_for_all(parts, options);
    for (int i = 0; i < parts->n; i++)
        compiled = compiled || parts->part[i].image.compile_s > 0;
    if (compiled) b->times.compile = clock_ms() - start;
    tell_time(b, options);
    return load_modules(b, parts, options, err);
}

/* ---- the programs ---------------------------------------------------------------------------- */

static void add_program(struct parts *parts, const struct backend *b, const struct nvrtc *nvrtc,
                        const char *program, const char *constants, struct cu_module **module,
                        const struct backend_options *options) {
    struct part *part = &parts->part[parts->n++];
    *part = (struct part){ .module = module,
                           .build = { .nvrtc = nvrtc,
                                      .sources = kernel_sources,
                                      .n_sources = n_kernel_sources,
                                      .program = program,
                                      .constants = constants,
                                      .compute = b->plan.compute,
                                      .gpu_compute = b->gpu.facts.compute,
                                      .driver_version = b->driver.version,
                                      .cache_dir = options->cache_dir,
                                      .progress = options->progress ? is_wanted : NULL,
                                      .progress_user = parts,
                                      .log = keep_line,
                                      .log_user = part } };
}

static enum reel_status make_constants(const struct backend *b, const struct plan *plan,
                                       struct buffer *text, struct reel_error *err) {
    enum reel_status status = plan_constants(plan, text, err);
    if (status == REEL_OK)
        status = buffer_printf(text, err, "T_PROFILE=%d\n", b->tuning.profile ? 1 : 0);
    if (status == REEL_OK && b->tuning.lineinfo) status = buffer_text(text, "-lineinfo\n", err);
    if (status == REEL_OK && b->tuning.absent >= 0)
        status = buffer_printf(text, err, "T_ABSENT=%d\n", b->tuning.absent);
    return status;
}

/* The audio tower's program runs on the first GPU alone. */
static enum reel_status make_tower_constants(const struct backend *b, struct buffer *text,
                                             struct reel_error *err) {
    struct plan alone = b->plan;
    alone.n_gpus = 1;
    return make_constants(b, &alone, text, err);
}

static enum reel_status check_resident(const struct backend *b,
                                       const struct cuda_function *function, int blocks,
                                       int threads, int shared_bytes, struct reel_error *err) {
    int n = 0;
    enum reel_status status = cuda_function_set_shared(&b->gpu, function, shared_bytes, err);
    if (status == REEL_OK)
        status = cuda_occupancy(&b->gpu, function, threads, shared_bytes, &n, err);
    if (status != REEL_OK) return status;
    if (n < 1 || (long long)n * b->gpu.facts.n_sms < blocks)
        return err_set(err, REEL_E_DEVICE,
                       "%s: %d blocks of %d threads, %d registers and %d bytes of shared memory "
                       "cannot be resident at once on %d SMs",
                       b->gpu.facts.name, blocks, threads, function->registers, shared_bytes,
                       b->gpu.facts.n_sms);
    return REEL_OK;
}

static enum reel_status find_encoder(struct backend *b, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < CUDA_ENCODER_KERNELS && b->encoder.module && status == REEL_OK; i++) {
        const struct cuda_kernel_shape k = cuda_encoder_kernel(b, i);
        struct cuda_function *function = &b->encoder.kernels[i];
        status = cuda_function_find(&b->gpu, function, b->encoder.module, k.name, err);
        if (status == REEL_OK)
            status = check_resident(b, function, 1, k.threads, k.shared_bytes, err);
    }
    return status;
}

static enum reel_status find_short(const struct backend *b, struct cu_module *module,
                                   struct cuda_function *function, struct reel_error *err) {
    const struct plan *p = &b->plan;
    if (!module) return REEL_OK;
    enum reel_status status = cuda_function_find(&b->gpu, function, module, "prefill_short", err);
    return status == REEL_OK
               ? check_resident(b, function, plan_gpu_sms(p), p->threads, p->short_shared, err)
               : status;
}

static enum reel_status find_functions(struct backend *b, struct reel_error *err) {
    const struct plan *p = &b->plan;
    enum reel_status status = cuda_function_find(&b->gpu, &b->decode, b->module, "decode", err);
    if (status == REEL_OK)
        status = check_resident(b, &b->decode, plan_gpu_sms(p), p->threads, p->shared_bytes, err);
    if (status != REEL_OK || !b->prefill_module) return status;
    for (int i = 0; i < CUDA_PREFILL_KERNELS && status == REEL_OK; i++) {
        const struct cuda_kernel_shape k = cuda_prefill_kernel(b, i);
        if (!k.name) continue;
        struct cu_module *module =
            i >= PREFILL_CONV && i <= PREFILL_ANSWER ? b->prefill_delta_module : b->prefill_module;
        status = cuda_function_find(&b->gpu, &b->prefill[i], module, k.name, err);
        if (status == REEL_OK)
            status = check_resident(b, &b->prefill[i], 1, k.threads, k.shared_bytes, err);
    }
    if (status == REEL_OK) status = find_short(b, b->short_module, &b->prefill_short, err);
    if (status == REEL_OK) status = find_short(b, b->short_far_module, &b->prefill_short_far, err);
    return status;
}

enum reel_status cuda_open_kernels(struct backend *b, const struct backend_options *options,
                                   struct cu_module **wind_module, struct reel_error *err) {
    struct nvrtc nvrtc = { 0 };
    struct buffer constants = { 0 }, tower = { 0 };
    struct parts parts = { .n = 0 };
    char wind_constants[64];
    enum reel_status status =
        nvrtc_open(&nvrtc, folder_of_nvrtc(&b->tuning.folders), b->driver.version, err);
    if (status == REEL_OK) status = make_constants(b, &b->plan, &constants, err);
    if (status == REEL_OK) status = make_tower_constants(b, &tower, err);
    if (status == REEL_OK) {
        add_program(&parts, b, &nvrtc, "decode.cu", constants.bytes, &b->module, options);
        if (cuda_prefills(b))
            add_program(&parts, b, &nvrtc, "prefill.cu", constants.bytes, &b->prefill_module,
                        options);
        if (cuda_prefills(b) && b->plan.delta.n_layers)
            add_program(&parts, b, &nvrtc, "prefill_delta.cu", constants.bytes,
                        &b->prefill_delta_module, options);
        if (cuda_reads_shorts(b))
            add_program(&parts, b, &nvrtc, "short.cu", constants.bytes, &b->short_module, options);
        if (cuda_reads_shorts_far(b))
            add_program(&parts, b, &nvrtc, "short_far.cu", constants.bytes, &b->short_far_module,
                        options);
        if (cuda_encodes(b))
            add_program(&parts, b, &nvrtc, "encoder.cu", tower.bytes, &b->encoder.module, options);
        /* the same for all models: of the GPU's own features it needs none */
        snprintf(wind_constants, sizeof wind_constants, "G_COPY=0\nG_COMPUTE=%d\n",
                 b->plan.compute);
        add_program(&parts, b, &nvrtc, "wind.cu", wind_constants, wind_module, options);
        status = build_programs(b, &parts, options, err);
    }
    if (status == REEL_OK) status = find_functions(b, err);
    if (status == REEL_OK) status = find_encoder(b, err);
    buffer_release(&constants);
    buffer_release(&tower);
    nvrtc_close(&nvrtc);
    return status;
}

/* Unloads what it loaded where a function of it is missing or cannot be resident. */
static enum reel_status find_packed(struct backend *b, struct cu_module *module,
                                    struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < CUDA_PACKED_KERNELS && status == REEL_OK; i++) {
        const struct cuda_kernel_shape k = cuda_packed_kernel(b, i);
        struct cuda_function *function = &b->packed.kernels[i];
        status = cuda_function_find(&b->gpu, function, module, k.name, err);
        if (status == REEL_OK)
            status = check_resident(b, function, 1, k.threads, k.shared_bytes, err);
    }
    if (status == REEL_OK)
        b->packed.module = module;
    else
        cuda_module_unload(&b->gpu, module);
    return status;
}

static bool is_not_cancelled(void *user, const char *stage, uint64_t done, uint64_t total) {
    const atomic_bool *cancel = user;
    (void)stage, (void)done, (void)total;
    return !atomic_load(cancel);
}

/* Compiles and loads one program after the model was opened. */
static enum reel_status build_late(struct backend *b, const char *program,
                                   const struct buffer *constants, const atomic_bool *cancel,
                                   struct cu_module **module, struct reel_error *err) {
    const struct backend_options options = { .cache_dir = b->later.cache_dir };
    struct nvrtc nvrtc = { 0 };
    struct parts parts = { .n = 0 };
    enum reel_status status = nvrtc_open(&nvrtc, b->later.nvrtc_dir, b->driver.version, err);
    if (status == REEL_OK) {
        add_program(&parts, b, &nvrtc, program, constants->bytes, module, &options);
        parts.part[0].parts = &parts;
        if (cancel) {
            parts.part[0].build.progress = is_not_cancelled;
            parts.part[0].build.progress_user = (void *)(uintptr_t)cancel;
        }
        build_part(&parts.part[0]);
        status = load_modules(b, &parts, &options, err);
    }
    nvrtc_close(&nvrtc);
    return status;
}

enum reel_status cuda_open_columns_kernel(struct backend *b, const struct plan *plan,
                                          const atomic_bool *cancel, struct cu_module **module,
                                          struct cuda_function *function, struct reel_error *err) {
    struct buffer constants = { 0 };
    enum reel_status status = make_constants(b, plan, &constants, err);
    if (status == REEL_OK) status = build_late(b, "columns.cu", &constants, cancel, module, err);
    if (status == REEL_OK) status = cuda_function_find(&b->gpu, function, *module, "columns", err);
    if (status == REEL_OK)
        status =
            check_resident(b, function, plan_gpu_sms(plan), plan->threads, plan->shared_bytes, err);
    buffer_release(&constants);
    return status;
}

enum reel_status cuda_open_packed_kernels(struct backend *b, struct reel_error *err) {
    struct buffer constants = { 0 };
    struct cu_module *module = NULL;
    enum reel_status status = make_constants(b, &b->plan, &constants, err);
    if (status == REEL_OK) status = build_late(b, "packed.cu", &constants, NULL, &module, err);
    if (status == REEL_OK) status = find_packed(b, module, err);
    buffer_release(&constants);
    return status;
}

enum reel_status cuda_open_draft_kernels(struct backend *b, struct cu_module **module,
                                         struct cuda_function *halves,
                                         struct cuda_function *product, struct reel_error *err) {
    struct buffer constants = { 0 };
    enum reel_status status = make_constants(b, &b->plan, &constants, err);
    if (status == REEL_OK) status = build_late(b, "draft_input.cu", &constants, NULL, module, err);
    if (status == REEL_OK)
        status = cuda_function_find(&b->gpu, halves, *module, "draft_halves", err);
    if (status == REEL_OK)
        status = cuda_function_find(&b->gpu, product, *module, "draft_product", err);
    buffer_release(&constants);
    return status;
}
