/* Measures what kernels/limits.cu does, and tells it as JSON. */
#include "cuda/measure/limits.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "cuda/compile/kernel_build.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/library.h"
#include "kernels/args.h"
#include "kernels/limits_args.h"
#include "reel_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SCATTER_BLOCKS_A_SM = 8,
    MOST_REPEATS = 16,
    MOST_LAUNCHES = 256,
    WARM_UP_LAUNCHES = 3,
    WORD_STRIDE = 16 * LIMITS_MOST_WORDS, /* room for the words of 16 groups of a GPU */
    WORD_WAIT_MS = 10000,                 /* a word that has not come by then does not come */
    PATIENCE = 1 << 24,                   /* polls: seconds */
    MAX_PIECES = 1 << 26                  /* of a warp in one launch */
};

struct bench {
    const struct reel_limits_options *options;
    const struct backend_devices *devices;
    const struct limits_sizes *sizes;
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    struct cu_module *module;
    struct cuda_function read_all, exchange, touch, scatter;
    struct cu_event *from, *to;
    cu_address data, words, results; /* results: ns [sms], bytes [sms], errors */
    uint64_t data_bytes;
    volatile uint64_t *mailbox;
    cu_address mailbox_address;
    int done, total; /* for progress */
};

void limits_sizes_full(struct limits_sizes *sizes) {
    *sizes = (struct limits_sizes){ .data_bytes = (uint64_t)4 << 30,
                                    .read_ms = 30,
                                    .repeats = 5,
                                    .rounds = 2000,
                                    .launches = 200,
                                    .group = 16,
                                    .settle_ns = 20000,
                                    .gather_words = { 512, 4096 } };
}

static enum reel_status report_step(struct bench *b, struct reel_error *err) {
    const struct reel_limits_options *o = b->options;
    b->done++;
    if (!o->progress ||
        o->progress(o->progress_user, "measuring the GPU", (uint64_t)b->done, (uint64_t)b->total))
        return REEL_OK;
    return err_set(err, REEL_E_CANCELLED, "cancelled while measuring the GPU");
}

/* Takes over value. */
static enum reel_status append_measurement(json_t *list, json_t *value, struct reel_error *err) {
    return value && json_array_append_new(list, value) == 0 ? REEL_OK
                                                            : err_memory(err, "measurements", 0);
}

/* ---- opening ---- */

static enum reel_status open_gpu(struct bench *b, struct reel_error *err) {
    const struct reel_limits_options *o = b->options;
    enum reel_status status = cuda_driver_open(&b->driver, o->cuda_dir, err);
    return status == REEL_OK
               ? cuda_gpus_open(&b->gpu, &b->driver, b->devices->index, b->devices->n, err)
               : status;
}

static enum reel_status open_kernels(struct bench *b, struct reel_error *err) {
    const struct reel_limits_options *o = b->options;
    const struct cuda_folders folders = { o->cuda_dir, o->nvrtc_dir };
    const int compute = b->gpu.facts.compute;
    struct nvrtc nvrtc = { 0 };
    struct kernel_image image = { 0 };
    char constants[64];
    (void)snprintf(constants, sizeof constants, "G_COPY=%d\nG_COMPUTE=%d\nP_GPUS=%d\n",
                   (compute >= 90) + (compute >= 80), compute, b->gpu.n);
    const struct kernel_build build = { .nvrtc = &nvrtc,
                                        .sources = kernel_sources,
                                        .n_sources = n_kernel_sources,
                                        .program = "limits.cu",
                                        .constants = constants,
                                        .gpu_compute = compute,
                                        .driver_version = b->driver.version,
                                        .cache_dir = o->cache_dir,
                                        .progress = o->progress,
                                        .progress_user = o->progress_user,
                                        .log = o->log,
                                        .log_user = o->log_user };
    enum reel_status status = nvrtc_open(&nvrtc, folder_of_nvrtc(&folders), b->driver.version, err);
    if (status == REEL_OK) status = kernel_build(&image, &build, err);
    if (status == REEL_OK) status = cuda_module_load(&b->gpu, &b->module, image.bytes, err);
    kernel_image_release(&image);
    nvrtc_close(&nvrtc);
    struct {
        struct cuda_function *function;
        const char *name;
    } const all[] = { { &b->read_all, "read_all" },
                      { &b->exchange, "exchange" },
                      { &b->touch, "touch" },
                      { &b->scatter, "scatter" } };
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++)
        status = cuda_function_find(&b->gpu, all[i].function, b->module, all[i].name, err);
    return status;
}

static size_t results_bytes(const struct bench *b) {
    return (2 * (size_t)b->gpu.facts.n_sms + 1) * sizeof(uint64_t);
}

/* Two buffers. */
static size_t words_bytes(const struct bench *b) {
    return 2 * (size_t)WORD_STRIDE * (size_t)b->gpu.n * sizeof(uint64_t);
}

/* As much data as the sizes ask for, less where a quarter of the free memory is less. */
static enum reel_status open_memory(struct bench *b, struct reel_error *err) {
    uint64_t n_free = 0, n_total = 0;
    void *mailbox = NULL;
    enum reel_status status = cuda_memory(&b->gpu, &n_free, &n_total, err);
    b->data_bytes = b->sizes->data_bytes < n_free / 4 ? b->sizes->data_bytes : n_free / 4;
    if (status == REEL_OK)
        status = cuda_alloc(&b->gpu, &b->data, b->data_bytes, "data to read", err);
    if (status == REEL_OK)
        status = cuda_alloc(&b->gpu, &b->words, words_bytes(b), "exchange words", err);
    if (status == REEL_OK)
        status = cuda_alloc(&b->gpu, &b->results, results_bytes(b), "measurements", err);
    if (status == REEL_OK)
        status = cuda_host_alloc(&b->gpu, &mailbox, &b->mailbox_address, 256, "a word", err);
    b->mailbox = mailbox;
    if (status == REEL_OK) status = cuda_event_open(&b->gpu, &b->from, err);
    return status == REEL_OK ? cuda_event_open(&b->gpu, &b->to, err) : status;
}

static void close_bench(struct bench *b) {
    if (b->gpu.context) {
        cuda_event_close(&b->gpu, b->from);
        cuda_event_close(&b->gpu, b->to);
        cuda_host_free(&b->gpu, (void *)b->mailbox);
        cuda_free(&b->gpu, b->results);
        cuda_free(&b->gpu, b->words);
        cuda_free(&b->gpu, b->data);
        cuda_module_unload(&b->gpu, b->module);
    }
    cuda_gpu_close(&b->gpu);
    cuda_driver_close(&b->driver);
}

/* On the first GPU. */
static enum reel_status launch_kernel(struct bench *b, const struct cuda_function *function,
                                      int blocks, int threads, int shared_bytes,
                                      struct limits_args *args, struct reel_error *err) {
    void *arguments[] = { args };
    const struct cuda_launch launch = { .function = function,
                                        .blocks = blocks,
                                        .threads = threads,
                                        .shared_bytes = shared_bytes,
                                        .cooperative = b->gpu.facts.cooperative,
                                        .arguments = arguments };
    return cuda_launch(&b->gpu, &launch, err);
}

/* ---- the read ceiling ---- */

static enum reel_status fill_with_noise(struct bench *b, struct reel_error *err) {
    struct limits_args args = { .data = cuda_pointer(b->data), .span = b->data_bytes };
    enum reel_status status =
        launch_kernel(b, &b->scatter, b->gpu.facts.n_sms, LIMITS_SCATTER_THREADS, 0, &args, err);
    return status == REEL_OK ? cuda_wait(&b->gpu, NULL, "filling memory", err) : status;
}

static enum reel_status time_read(struct bench *b, struct limits_args *args, double *ms,
                                  struct reel_error *err) {
    const int shared = LIMITS_RING_AT + LIMITS_READERS * args->slots * LIMITS_PIECE;
    float elapsed = 0;
    enum reel_status status = cuda_event_record(&b->gpu, b->from, NULL, err);
    if (status == REEL_OK)
        status = launch_kernel(b, &b->read_all, b->gpu.facts.n_sms, LIMITS_READ_THREADS, shared,
                               args, err);
    if (status == REEL_OK) status = cuda_event_record(&b->gpu, b->to, NULL, err);
    if (status == REEL_OK) status = cuda_event_wait(&b->gpu, b->to, err);
    if (status == REEL_OK) status = cuda_event_ms(&b->gpu, b->from, b->to, &elapsed, err);
    *ms = elapsed > 1e-3 ? elapsed : 1e-3;
    return status;
}

/* With `slots` pieces of each of an SM's copying warps in flight. */
static enum reel_status measure_read(struct bench *b, int slots, double *bytes_per_s,
                                     struct reel_error *err) {
    const int warps = b->gpu.facts.n_sms * LIMITS_READERS, repeats = b->sizes->repeats;
    const int shared = LIMITS_RING_AT + LIMITS_READERS * slots * LIMITS_PIECE;
    double ms[MOST_REPEATS] = { 0 };
    struct limits_args args = { .data = cuda_pointer(b->data), .slots = slots };
    args.span = b->data_bytes / (uint64_t)warps / LIMITS_PIECE * LIMITS_PIECE;
    if (args.span < LIMITS_PIECE)
        return err_set(err, REEL_E_MEMORY, "%s: too little memory is free to measure reading",
                       b->gpu.facts.name);
    args.pieces = (unsigned)(args.span / LIMITS_PIECE);
    enum reel_status status = cuda_function_set_shared(&b->gpu, &b->read_all, shared, err);
    if (status == REEL_OK) status = time_read(b, &args, ms, err); /* also warms up */
    const double wanted = args.pieces * (b->sizes->read_ms / ms[0]);
    if (wanted > args.pieces) args.pieces = wanted < MAX_PIECES ? (unsigned)wanted : MAX_PIECES;
    for (int i = 0; i < repeats && status == REEL_OK; i++)
        status = time_read(b, &args, &ms[i], err);
    const double typical = median(ms, repeats);
    *bytes_per_s = (double)args.pieces * LIMITS_PIECE * warps / (typical * 1e-3);
    return status == REEL_OK ? report_step(b, err) : status;
}

static enum reel_status read_ceiling(struct bench *b, json_t *all, struct reel_error *err) {
    const int per_slot = LIMITS_READERS * LIMITS_PIECE;
    json_t *list = json_array();
    double best = 0;
    enum reel_status status = list ? fill_with_noise(b, err) : err_memory(err, "measurements", 0);
    for (int slots = b->options->only_read ? 2 : 1;
         slots * LIMITS_READERS <= LIMITS_MOST_PIECES &&
         LIMITS_RING_AT + slots * per_slot <= b->gpu.facts.shared_bytes && status == REEL_OK;
         slots++) {
        double rate = 0;
        status = measure_read(b, slots, &rate, err);
        if (rate > best) best = rate;
        if (status == REEL_OK)
            status = append_measurement(
                list,
                json_pack("{s:i, s:f}", "in_flight_bytes", slots * per_slot, "bytes_per_s", rate),
                err);
    }
    if (status == REEL_OK && (json_object_set(all, "read", list) != 0 ||
                              json_object_set_new(all, "read_bytes_per_s", json_real(best)) != 0))
        status = err_memory(err, "measurements", 0);
    json_decref(list);
    return status;
}

/* ---- exchanges ---- */

struct exchange {
    int blocks; /* of a GPU */
    int readers, per_block, cap_bytes;
};

/* A launch on all GPUs, and what the one at hand is told. */
struct sharing {
    const struct bench *b;
    const struct limits_args *first; /* the first GPU's */
    struct limits_args own;
    struct gpu_args gpus;
    void *arguments[2];
};

static void *on(const struct bench *b, const void *pointer, int g) {
    return cuda_pointer(cuda_on(&b->gpu, (cu_address)(uintptr_t)pointer, g));
}

static void **arguments_on(void *user, int g) {
    struct sharing *s = user;
    const struct bench *b = s->b;
    const struct limits_args *a = s->first;
    int n = 0;
    s->own = *a;
    s->own.data = on(b, a->data, g), s->own.words = on(b, a->words, g);
    s->own.ns = on(b, a->ns, g), s->own.bytes = on(b, a->bytes, g);
    s->own.errors = on(b, a->errors, g);
    s->gpus = (struct gpu_args){ .gpu = g };
    for (int other = 0; other < b->gpu.n; other++)
        if (other != g)
            s->gpus.peers[n++] = (const char *)on(b, a->words, other) - (const char *)s->own.words;
    s->arguments[0] = &s->own, s->arguments[1] = &s->gpus;
    return s->arguments;
}

/* On all GPUs together; with one, on it. */
static enum reel_status launch_exchange(struct bench *b, const struct exchange *x,
                                        struct limits_args *args, struct reel_error *err) {
    struct sharing sharing = { .b = b, .first = args };
    void *arguments[] = { args };
    const struct cuda_launch launch = { .function = &b->exchange,
                                        .blocks = x->blocks,
                                        .threads = LIMITS_EXCHANGE_THREADS,
                                        .shared_bytes = LIMITS_RING_AT + x->cap_bytes,
                                        .cooperative = b->gpu.facts.cooperative,
                                        .arguments = arguments,
                                        .arguments_of = arguments_on,
                                        .user = &sharing };
    return cuda_launch(&b->gpu, &launch, err);
}

/* Adds what the blocks of GPU g say. */
static enum reel_status take_results(struct bench *b, const struct exchange *x, int g,
                                     uint64_t *longest, uint64_t *bytes, struct reel_error *err) {
    const size_t n = (size_t)b->gpu.facts.n_sms;
    uint64_t *results = NULL;
    enum reel_status status = mem_zeroed(&results, 2 * n + 1, 8, "measurements", err);
    if (status == REEL_OK)
        status = cuda_download_of(&b->gpu, g, results, b->results, results_bytes(b), err);
    for (int i = 0; i < x->blocks && status == REEL_OK; i++) {
        if (results[i] > *longest) *longest = results[i];
        *bytes += results[n + (size_t)i];
    }
    if (status == REEL_OK && (uint32_t)results[2 * n])
        status = err_set(err, REEL_E_DEVICE, "%s: exchanging %d words among %d SMs failed (%u)",
                         b->gpu.facts.name, x->readers * x->per_block, x->readers,
                         (unsigned)results[2 * n]);
    mem_free(results);
    return status;
}

/* stream: bytes a second that a GPU copies beside the exchanges. */
static enum reel_status time_exchange(struct bench *b, const struct exchange *x, double *us,
                                      double *stream, struct reel_error *err) {
    const int n = b->gpu.facts.n_sms;
    uint64_t longest = 0, bytes = 0;
    struct limits_args args = {
        .data = cuda_pointer(b->data),
        .span = b->data_bytes / (uint64_t)n / LIMITS_PIECE * LIMITS_PIECE,
        .slots = x->cap_bytes / LIMITS_PIECE,
        .words = cuda_pointer(b->words),
        .word_stride = (unsigned)(WORD_STRIDE * b->gpu.n),
        .rounds = b->sizes->rounds,
        .group = x->readers,
        .per_block = x->per_block,
        .settle_ns = b->sizes->settle_ns,
        .patience = PATIENCE,
        .ns = cuda_pointer(b->results),
        .bytes = cuda_pointer(b->results + (cu_address)n * 8),
        .errors = cuda_pointer(b->results + (cu_address)n * 16),
    };
    enum reel_status status = cuda_fill(&b->gpu, b->words, 0, words_bytes(b), NULL, err);
    if (status == REEL_OK) status = cuda_fill(&b->gpu, b->results, 0, results_bytes(b), NULL, err);
    if (status == REEL_OK) status = launch_exchange(b, x, &args, err);
    if (status == REEL_OK) status = cuda_wait(&b->gpu, NULL, "the exchange kernel", err);
    for (int g = 0; g < b->gpu.n && status == REEL_OK; g++)
        status = take_results(b, x, g, &longest, &bytes, err);
    if (longest < 1) longest = 1;
    *us = (double)longest * 1e-3 / b->sizes->rounds;
    *stream = (double)bytes / b->gpu.n / (double)(longest + b->sizes->settle_ns) * 1e9;
    return status;
}

static enum reel_status measure_exchange(struct bench *b, const struct exchange *x, json_t *list,
                                         struct reel_error *err) {
    double us[MOST_REPEATS] = { 0 }, rate[MOST_REPEATS] = { 0 };
    enum reel_status status =
        cuda_function_set_shared(&b->gpu, &b->exchange, LIMITS_RING_AT + x->cap_bytes, err);
    for (int i = 0; i < b->sizes->repeats && status == REEL_OK; i++)
        status = time_exchange(b, x, &us[i], &rate[i], err);
    if (status == REEL_OK)
        status =
            append_measurement(list,
                               json_pack("{s:i, s:i, s:i, s:f, s:f}", "readers", x->readers,
                                         "words", x->readers * x->per_block, "in_flight_bytes",
                                         x->cap_bytes, "us", median(us, b->sizes->repeats),
                                         "copied_bytes_per_s", median(rate, b->sizes->repeats)),
                               err);
    return status == REEL_OK ? report_step(b, err) : status;
}

static const int exchange_caps[] = { 0, 16 << 10, 32 << 10, 48 << 10, 64 << 10 };
enum { N_CAPS = (int)(sizeof exchange_caps / sizeof *exchange_caps), N_KINDS = 4 };

/* All SMs (whole groups of them), then groups; few words, then many. With several GPUs all SMs are
 * those of all, and a group's words go to the others as well. */
static enum reel_status measure_exchanges(struct bench *b, json_t *all, struct reel_error *err) {
    const int n_sms = b->gpu.facts.n_sms;
    const int group = b->sizes->group < n_sms ? b->sizes->group : n_sms;
    struct exchange x = { .blocks = n_sms / group * group };
    json_t *list = json_array();
    enum reel_status status = list ? REEL_OK : err_memory(err, "measurements", 0);
    for (int kind = 0; kind < N_KINDS && status == REEL_OK; kind++) {
        x.readers = kind < 2 ? x.blocks * b->gpu.n : group;
        x.per_block = b->sizes->gather_words[kind % 2] / x.readers;
        if (x.per_block * x.readers % 2) x.per_block++;
        if (x.per_block < 2) x.per_block = 2;
        for (int i = 0; i < N_CAPS && status == REEL_OK; i++) {
            x.cap_bytes = exchange_caps[i];
            if (LIMITS_RING_AT + x.cap_bytes <= b->gpu.facts.shared_bytes)
                status = measure_exchange(b, &x, list, err);
        }
    }
    if (status == REEL_OK && json_object_set(all, "exchange", list) != 0)
        status = err_memory(err, "measurements", 0);
    json_decref(list);
    return status;
}

/* ---- launches ---- */

static enum reel_status wait_for_word(struct bench *b, uint64_t value, double since_ms,
                                      struct reel_error *err) {
    const volatile uint64_t *word = b->mailbox;
    for (unsigned spin = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; spin++)
        if (spin % 4096 == 4095 && clock_ms() - since_ms > WORD_WAIT_MS)
            return err_set(err, REEL_E_DEVICE, "%s: a launch left no word", b->gpu.facts.name);
    return REEL_OK;
}

/* Microseconds until the call returned, the word came, and the host was told of the end. */
struct launch_times {
    double call[MOST_LAUNCHES], word[MOST_LAUNCHES], end[MOST_LAUNCHES];
};

static enum reel_status time_launch(struct bench *b, int blocks, uint64_t value, bool watch,
                                    double us[3], struct reel_error *err) {
    struct limits_args args = { .mailbox = cuda_pointer(b->mailbox_address), .value = value };
    const double start = clock_ms();
    enum reel_status status =
        launch_kernel(b, &b->touch, blocks, LIMITS_EXCHANGE_THREADS, 0, &args, err);
    us[0] = (clock_ms() - start) * 1e3;
    if (status == REEL_OK && watch) status = wait_for_word(b, value, start, err);
    us[1] = (clock_ms() - start) * 1e3;
    if (status == REEL_OK) status = cuda_wait(&b->gpu, NULL, "a launch", err);
    us[2] = (clock_ms() - start) * 1e3;
    return status;
}

static enum reel_status measure_launches_of(struct bench *b, int blocks, uint64_t *value,
                                            json_t *list, struct reel_error *err) {
    const int n = b->sizes->launches;
    struct launch_times t;
    double us[3];
    enum reel_status status = REEL_OK;
    for (int i = -WARM_UP_LAUNCHES; i < n && status == REEL_OK; i++) {
        status = time_launch(b, blocks, ++*value, true, us, err); /* the word, then */
        if (i >= 0) t.call[i] = us[0], t.word[i] = us[1];
        if (status == REEL_OK) status = time_launch(b, blocks, ++*value, false, us, err);
        if (i >= 0) t.end[i] = us[2];
    }
    if (status == REEL_OK)
        status = append_measurement(list,
                                    json_pack("{s:i, s:f, s:f, s:f}", "blocks", blocks, "call_us",
                                              median(t.call, n), "word_us", median(t.word, n),
                                              "end_us", median(t.end, n)),
                                    err);
    return status == REEL_OK ? report_step(b, err) : status;
}

static enum reel_status measure_launches(struct bench *b, json_t *all, struct reel_error *err) {
    const int blocks[] = { 1, b->gpu.facts.n_sms };
    uint64_t value = 0;
    json_t *list = json_array();
    enum reel_status status = list ? REEL_OK : err_memory(err, "measurements", 0);
    *b->mailbox = 0;
    for (int i = 0; i < 2 && status == REEL_OK; i++)
        status = measure_launches_of(b, blocks[i], &value, list, err);
    if (status == REEL_OK && json_object_set(all, "launch", list) != 0)
        status = err_memory(err, "measurements", 0);
    json_decref(list);
    return status;
}

/* ---- all of it ---- */

static enum reel_status measure_all(struct bench *b, json_t *all, struct reel_error *err) {
    const int reads = LIMITS_MOST_PIECES / LIMITS_READERS;
    b->total = b->options->only_read ? reads : reads + N_KINDS * N_CAPS + 2;
    enum reel_status status = read_ceiling(b, all, err);
    if (status == REEL_OK && !b->options->only_read) status = measure_exchanges(b, all, err);
    if (status == REEL_OK && !b->options->only_read) status = measure_launches(b, all, err);
    return status;
}

enum reel_status limits_measure(json_t **out, const struct backend_devices *devices,
                                const struct reel_limits_options *options,
                                const struct limits_sizes *sizes, struct reel_error *err) {
    struct bench b = { .options = options, .devices = devices, .sizes = sizes };
    json_t *all = NULL;
    *out = NULL;
    enum reel_status status = open_gpu(&b, err);
    if (status == REEL_OK) status = open_kernels(&b, err);
    if (status == REEL_OK) status = open_memory(&b, err);
    if (status == REEL_OK) {
        all = json_pack("{s:s, s:i, s:i, s:i, s:I}", "gpu", b.gpu.facts.name, "gpus", b.gpu.n,
                        "compute", b.gpu.facts.compute, "sms", b.gpu.facts.n_sms, "data_bytes",
                        (json_int_t)b.data_bytes);
        if (!all) status = err_memory(err, "measurements", 0);
    }
    if (status == REEL_OK) status = measure_all(&b, all, err);
    close_bench(&b);
    if (status == REEL_OK)
        *out = all;
    else
        json_decref(all);
    return status;
}
