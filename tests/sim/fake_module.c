/* Modules, functions and launches. An image is a line of text from the fake NVRTC: the path of the
 * shared object that holds the kernels. A kernel K of it exports sim_run_K(void **params) and
 * sim_sizes_K[], the bytes of each parameter and a 0. */
#define _GNU_SOURCE
#include "fake_state.h"

#include "sim_ops.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_function {
    char name[64];
    void (*run)(void **params);
    const unsigned *sizes;
    unsigned shared_bytes; /* allowed */
    int n_gpus;            /* that run it together; 1: it runs alone */
    struct fake_function *next;
};

struct fake_module {
    void *object;
    struct fake_function *functions;
    struct fake_module *next;
};

static struct fake_module *modules; /* loaded */

static const char IMAGE_MARK[] = "fake cubin ";

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image);
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options,
                                   void **values);
EXPORT CUresult cuModuleUnload(CUmodule module);
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);

static bool image_path(const char *image, char *path, size_t bytes) {
    size_t n = sizeof IMAGE_MARK - 1, i = 0;
    for (size_t k = 0; k < n; k++)
        if (image[k] != IMAGE_MARK[k]) return false;
    for (; image[n + i] != '\n'; i++) {
        if (i + 1 == bytes || !image[n + i]) return false;
        path[i] = image[n + i];
    }
    path[i] = 0;
    return true;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER(true);
    char path[1024];
    if (!image_path(image, path, sizeof path)) return CU_INVALID_IMAGE;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*attach)(const struct sim_ops *) = NULL;
    if (object) *(void **)&attach = dlsym(object, "sim_attach");
    if (!attach) {
        fake_report("cuModuleLoadData: %s", dlerror());
        if (object) dlclose(object);
        return CU_INVALID_IMAGE;
    }
    attach(&sim_operations);
    struct fake_module *m = calloc(1, sizeof *m);
    if (!m) {
        dlclose(object);
        return CU_OUT_OF_MEMORY;
    }
    m->object = object;
    m->next = modules;
    modules = m;
    fake.live.modules++;
    *module = m;
    return CU_OK;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options,
                            void **values) {
    (void)n, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

static void module_close(struct fake_module *module) {
    struct fake_module **link = &modules;
    while (*link && *link != module)
        link = &(*link)->next;
    if (*link) *link = module->next;
    while (module->functions) {
        struct fake_function *f = module->functions;
        module->functions = f->next;
        free(f);
    }
    dlclose(module->object);
    free(module);
}

void fake_close_modules(void) {
    while (modules)
        module_close(modules);
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult status = fake_enter(__func__, true);
    if (!module) return CU_INVALID_HANDLE;
    fake_wait_all();
    module_close(module);
    fake.live.modules--;
    return status;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER(true);
    char symbol[128];
    struct fake_function *f = calloc(1, sizeof *f);
    if (!f) return CU_OUT_OF_MEMORY;
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(symbol, sizeof symbol, "sim_run_%s", name);
    *(void **)&f->run = dlsym(module->object, symbol);
    snprintf(symbol, sizeof symbol, "sim_sizes_%s", name);
    f->sizes = dlsym(module->object, symbol);
    if (!f->run || !f->sizes) {
        free(f);
        return CU_NOT_FOUND;
    }
    snprintf(symbol, sizeof symbol, "sim_gpus_%s", name);
    const int *const n_gpus = dlsym(module->object, symbol);
    f->n_gpus = n_gpus ? *n_gpus : 1;
    f->shared_bytes = 49152;
    f->next = module->functions;
    module->functions = f;
    *function = f;
    return CU_OK;
}

/* ---- functions ---- */

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction function,
                                                            int threads, size_t shared_bytes);

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    ENTER(true);
    switch (attribute) {
    case 0:
        *value = fake.gpu.max_threads;
        break;
    case 4:
        *value = 64;
        break; /* registers of a thread */
    case 5:
    case 6:
        *value = fake.gpu.compute;
        break;
    case 8:
        *value = (int)function->shared_bytes;
        break;
    default:
        *value = 0; /* local and static shared memory: none */
    }
    return CU_OK;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    ENTER(true);
    if (attribute == 8) {
        if (value < 0 || value > fake.gpu.shared_bytes) return CU_INVALID_VALUE;
        function->shared_bytes = (unsigned)value;
    }
    return CU_OK;
}

static int blocks_of_sm(int threads, size_t shared_bytes) {
    size_t of_sm = (size_t)fake.gpu.shared_bytes + 1024;
    int by_threads = threads ? 2048 / threads : 0, by_shared = (int)(of_sm / (shared_bytes + 1024));
    int n = by_threads < by_shared ? by_threads : by_shared;
    return n < 32 ? n : 32;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction function, int threads,
                                                     size_t shared_bytes) {
    ENTER(true);
    *n = shared_bytes > function->shared_bytes ? 0 : blocks_of_sm(threads, shared_bytes);
    return CU_OK;
}

/* ---- launches ---- */

struct launch_work {
    struct fake_work work;
    struct sim_launch launch;
    void **params;
    int n_gpus;
    bool late; /* fake_be_late */
};

static pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;

static void simulate(struct launch_work *l) {
    pthread_mutex_lock(&one_launch);
    static char report[FAKE_REPORT_BYTES];
    struct sim_counts counts;
    enum sim_result result = sim_run(&l->launch, &counts, report, sizeof report);
    pthread_mutex_lock(&fake_lock);
    fake.result = result;
    fake.counts = counts;
    if (result != SIM_DONE) memcpy(fake.report, report, sizeof report);
    pthread_mutex_unlock(&fake_lock);
    pthread_mutex_unlock(&one_launch);
    if (result != SIM_DONE)
        fake_broken(result == SIM_DEADLOCK ? CU_LAUNCH_TIMEOUT : CU_LAUNCH_FAILED);
}

/* Launches that several devices run together: the one that comes last runs them all, while the
 * others wait. Each device has one at a time, for it has one default stream. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct launch_work *of[SIM_MOST_GPUS];
    int n;
    unsigned over; /* how many times all came */
} together = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void simulate_together(void) {
    struct launch_work *first = together.of[0];
    struct sim_launch *l = &first->launch;
    l->n_gpus = together.n;
    l->grid *= l->n_gpus, l->resident *= l->n_gpus;
    for (int i = 0; i < together.n; i++)
        l->params_of[i] = together.of[i]->params;
    simulate(first);
}

/* Without the others' launches a GPU would wait in vain, until its patience ends. */
static void join(struct launch_work *l, int n_gpus) {
    enum { PATIENCE_S = 4 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&together.mutex);
    const unsigned before = together.over;
    together.of[l->launch.first_gpu] = l;
    if (++together.n == n_gpus) {
        simulate_together();
        memset(together.of, 0, sizeof together.of);
        together.n = 0, together.over++;
        pthread_cond_broadcast(&together.changed);
    }
    int late = 0;
    while (together.over == before && !late)
        late = pthread_cond_timedwait(&together.changed, &together.mutex, &until);
    if (late) {
        together.of[l->launch.first_gpu] = NULL, together.n--;
        fake_report("GPU %d waits for the other GPUs' launches", l->launch.first_gpu);
        fake_broken(CU_LAUNCH_TIMEOUT);
    }
    pthread_mutex_unlock(&together.mutex);
}

static void launch_run(struct fake_work *work) {
    struct launch_work *l = (struct launch_work *)work;
    if (l->late) fake_be_late();
    if (l->n_gpus > 1)
        join(l, l->n_gpus);
    else
        simulate(l);
}

static void launch_drop(struct fake_work *work) {
    struct launch_work *l = (struct launch_work *)work;
    for (int i = 0; l->params && l->params[i]; i++)
        free(l->params[i]);
    free(l->params);
    free(l);
}

static bool params_copy(struct launch_work *l, const unsigned *sizes, void **params) {
    int n = 0;
    while (sizes[n])
        n++;
    l->params = calloc((size_t)n + 1, sizeof *l->params);
    if (!l->params) return false;
    for (int i = 0; i < n; i++) {
        l->params[i] = aligned_alloc(16, ((size_t)sizes[i] + 15) / 16 * 16);
        if (!l->params[i]) return false;
        memcpy(l->params[i], params[i], sizes[i]);
    }
    return true;
}

static bool reaches_others(int gpu) {
    for (int other = 0; other < SIM_MOST_GPUS; other++)
        if (other != gpu && fake_reaches(gpu, other)) return true;
    return false;
}

static CUresult launch(CUfunction f, unsigned grid, unsigned threads, unsigned shared_bytes,
                       CUstream stream, void **params, bool cooperative, bool overlaps) {
    int resident = blocks_of_sm((int)threads, shared_bytes) * fake.gpu.n_sms;
    if (!grid || !threads || threads > (unsigned)fake.gpu.max_threads ||
        shared_bytes > f->shared_bytes) {
        fake_report("launch of %s: %u blocks of %u threads with %u bytes of shared memory (%u are "
                    "allowed)",
                    f->name, grid, threads, shared_bytes, f->shared_bytes);
        return CU_INVALID_VALUE;
    }
    if (cooperative && grid > (unsigned)resident) return CU_TOO_LARGE;
    struct launch_work *l = calloc(1, sizeof *l);
    if (!l) return CU_OUT_OF_MEMORY;
    l->work.run = launch_run, l->work.drop = launch_drop;
    l->n_gpus = f->n_gpus;
    l->late = fake.late && strcmp(f->name, fake.late) == 0 && fake_current_gpu() == fake.late_gpu;
    if (!params_copy(l, f->sizes, params)) {
        launch_drop(&l->work);
        return CU_OUT_OF_MEMORY;
    }
    l->launch = (struct sim_launch){ .entry = f->run,
                                     .params = l->params,
                                     .grid = (int)grid,
                                     .threads = (int)threads,
                                     .shared_bytes = shared_bytes,
                                     .resident = resident,
                                     .first_gpu = fake_current_gpu(),
                                     .reaches = reaches_others(fake_current_gpu()),
                                     .overlaps = overlaps,
                                     .settings = fake.settings,
                                     .memory = fake_range };
    if (!cooperative && l->launch.resident > 16) l->launch.resident = 16;
    if (fake.missing_in && strcmp(f->name, fake.missing_in) != 0)
        l->launch.settings.missing_block = -1;
    pthread_mutex_lock(&fake_lock);
    l->launch.settings.seed += (uint64_t)fake.n_launches++ * 1000003;
    pthread_mutex_unlock(&fake_lock);
    const bool together_with_others = f->n_gpus > 1;
    if (together_with_others && !fake_fills_over()) {
        launch_drop(&l->work);
        return CU_LAUNCH_FAILED;
    }
    const CUresult status = fake_submit(stream, &l->work);
    /* the host may be slow to come to the next device: others launch meanwhile */
    if (together_with_others) nanosleep(&(struct timespec){ 0, 200000 }, NULL);
    return status;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                               void **params, void **extra);
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                          unsigned bx, unsigned by, unsigned bz,
                                          unsigned shared_bytes, CUstream stream, void **params);

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                        void **params, void **extra) {
    ENTER(true);
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || extra) return CU_NOT_SUPPORTED;
    return launch(f, gx, bx, shared_bytes, stream, params, false, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                                   void **params) {
    ENTER(true);
    if (gy != 1 || gz != 1 || by != 1 || bz != 1) return CU_NOT_SUPPORTED;
    return launch(f, gx, bx, shared_bytes, stream, params, true, false);
}

/* The configuration that cuLaunchKernelEx takes; of the attributes (64 bytes each, the kind first,
 * the value 8 bytes in) only "cooperative" and "programmatic stream serialization" mean anything
 * here. */
struct launch_config {
    unsigned gx, gy, gz, bx, by, bz, shared_bytes;
    CUstream stream;
    const struct launch_attribute {
        int kind;
        int pad;
        union {
            int yes;
            char bytes[64];
        } value;
    } * attributes;
    unsigned n_attributes;
};

EXPORT CUresult cuLaunchKernelEx(const struct launch_config *c, CUfunction f, void **params,
                                 void **extra);

CUresult cuLaunchKernelEx(const struct launch_config *c, CUfunction f, void **params,
                          void **extra) {
    ENTER(true);
    enum { COOPERATIVE = 2, OVERLAPS = 6 };
    bool cooperative = false, overlaps = false;
    for (unsigned i = 0; i < c->n_attributes; i++) {
        const bool on = c->attributes[i].value.yes != 0;
        if (c->attributes[i].kind == COOPERATIVE) cooperative = on;
        if (c->attributes[i].kind == OVERLAPS) overlaps = on;
    }
    if (c->gy != 1 || c->gz != 1 || c->by != 1 || c->bz != 1 || extra) return CU_NOT_SUPPORTED;
    return launch(f, c->gx, c->bx, c->shared_bytes, c->stream, params, cooperative, overlaps);
}
