#include "cuda/driver/driver.h"

#include "cuda/driver/driver_error.h"
#include "cuda/driver/library.h"

#include <stdio.h>
#include <string.h>

enum {
    OLDEST_DRIVER = 11020, /* CUDA 11.2: the oldest whose NVRTC makes machine code */
    OLDEST_COMPUTE = 75
};

/* ---- the library ---- */

static const char *const library_names[] = {
    "libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",       /* Windows Subsystem for Linux */
    "/run/opengl-driver/lib/libcuda.so.1", /* NixOS */
    NULL,
};

#define SYMBOL(name, symbol, parameters) { #symbol, offsetof(struct cu_calls, name) },
static const struct library_symbol symbols[] = { CU_CALLS(SYMBOL) };
static const struct library_symbol later[] = { CU_LATER_CALLS(SYMBOL) };
#undef SYMBOL

static enum reel_status open_library(struct cuda_driver *driver, const char *folder,
                                     struct reel_error *err) {
    char why[LIBRARY_WHY];
    driver->library = library_open(folder, library_names, why);
    if (!driver->library)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "no NVIDIA driver (%s): install NVIDIA's driver for the GPU, until "
                       "nvidia-smi lists it, or run on the CPU",
                       why);
    const char *missing = library_bind(driver->library, &driver->call, symbols,
                                       (int)(sizeof symbols / sizeof *symbols));
    if (!missing) {
        (void)library_bind(driver->library, &driver->call, later, 1);
        return REEL_OK;
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "the NVIDIA driver lacks %s: it is older than CUDA 11.2; update it", missing);
}

static enum reel_status init_driver(struct cuda_driver *driver, struct reel_error *err) {
    const char *call = cu_names.driver_version;
    int error = driver->call.driver_version(&driver->version);
    if (error == 0 && driver->version < OLDEST_DRIVER)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "the NVIDIA driver supports CUDA %d.%d; 11.2 or newer is needed: update it",
                       driver->version / 1000, driver->version % 1000 / 10);
    if (error == 0) call = cu_names.init, error = driver->call.init(0);
    if (error == 0)
        call = cu_names.device_count, error = driver->call.device_count(&driver->n_gpus);
    if (error == 0 && driver->n_gpus < 1) error = CU_ERROR_NO_DEVICE;
    if (error == 0) return REEL_OK;
    enum reel_status status = driver_fail(driver, error, call, NULL, err);
    if (error != CU_ERROR_NO_DEVICE && error != CU_ERROR_STUB_LIBRARY) return status;
    if (err) err->status = REEL_E_UNSUPPORTED;
    return REEL_E_UNSUPPORTED;
}

enum reel_status cuda_driver_open(struct cuda_driver *driver, const char *folder,
                                  struct reel_error *err) {
    *driver = (struct cuda_driver){ 0 };
    enum reel_status status = open_library(driver, folder, err);
    if (status == REEL_OK) status = init_driver(driver, err);
    if (status != REEL_OK) cuda_driver_close(driver);
    return status;
}

void cuda_driver_close(struct cuda_driver *driver) {
    if (!driver) return;
    library_close(driver->library);
    *driver = (struct cuda_driver){ 0 };
}

/* ---- one GPU ---- */

/* "GPU-" and the bytes in groups of 4, 2, 2, 2 and 6, as NVIDIA's tools write it. */
static void write_uuid(char *text, const struct cu_uuid *uuid) {
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        at +=
            sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid->bytes[i]);
}

static int read_attributes(const struct cu_calls *call, int device, struct cuda_gpu_facts *facts) {
    int major = 0, minor = 0, cooperative = 0, read_only = 0;
    const struct {
        int *value;
        int attribute;
    } all[] = {
        { &major, CU_DEVICE_MAJOR },
        { &minor, CU_DEVICE_MINOR },
        { &facts->n_sms, CU_DEVICE_SM_COUNT },
        { &facts->shared_bytes, CU_DEVICE_SHARED_OPTIN },
        { &facts->registers, CU_DEVICE_REGISTERS_PER_SM },
        { &facts->max_threads, CU_DEVICE_MAX_THREADS_PER_BLOCK },
        { &facts->compute_mode, CU_DEVICE_COMPUTE_MODE },
        { &cooperative, CU_DEVICE_COOPERATIVE_LAUNCH },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int error = call->device_attribute(all[i].value, all[i].attribute, device);
        if (error != 0) return error;
    }
    /* Drivers before 11.1 do not know the question. */
    if (call->device_attribute(&read_only, CU_DEVICE_READ_ONLY_REGISTER, device) != 0)
        read_only = 0;
    facts->compute = major * 10 + minor;
    facts->cooperative = cooperative != 0;
    facts->read_only_register = read_only != 0;
    return 0;
}

static enum reel_status find_device(int *device, const struct cuda_driver *driver, int index,
                                    struct reel_error *err) {
    if (index < 0 || index >= driver->n_gpus)
        return err_set(err, REEL_E_ARGUMENT,
                       "there is no gpu:%d; the driver lists %d, from gpu:0 on", index,
                       driver->n_gpus);
    int error = driver->call.device_get(device, index);
    return error == 0 ? REEL_OK : driver_fail(driver, error, cu_names.device_get, NULL, err);
}

enum reel_status cuda_gpu_facts(struct cuda_gpu_facts *facts, const struct cuda_driver *driver,
                                int index, struct reel_error *err) {
    const struct cu_calls *call = &driver->call;
    const char *name = cu_names.device_name;
    struct cu_uuid uuid = { 0 };
    size_t n_bytes = 0;
    int device = 0;
    *facts = (struct cuda_gpu_facts){ 0 };
    enum reel_status status = find_device(&device, driver, index, err);
    if (status != REEL_OK) return status;
    int error = call->device_name(facts->name, (int)sizeof facts->name - 1, device);
    if (error == 0) name = cu_names.device_uuid, error = call->device_uuid(&uuid, device);
    if (error == 0) name = cu_names.device_memory, error = call->device_memory(&n_bytes, device);
    if (error == 0) name = cu_names.device_attribute, error = read_attributes(call, device, facts);
    if (error != 0) return driver_fail(driver, error, name, NULL, err);
    write_uuid(facts->uuid, &uuid);
    facts->memory_bytes = n_bytes;
    return REEL_OK;
}

enum reel_status cuda_gpu_check(const struct cuda_gpu_facts *facts, int index,
                                struct reel_error *err) {
    if (facts->compute < OLDEST_COMPUTE)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "gpu:%d, %s, has compute capability %d.%d; reel needs 7.5 (Turing) or newer",
                       index, facts->name, facts->compute / 10, facts->compute % 10);
    if (facts->compute_mode == CU_MODE_PROHIBITED)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "gpu:%d, %s, is in compute mode \"prohibited\": nvidia-smi -c 0 opens it",
                       index, facts->name);
    if (!facts->cooperative)
        return err_set(err, REEL_E_UNSUPPORTED, "gpu:%d, %s, has no cooperative launches", index,
                       facts->name);
    return REEL_OK;
}

enum reel_status cuda_gpu_open(struct cuda_gpu *gpu, const struct cuda_driver *driver, int index,
                               struct reel_error *err) {
    *gpu = (struct cuda_gpu){ .index = index };
    enum reel_status status = cuda_gpu_facts(&gpu->facts, driver, index, err);
    if (status == REEL_OK) status = cuda_gpu_check(&gpu->facts, index, err);
    if (status == REEL_OK) status = find_device(&gpu->device, driver, index, err);
    if (status != REEL_OK) return status;
    int error = driver->call.context_retain(&gpu->context, gpu->device);
    if (error != 0)
        return driver_fail(driver, error, cu_names.context_retain, gpu->facts.name, err);
    gpu->driver = driver;
    return REEL_OK;
}

void cuda_gpu_close(struct cuda_gpu *gpu) {
    if (!gpu) return;
    if (gpu->driver) gpu->driver->call.context_release(gpu->device);
    *gpu = (struct cuda_gpu){ 0 };
}

/* ---- calls in the GPU's context ---- */

static int context_enter(const struct cuda_gpu *gpu) {
    return gpu->driver->call.context_push(gpu->context);
}

static void context_leave(const struct cuda_gpu *gpu) {
    struct cu_context *popped = NULL;
    gpu->driver->call.context_pop(&popped);
}

/* error = the call's result, made with the context current. */
#define CALL(error, gpu, member, ...)                                                              \
    do {                                                                                           \
        (error) = context_enter(gpu);                                                              \
        if ((error) != 0) break;                                                                   \
        (error) = (gpu)->driver->call.member(__VA_ARGS__);                                         \
        context_leave(gpu);                                                                        \
    } while (0)

/* The same, and out of the function with a message when it fails. */
#define TRY(gpu, what, err, member, ...)                                                           \
    do {                                                                                           \
        int try_error;                                                                             \
        CALL(try_error, gpu, member, __VA_ARGS__);                                                 \
        if (try_error != 0)                                                                        \
            return driver_fail((gpu)->driver, try_error, cu_names.member, what, err);              \
    } while (0)

/* Of calls that free: there is nothing to do about their failure. */
#define DROP(gpu, member, ...)                                                                     \
    do {                                                                                           \
        int drop_error;                                                                            \
        CALL(drop_error, gpu, member, __VA_ARGS__);                                                \
        (void)drop_error;                                                                          \
    } while (0)

/* ---- memory ---- */

enum reel_status cuda_memory(const struct cuda_gpu *gpu, uint64_t *n_free, uint64_t *n_total,
                             struct reel_error *err) {
    size_t unused = 0, total = 0;
    *n_free = *n_total = 0;
    TRY(gpu, NULL, err, memory_info, &unused, &total);
    *n_free = unused;
    *n_total = total;
    return REEL_OK;
}

static double megabytes(uint64_t n) { return (double)n / 1e6; }

enum reel_status cuda_alloc(const struct cuda_gpu *gpu, cu_address *address, size_t n_bytes,
                            const char *what, struct reel_error *err) {
    uint64_t n_free = 0, n_total = 0;
    int error;
    *address = 0;
    CALL(error, gpu, memory_alloc, address, n_bytes);
    if (error == 0) return REEL_OK;
    *address = 0;
    if (error != CU_ERROR_OUT_OF_MEMORY || cuda_memory(gpu, &n_free, &n_total, NULL) != REEL_OK)
        return driver_fail(gpu->driver, error, cu_names.memory_alloc, what, err);
    return err_set(err, REEL_E_MEMORY,
                   "out of GPU memory: %s needs %.1f MB, of gpu:%d's %.1f MB %.1f MB are free; "
                   "close other programs on it, use a shorter context, or run on the CPU",
                   what, megabytes(n_bytes), gpu->index, megabytes(n_total), megabytes(n_free));
}

void cuda_free(const struct cuda_gpu *gpu, cu_address address) {
    if (address) DROP(gpu, memory_free, address);
}

enum reel_status cuda_host_alloc(const struct cuda_gpu *gpu, void **host, cu_address *address,
                                 size_t n_bytes, const char *what, struct reel_error *err) {
    int error;
    *host = NULL;
    *address = 0;
    TRY(gpu, what, err, host_alloc, host, n_bytes,
        CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICEMAP);
    CALL(error, gpu, host_address, address, *host, 0);
    if (error == 0) return REEL_OK;
    cuda_host_free(gpu, *host);
    *host = NULL;
    return driver_fail(gpu->driver, error, cu_names.host_address, what, err);
}

void cuda_host_free(const struct cuda_gpu *gpu, void *host) {
    if (host) DROP(gpu, host_free, host);
}

enum reel_status cuda_host_register(const struct cuda_gpu *gpu, const void *host, size_t n_bytes,
                                    bool read_only, struct reel_error *err) {
    unsigned flags = CU_HOST_REGISTER_PORTABLE | (read_only ? CU_HOST_REGISTER_READ_ONLY : 0);
    int error;
    if (read_only && !gpu->facts.read_only_register)
        return err_set(err, REEL_E_UNSUPPORTED, "%s cannot pin memory that is only for reading",
                       gpu->facts.name);
    CALL(error, gpu, host_register, (void *)(uintptr_t)host, n_bytes, flags);
    if (error == 0) return REEL_OK;
    driver_fail(gpu->driver, error, cu_names.host_register, NULL, err);
    if (err) err->status = REEL_E_UNSUPPORTED;
    return REEL_E_UNSUPPORTED;
}

void cuda_host_unregister(const struct cuda_gpu *gpu, const void *host) {
    if (host) DROP(gpu, host_unregister, (void *)(uintptr_t)host);
}

enum reel_status cuda_fill(const struct cuda_gpu *gpu, cu_address to, unsigned char value, size_t n,
                           struct cu_stream *stream, struct reel_error *err) {
    TRY(gpu, NULL, err, fill, to, value, n, stream);
    if (!stream) TRY(gpu, NULL, err, stream_synchronize, NULL);
    return REEL_OK;
}

enum reel_status cuda_upload(const struct cuda_gpu *gpu, cu_address to, const void *from, size_t n,
                             struct cu_stream *stream, struct reel_error *err) {
    if (stream)
        TRY(gpu, NULL, err, upload_async, to, from, n, stream);
    else
        TRY(gpu, NULL, err, upload, to, from, n);
    return REEL_OK;
}

enum reel_status cuda_download(const struct cuda_gpu *gpu, void *to, cu_address from, size_t n,
                               struct cu_stream *stream, struct reel_error *err) {
    if (stream)
        TRY(gpu, NULL, err, download_async, to, from, n, stream);
    else
        TRY(gpu, NULL, err, download, to, from, n);
    return REEL_OK;
}

enum reel_status cuda_copy(const struct cuda_gpu *gpu, cu_address to, cu_address from, size_t n,
                           struct cu_stream *stream, struct reel_error *err) {
    TRY(gpu, NULL, err, copy_async, to, from, n, stream);
    if (!stream) TRY(gpu, NULL, err, stream_synchronize, NULL);
    return REEL_OK;
}

enum reel_status cuda_queue_copy(const struct cuda_gpu *gpu, cu_address to, cu_address from,
                                 size_t n, struct reel_error *err) {
    TRY(gpu, NULL, err, copy_async, to, from, n, NULL);
    return REEL_OK;
}

enum reel_status cuda_queue_upload(const struct cuda_gpu *gpu, cu_address to, const void *from,
                                   size_t n, struct reel_error *err) {
    TRY(gpu, NULL, err, upload_async, to, from, n, NULL);
    return REEL_OK;
}

/* ---- streams and events ---- */

enum reel_status cuda_stream_open(const struct cuda_gpu *gpu, struct cu_stream **stream,
                                  struct reel_error *err) {
    *stream = NULL;
    TRY(gpu, NULL, err, stream_create, stream, CU_STREAM_NON_BLOCKING);
    return REEL_OK;
}

void cuda_stream_close(const struct cuda_gpu *gpu, struct cu_stream *stream) {
    if (stream) DROP(gpu, stream_destroy, stream);
}

enum reel_status cuda_wait(const struct cuda_gpu *gpu, struct cu_stream *stream, const char *what,
                           struct reel_error *err) {
    TRY(gpu, what, err, stream_synchronize, stream);
    return REEL_OK;
}

enum reel_status cuda_poll(const struct cuda_gpu *gpu, struct cu_stream *stream, bool *done,
                           const char *what, struct reel_error *err) {
    int error;
    CALL(error, gpu, stream_query, stream);
    *done = error != CU_ERROR_NOT_READY;
    if (error == 0 || error == CU_ERROR_NOT_READY) return REEL_OK;
    return driver_fail(gpu->driver, error, cu_names.stream_query, what, err);
}

enum reel_status cuda_event_open(const struct cuda_gpu *gpu, struct cu_event **event,
                                 struct reel_error *err) {
    *event = NULL;
    TRY(gpu, NULL, err, event_create, event, 0);
    return REEL_OK;
}

void cuda_event_close(const struct cuda_gpu *gpu, struct cu_event *event) {
    if (event) DROP(gpu, event_destroy, event);
}

enum reel_status cuda_event_record(const struct cuda_gpu *gpu, struct cu_event *event,
                                   struct cu_stream *stream, struct reel_error *err) {
    TRY(gpu, NULL, err, event_record, event, stream);
    return REEL_OK;
}

enum reel_status cuda_event_wait(const struct cuda_gpu *gpu, struct cu_event *event,
                                 struct reel_error *err) {
    TRY(gpu, NULL, err, event_synchronize, event);
    return REEL_OK;
}

enum reel_status cuda_event_ms(const struct cuda_gpu *gpu, struct cu_event *from,
                               struct cu_event *to, float *ms, struct reel_error *err) {
    *ms = 0;
    TRY(gpu, NULL, err, event_elapsed, ms, from, to);
    return REEL_OK;
}

/* ---- kernels ---- */

enum reel_status cuda_module_load(const struct cuda_gpu *gpu, struct cu_module **module,
                                  const void *image, struct reel_error *err) {
    char log[200] = "";
    int options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
    void *values[] = { log, (void *)(uintptr_t)(sizeof log - 1) };
    int error;
    *module = NULL;
    CALL(error, gpu, module_load, module, image, 2, options, values);
    if (error == 0) return REEL_OK;
    *module = NULL;
    log[strcspn(log, "\n")] = '\0';
    return driver_fail(gpu->driver, error, cu_names.module_load, log[0] ? log : "the kernels", err);
}

void cuda_module_unload(const struct cuda_gpu *gpu, struct cu_module *module) {
    if (module) DROP(gpu, module_unload, module);
}

enum reel_status cuda_function_find(const struct cuda_gpu *gpu, struct cuda_function *function,
                                    struct cu_module *module, const char *name,
                                    struct reel_error *err) {
    *function = (struct cuda_function){ .name = name };
    TRY(gpu, name, err, module_function, &function->handle, module, name);
    TRY(gpu, name, err, function_attribute, &function->registers, CU_FUNCTION_REGISTERS,
        function->handle);
    TRY(gpu, name, err, function_attribute, &function->local_bytes, CU_FUNCTION_LOCAL_BYTES,
        function->handle);
    TRY(gpu, name, err, function_attribute, &function->shared_bytes, CU_FUNCTION_SHARED_BYTES,
        function->handle);
    TRY(gpu, name, err, function_attribute, &function->max_threads, CU_FUNCTION_MAX_THREADS,
        function->handle);
    return REEL_OK;
}

enum reel_status cuda_function_set_shared(const struct cuda_gpu *gpu,
                                          const struct cuda_function *function, int shared_bytes,
                                          struct reel_error *err) {
    if (shared_bytes + function->shared_bytes > gpu->facts.shared_bytes)
        return err_set(err, REEL_E_LIMIT,
                       "kernel %s needs %d bytes of shared memory; a block of %s may have %d",
                       function->name, shared_bytes + function->shared_bytes, gpu->facts.name,
                       gpu->facts.shared_bytes);
    TRY(gpu, function->name, err, function_set, function->handle, CU_FUNCTION_MAX_DYNAMIC_SHARED,
        shared_bytes);
    return REEL_OK;
}

enum reel_status cuda_occupancy(const struct cuda_gpu *gpu, const struct cuda_function *function,
                                int threads, int shared_bytes, int *n_blocks,
                                struct reel_error *err) {
    *n_blocks = 0;
    TRY(gpu, function->name, err, occupancy, n_blocks, function->handle, threads,
        (size_t)shared_bytes);
    return REEL_OK;
}

static int launch_overlapping(const struct cuda_gpu *gpu, const struct cuda_launch *launch) {
    struct cu_launch_attribute attribute = { .id = CU_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                             .value.allowed = 1 };
    const struct cu_launch_config config = { .grid_x = (unsigned)launch->blocks,
                                             .grid_y = 1,
                                             .grid_z = 1,
                                             .block_x = (unsigned)launch->threads,
                                             .block_y = 1,
                                             .block_z = 1,
                                             .shared_bytes = (unsigned)launch->shared_bytes,
                                             .stream = launch->stream,
                                             .attributes = &attribute,
                                             .n_attributes = 1 };
    int error;
    CALL(error, gpu, launch_ex, &config, launch->function->handle, launch->arguments, NULL);
    return error;
}

enum reel_status cuda_launch(const struct cuda_gpu *gpu, const struct cuda_launch *launch,
                             struct reel_error *err) {
    const struct cuda_function *f = launch->function;
    unsigned blocks = (unsigned)launch->blocks, threads = (unsigned)launch->threads;
    unsigned shared = (unsigned)launch->shared_bytes;
    char what[128];
    int error;
    if (launch->cooperative)
        CALL(error, gpu, launch_cooperative, f->handle, blocks, 1, 1, threads, 1, 1, shared,
             launch->stream, launch->arguments);
    else if (launch->overlaps && gpu->driver->call.launch_ex)
        error = launch_overlapping(gpu, launch);
    else
        CALL(error, gpu, launch, f->handle, blocks, 1, 1, threads, 1, 1, shared, launch->stream,
             launch->arguments, NULL);
    if (error == 0) return REEL_OK;
    snprintf(what, sizeof what, "kernel %s (%d blocks of %d threads, %d bytes of shared memory)",
             f->name, launch->blocks, launch->threads, launch->shared_bytes);
    return driver_fail(gpu->driver, error,
                       launch->cooperative ? cu_names.launch_cooperative : cu_names.launch, what,
                       err);
}
