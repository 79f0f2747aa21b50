#include "cuda/compile/kernel_compile.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cuda/compile/compiler_signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { PROGRESS_MS = 100, REASONABLE_BYTES = 1 << 28 };

struct job {
    const struct nvrtc *nvrtc;
    struct nvrtc_program *program;
    const struct compile_input *input;
    int error;
    atomic_bool cancel;
    pthread_mutex_t mutex;
    pthread_cond_t over;
    bool is_over;
};

static enum reel_status fail_call(const struct nvrtc *nvrtc, int error, const char *call,
                                  struct reel_error *err) {
    return err_set(err, error == 1 ? REEL_E_MEMORY : REEL_E_DEVICE, "NVRTC %d.%d (%s): %s: %s (%d)",
                   nvrtc->major, nvrtc->minor, nvrtc->path, call, nvrtc_error_text(error), error);
}

/* ---- compiling and waiting ---- */

/* NVRTC asks this between its steps. */
static int wants_end(void *payload, void *reserved) {
    struct job *job = payload;
    (void)reserved;
    return atomic_load(&job->cancel);
}

static void compile_program(struct job *job) {
    int (*compile)(struct nvrtc_program *, int, const char *const *) = job->nvrtc->call.compile;
    const void *address = NULL;
    memcpy(&address, &compile, sizeof address);
    if (job->nvrtc->set_flow) job->nvrtc->set_flow(job->program, wants_end, job);
    compiler_signals_begin(address);
    job->error = compile(job->program, job->input->n_options, job->input->options);
    compiler_signals_end();
}

static void *compile_on_thread(void *user) {
    struct job *job = user;
    compile_program(job);
    pthread_mutex_lock(&job->mutex);
    job->is_over = true;
    pthread_cond_signal(&job->over);
    pthread_mutex_unlock(&job->mutex);
    return NULL;
}

static struct timespec after_ms(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void report_progress(struct job *job) {
    const struct kernel_build *build = job->input->build;
    if (!atomic_load(&job->cancel) &&
        !build->progress(build->progress_user, "compiling kernels", 0, 0))
        atomic_store(&job->cancel, true);
}

static void wait_reporting(struct job *job) {
    pthread_mutex_lock(&job->mutex);
    while (!job->is_over) {
        struct timespec until = after_ms(PROGRESS_MS);
        while (!job->is_over && pthread_cond_timedwait(&job->over, &job->mutex, &until) == 0) {
        }
        if (job->is_over) break;
        pthread_mutex_unlock(&job->mutex);
        report_progress(job);
        pthread_mutex_lock(&job->mutex);
    }
    pthread_mutex_unlock(&job->mutex);
}

/* The caller's signal handlers are not for the compiler's thread. */
static int start_thread(pthread_t *thread, struct job *job) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, compile_on_thread, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Without a thread the work is the same, only unheard of. */
static void run_compiler(struct job *job) {
    pthread_condattr_t attributes;
    pthread_t thread;
    if (!job->input->build->progress) {
        compile_program(job);
        return;
    }
    report_progress(job); /* before the thread starts: what takes no time is heard of, too */
    if (atomic_load(&job->cancel)) return;
    pthread_mutex_init(&job->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&job->over, &attributes);
    pthread_condattr_destroy(&attributes);
    if (start_thread(&thread, job) == 0) {
        wait_reporting(job);
        pthread_join(thread, NULL);
    } else {
        compile_program(job);
    }
    pthread_cond_destroy(&job->over);
    pthread_mutex_destroy(&job->mutex);
}

/* ---- program, log, image ---- */

static enum reel_status create_program(struct job *job, struct reel_error *err) {
    const struct kernel_build *build = job->input->build;
    const char **texts = NULL, **names = NULL, *text = NULL;
    size_t n = (size_t)build->n_sources;
    int n_headers = 0;
    enum reel_status status = mem_zeroed(&texts, n, sizeof *texts, "a list of kernel sources", err);
    if (status == REEL_OK)
        status = mem_zeroed(&names, n, sizeof *names, "a list of kernel sources", err);
    for (int i = 0; i < build->n_sources && status == REEL_OK; i++) {
        const struct kernel_source *source = &build->sources[i];
        if (strcmp(source->name, build->program) == 0) {
            text = source->text;
        } else {
            texts[n_headers] = source->text;
            names[n_headers++] = source->name;
        }
    }
    if (status == REEL_OK && !text)
        status =
            err_set(err, REEL_E_NOT_FOUND, "there is no kernel source named %s", build->program);
    if (status == REEL_OK) {
        int error =
            build->nvrtc->call.create(&job->program, text, build->program, n_headers, texts, names);
        if (error != 0) status = fail_call(build->nvrtc, error, "nvrtcCreateProgram", err);
    }
    mem_free(names);
    mem_free(texts);
    return status;
}

/* NVRTC's size of a text counts its terminating zero; one more zero does no harm to machine code.
 */
static enum reel_status fetch_output(char **text, size_t *n_bytes, const struct job *job,
                                     const char *call,
                                     int (*size_of)(struct nvrtc_program *, size_t *),
                                     int (*get)(struct nvrtc_program *, char *),
                                     struct reel_error *err) {
    size_t n = 0;
    *text = NULL;
    int error = size_of(job->program, &n);
    if (error != 0) return fail_call(job->nvrtc, error, call, err);
    if (n > REASONABLE_BYTES)
        return err_set(err, REEL_E_LIMIT, "%s wants %zu bytes, at most %d are expected", call, n,
                       REASONABLE_BYTES);
    enum reel_status status = mem_zeroed(text, n + 1, 1, call, err);
    if (status != REEL_OK) return status;
    error = get(job->program, *text);
    *n_bytes = n;
    if (error == 0) return REEL_OK;
    mem_free(*text);
    *text = NULL;
    return fail_call(job->nvrtc, error, call, err);
}

static enum reel_status fetch_log(struct kernel_image *image, const struct job *job,
                                  struct reel_error *err) {
    const struct nvrtc_calls *call = &job->nvrtc->call;
    size_t n = 0;
    enum reel_status status =
        fetch_output(&image->log, &n, job, "nvrtcGetProgramLog", call->log_size, call->log, err);
    if (status != REEL_OK || image->log[0]) return status;
    mem_free(image->log);
    image->log = NULL;
    return REEL_OK;
}

static enum reel_status fetch_image(struct kernel_image *image, const struct job *job,
                                    struct reel_error *err) {
    const struct nvrtc_calls *call = &job->nvrtc->call;
    char *bytes = NULL;
    enum reel_status status = job->input->ptx
                                  ? fetch_output(&bytes, &image->n_bytes, job, "nvrtcGetPTX",
                                                 call->ptx_size, call->ptx, err)
                                  : fetch_output(&bytes, &image->n_bytes, job, "nvrtcGetCUBIN",
                                                 call->cubin_size, call->cubin, err);
    image->bytes = bytes;
    if (status == REEL_OK && image->n_bytes == 0)
        status = err_set(err, REEL_E_DEVICE, "NVRTC %d.%d (%s) compiled %s to nothing",
                         job->nvrtc->major, job->nvrtc->minor, job->nvrtc->path,
                         job->input->build->program);
    return status;
}

enum reel_status kernel_compile(struct kernel_image *image, const struct compile_input *input,
                                struct reel_error *err) {
    struct job job = { .nvrtc = input->build->nvrtc, .input = input };
    double start_s = clock_s();
    enum reel_status status = create_program(&job, err);
    if (status != REEL_OK) return status;
    run_compiler(&job);
    image->compile_s = clock_s() - start_s;
    if (atomic_load(&job.cancel)) {
        status = err_set(err, REEL_E_CANCELLED, "compiling the kernels was cancelled");
    } else {
        status = fetch_log(image, &job, err);
        if (status == REEL_OK && job.error != 0)
            status = fail_call(job.nvrtc, job.error, "nvrtcCompileProgram", err);
        else if (status == REEL_OK)
            status = fetch_image(image, &job, err);
    }
    job.nvrtc->call.destroy(&job.program);
    return status;
}
