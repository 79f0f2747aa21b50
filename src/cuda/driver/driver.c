#include "cuda/driver/driver.h"

#include "base/memory.h"
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

/* Both are the driver's handles. */
static int ask_link(const struct cu_calls *call, int device, int other, int *reaches,
                    int *atomics) {
    *reaches = *atomics = 0;
    int error = call->can_reach(reaches, device, other);
    if (error == 0 && *reaches)
        error = call->link_attribute(atomics, CU_LINK_NATIVE_ATOMICS, device, other);
    return error;
}

enum reel_status cuda_gpus_linked(bool *linked, const struct cuda_driver *driver, int index,
                                  int other, struct reel_error *err) {
    int from = 0, to = 0, reaches = 0, atomics = 0;
    *linked = false;
    enum reel_status status = find_device(&from, driver, index, err);
    if (status == REEL_OK) status = find_device(&to, driver, other, err);
    if (status != REEL_OK) return status;
    const int error = ask_link(&driver->call, from, to, &reaches, &atomics);
    if (error != 0) return driver_fail(driver, error, cu_names.can_reach, NULL, err);
    *linked = reaches && atomics;
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
    *gpu = (struct cuda_gpu){ .index = index, .n = 1 };
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

/* ---- several GPUs ---- */

static const struct cuda_gpu *gpu_of(const struct cuda_gpu *gpu, int g) {
    return g == 0 ? gpu : &gpu->others[g - 1];
}

/* Walks over GPUs, this one included. */
#define EACH_GPU(gpu, one) for (const struct cuda_gpu *one = (gpu); one; one = gpu_next(gpu, one))
static const struct cuda_gpu *gpu_next(const struct cuda_gpu *gpu, const struct cuda_gpu *one) {
    const int g = (int)(one == gpu ? 1 : one - gpu->others + 2);
    return g < gpu->n ? &gpu->others[g - 1] : NULL;
}
static int number_of(const struct cuda_gpu *gpu, const struct cuda_gpu *one) {
    return one == gpu ? 0 : (int)(one - gpu->others) + 1;
}

void cuda_gpu_close(struct cuda_gpu *gpu) {
    if (!gpu) return;
    if (gpu->met) DROP(gpu, event_destroy, gpu->met);
    for (int g = 1; gpu->others && g < gpu->n; g++)
        cuda_gpu_close(&gpu->others[g - 1]);
    mem_free(gpu->others);
    if (gpu->twins) cuda_twins_close(gpu->twins);
    mem_free(gpu->twins);
    if (gpu->driver) gpu->driver->call.context_release(gpu->device);
    *gpu = (struct cuda_gpu){ 0 };
}

cu_address cuda_on(const struct cuda_gpu *gpu, cu_address address, int g) {
    return g == 0 ? address : cuda_twins_find(gpu->twins, address, g);
}

/* The same of a handle. */
static void *handle_on(const struct cuda_gpu *gpu, const void *handle, const struct cuda_gpu *one) {
    if (one == gpu) return (void *)(uintptr_t)handle;
    return (void *)(uintptr_t)cuda_on(gpu, (cu_address)(uintptr_t)handle, number_of(gpu, one));
}

static enum reel_status enable_peers(const struct cuda_gpu *gpu, struct reel_error *err) {
    EACH_GPU(gpu, one) {
        EACH_GPU(gpu, other) {
            int error;
            if (one == other) continue;
            CALL(error, one, peer_enable, other->context, 0);
            if (error != 0 && error != CU_ERROR_PEER_ACCESS_ALREADY)
                return driver_fail(gpu->driver, error, cu_names.peer_enable, one->facts.name, err);
        }
    }
    return REEL_OK;
}

static enum reel_status check_pair(const struct cuda_gpu *one, const struct cuda_gpu *other,
                                   struct reel_error *err) {
    const struct cu_calls *call = &one->driver->call;
    int reaches = 0, atomics = 0;
    if (one->index == other->index)
        return err_set(err, REEL_E_ARGUMENT, "gpu:%d is named twice", one->index);
    if (strcmp(one->facts.name, other->facts.name) != 0 || one->facts.n_sms != other->facts.n_sms)
        return err_set(
            err, REEL_E_UNSUPPORTED,
            "gpu:%d is a %s with %d SMs and gpu:%d a %s with %d: GPUs that share a model "
            "are of one kind",
            one->index, one->facts.name, one->facts.n_sms, other->index, other->facts.name,
            other->facts.n_sms);
    const int error = ask_link(call, one->device, other->device, &reaches, &atomics);
    if (error != 0) return driver_fail(one->driver, error, cu_names.can_reach, NULL, err);
    if (!reaches)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "gpu:%d does not reach the memory of gpu:%d: GPUs that share a model need "
                       "NVLink between them",
                       one->index, other->index);
    if (!atomics)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "gpu:%d reaches gpu:%d over PCIe only: GPUs that share a model need NVLink "
                       "between them",
                       one->index, other->index);
    return REEL_OK;
}

static enum reel_status check_pairs(const struct cuda_gpu *gpu, struct reel_error *err) {
    EACH_GPU(gpu, one) {
        EACH_GPU(gpu, other) {
            const enum reel_status status = one == other ? REEL_OK : check_pair(one, other, err);
            if (status != REEL_OK) return status;
        }
    }
    return REEL_OK;
}

/* Nothing is timed with these events. */
static enum reel_status open_meetings(struct cuda_gpu *gpu, struct reel_error *err) {
    enum { CU_EVENT_DISABLE_TIMING = 2 };
    EACH_GPU(gpu, one) {
        struct cu_event **met = one == gpu ? &gpu->met : &gpu->others[number_of(gpu, one) - 1].met;
        TRY(one, NULL, err, event_create, met, CU_EVENT_DISABLE_TIMING);
    }
    return REEL_OK;
}

enum reel_status cuda_gpus_open(struct cuda_gpu *gpu, const struct cuda_driver *driver,
                                const int *indices, int n, struct reel_error *err) {
    enum reel_status status = cuda_gpu_open(gpu, driver, indices[0], err);
    if (status != REEL_OK || n <= 1) return status;
    if (n > CUDA_MOST_GPUS)
        status = err_set(err, REEL_E_ARGUMENT, "%d GPUs: at most %d can share a model", n,
                         CUDA_MOST_GPUS);
    if (status == REEL_OK) status = mem_zeroed(&gpu->twins, 1, sizeof *gpu->twins, "GPUs", err);
    if (status == REEL_OK) status = cuda_twins_open(gpu->twins, err);
    if (status == REEL_OK)
        status = mem_zeroed(&gpu->others, (size_t)n - 1, sizeof *gpu->others, "GPUs", err);
    for (int g = 1; g < n && status == REEL_OK; g++) {
        status = cuda_gpu_open(&gpu->others[g - 1], driver, indices[g], err);
        if (status == REEL_OK) gpu->n++;
    }
    if (status == REEL_OK) status = check_pairs(gpu, err);
    if (status == REEL_OK) status = enable_peers(gpu, err);
    if (status == REEL_OK) status = open_meetings(gpu, err);
    if (status != REEL_OK) cuda_gpu_close(gpu);
    return status;
}

/* ---- memory ---- */

enum reel_status cuda_memory(const struct cuda_gpu *gpu, uint64_t *n_free, uint64_t *n_total,
                             struct reel_error *err) {
    *n_free = *n_total = 0;
    EACH_GPU(gpu, one) {
        size_t unused = 0, total = 0;
        TRY(one, NULL, err, memory_info, &unused, &total);
        if (one == gpu || unused < *n_free) *n_free = unused, *n_total = total;
    }
    return REEL_OK;
}

static double megabytes(uint64_t n) { return (double)n / 1e6; }

static enum reel_status alloc_on(const struct cuda_gpu *gpu, cu_address *address, size_t n_bytes,
                                 const char *what, struct reel_error *err) {
    size_t n_free = 0, n_total = 0;
    int error, info;
    *address = 0;
    CALL(error, gpu, memory_alloc, address, n_bytes);
    if (error == 0) return REEL_OK;
    *address = 0;
    CALL(info, gpu, memory_info, &n_free, &n_total);
    if (error != CU_ERROR_OUT_OF_MEMORY || info != 0)
        return driver_fail(gpu->driver, error, cu_names.memory_alloc, what, err);
    return err_set(err, REEL_E_MEMORY,
                   "out of GPU memory: %s needs %.1f MB, of gpu:%d's %.1f MB %.1f MB are free; "
                   "close other programs on it, use a shorter context, or run on the CPU",
                   what, megabytes(n_bytes), gpu->index, megabytes(n_total), megabytes(n_free));
}

enum reel_status cuda_alloc(const struct cuda_gpu *gpu, cu_address *address, size_t n_bytes,
                            const char *what, struct reel_error *err) {
    struct cuda_twin twin = { .n = n_bytes };
    enum reel_status status = alloc_on(gpu, address, n_bytes, what, err);
    if (status != REEL_OK || gpu->n == 1) return status;
    twin.from = twin.on[0] = *address;
    for (int g = 1; g < gpu->n && status == REEL_OK; g++) {
        cu_address there = 0;
        status = alloc_on(gpu_of(gpu, g), &there, n_bytes, what, err);
        twin.on[g] = there;
    }
    if (status == REEL_OK) status = cuda_twins_add(gpu->twins, &twin, err);
    if (status == REEL_OK) return REEL_OK;
    *address = 0;
    EACH_GPU(gpu, one)
    if (twin.on[number_of(gpu, one)]) DROP(one, memory_free, twin.on[number_of(gpu, one)]);
    return status;
}

void cuda_free(const struct cuda_gpu *gpu, cu_address address) {
    struct cuda_twin twin = { .on = { address } };
    if (!address || (gpu->n > 1 && !cuda_twins_take(gpu->twins, address, &twin))) return;
    EACH_GPU(gpu, one)
    DROP(one, memory_free, twin.on[number_of(gpu, one)]);
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
    EACH_GPU(gpu, one)
    TRY(one, NULL, err, fill, cuda_on(gpu, to, number_of(gpu, one)), value, n,
        handle_on(gpu, stream, one));
    return stream ? REEL_OK : cuda_wait(gpu, NULL, NULL, err);
}

enum reel_status cuda_upload(const struct cuda_gpu *gpu, cu_address to, const void *from, size_t n,
                             struct cu_stream *stream, struct reel_error *err) {
    EACH_GPU(gpu, one) {
        const cu_address there = cuda_on(gpu, to, number_of(gpu, one));
        if (stream)
            TRY(one, NULL, err, upload_async, there, from, n, handle_on(gpu, stream, one));
        else
            TRY(one, NULL, err, upload, there, from, n);
    }
    return REEL_OK;
}

enum reel_status cuda_upload_of(const struct cuda_gpu *gpu, int g, cu_address to, const void *from,
                                size_t n, struct reel_error *err) {
    TRY(gpu_of(gpu, g), NULL, err, upload, cuda_on(gpu, to, g), from, n);
    return REEL_OK;
}

enum reel_status cuda_download_of(const struct cuda_gpu *gpu, int g, void *to, cu_address from,
                                  size_t n, struct reel_error *err) {
    if (gpu->n > 1) {
        const enum reel_status status = cuda_wait(gpu, NULL, NULL, err);
        if (status != REEL_OK) return status;
    }
    TRY(gpu_of(gpu, g), NULL, err, download, to, cuda_on(gpu, from, g), n);
    return REEL_OK;
}

enum reel_status cuda_download(const struct cuda_gpu *gpu, void *to, cu_address from, size_t n,
                               struct cu_stream *stream, struct reel_error *err) {
    if (!stream) return cuda_download_of(gpu, 0, to, from, n, err);
    TRY(gpu, NULL, err, download_async, to, from, n, stream);
    return REEL_OK;
}

enum reel_status cuda_copy(const struct cuda_gpu *gpu, cu_address to, cu_address from, size_t n,
                           struct cu_stream *stream, struct reel_error *err) {
    EACH_GPU(gpu, one) {
        const int g = number_of(gpu, one);
        TRY(one, NULL, err, copy_async, cuda_on(gpu, to, g), cuda_on(gpu, from, g), n,
            handle_on(gpu, stream, one));
    }
    return stream ? REEL_OK : cuda_wait(gpu, NULL, NULL, err);
}

enum reel_status cuda_queue_copy(const struct cuda_gpu *gpu, cu_address to, cu_address from,
                                 size_t n, struct reel_error *err) {
    EACH_GPU(gpu, one) {
        const int g = number_of(gpu, one);
        TRY(one, NULL, err, copy_async, cuda_on(gpu, to, g), cuda_on(gpu, from, g), n, NULL);
    }
    return REEL_OK;
}

enum reel_status cuda_queue_upload_of(const struct cuda_gpu *gpu, int g, cu_address to,
                                      const void *from, size_t n, struct reel_error *err) {
    TRY(gpu_of(gpu, g), NULL, err, upload_async, cuda_on(gpu, to, g), from, n, NULL);
    return REEL_OK;
}

enum reel_status cuda_queue_upload(const struct cuda_gpu *gpu, cu_address to, const void *from,
                                   size_t n, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int g = 0; g < gpu->n && status == REEL_OK; g++)
        status = cuda_queue_upload_of(gpu, g, to, from, n, err);
    return status;
}

/* ---- streams and events ---- */

/* Handles of all GPUs that were just made, as twins; what cannot be kept is closed by `drop`. */
static enum reel_status keep_handles(const struct cuda_gpu *gpu, const struct cuda_twin *made,
                                     void (*drop)(const struct cuda_gpu *one, void *handle),
                                     enum reel_status status, struct reel_error *err) {
    if (status == REEL_OK && gpu->n > 1) status = cuda_twins_add(gpu->twins, made, err);
    if (status == REEL_OK) return REEL_OK;
    EACH_GPU(gpu, one) {
        const uint64_t handle = made->on[number_of(gpu, one)];
        if (handle) drop(one, (void *)(uintptr_t)handle);
    }
    return status;
}

static void close_handles(const struct cuda_gpu *gpu, void *handle,
                          void (*drop)(const struct cuda_gpu *one, void *handle)) {
    struct cuda_twin twin = { .on = { (uint64_t)(uintptr_t)handle } };
    if (!handle || (gpu->n > 1 && !cuda_twins_take(gpu->twins, twin.on[0], &twin))) return;
    EACH_GPU(gpu, one)
    drop(one, (void *)(uintptr_t)twin.on[number_of(gpu, one)]);
}

static void note_handle(const struct cuda_gpu *gpu, const struct cuda_gpu *one,
                        struct cuda_twin *made, void *handle) {
    made->on[number_of(gpu, one)] = (uint64_t)(uintptr_t)handle;
    made->from = made->on[0], made->n = 1;
}

static void drop_stream(const struct cuda_gpu *one, void *handle) {
    DROP(one, stream_destroy, handle);
}

static enum reel_status open_stream(const struct cuda_gpu *one, struct cu_stream **stream,
                                    struct reel_error *err) {
    *stream = NULL;
    TRY(one, NULL, err, stream_create, stream, CU_STREAM_NON_BLOCKING);
    return REEL_OK;
}

enum reel_status cuda_stream_open(const struct cuda_gpu *gpu, struct cu_stream **stream,
                                  struct reel_error *err) {
    struct cuda_twin made = { 0 };
    enum reel_status status = REEL_OK;
    *stream = NULL;
    EACH_GPU(gpu, one) {
        struct cu_stream *own = NULL;
        if (status == REEL_OK) status = open_stream(one, &own, err);
        note_handle(gpu, one, &made, own);
    }
    status = keep_handles(gpu, &made, drop_stream, status, err);
    if (status == REEL_OK) *stream = (struct cu_stream *)(uintptr_t)made.on[0];
    return status;
}

void cuda_stream_close(const struct cuda_gpu *gpu, struct cu_stream *stream) {
    close_handles(gpu, stream, drop_stream);
}

enum reel_status cuda_wait(const struct cuda_gpu *gpu, struct cu_stream *stream, const char *what,
                           struct reel_error *err) {
    EACH_GPU(gpu, one)
    TRY(one, what, err, stream_synchronize, handle_on(gpu, stream, one));
    return REEL_OK;
}

enum reel_status cuda_poll(const struct cuda_gpu *gpu, struct cu_stream *stream, bool *done,
                           const char *what, struct reel_error *err) {
    *done = true;
    EACH_GPU(gpu, one) {
        int error;
        CALL(error, one, stream_query, handle_on(gpu, stream, one));
        if (error == CU_ERROR_NOT_READY) *done = false;
        if (error == 0 || error == CU_ERROR_NOT_READY) continue;
        *done = true;
        return driver_fail(gpu->driver, error, cu_names.stream_query, what, err);
    }
    return REEL_OK;
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

/* Kernels that wait for each other on several GPUs must be queued in one order on all of them,
 * whatever model they are of: else each GPU might run the one that the other has not come to. */
static pthread_mutex_t one_order = PTHREAD_MUTEX_INITIALIZER;

static enum reel_status meet_all(const struct cuda_gpu *gpu, struct reel_error *err) {
    EACH_GPU(gpu, one)
    TRY(one, NULL, err, event_record, one->met, NULL);
    EACH_GPU(gpu, one)
    EACH_GPU(gpu, other) {
        if (other != one) TRY(one, NULL, err, stream_wait_event, NULL, other->met, 0);
    }
    return REEL_OK;
}

enum reel_status cuda_meet(const struct cuda_gpu *gpu, struct reel_error *err) {
    if (gpu->n <= 1) return REEL_OK;
    pthread_mutex_lock(&one_order);
    const enum reel_status status = meet_all(gpu, err);
    pthread_mutex_unlock(&one_order);
    return status;
}

static enum reel_status fill_all(const struct cuda_gpu *gpu, cu_address to, unsigned char value,
                                 size_t n, struct reel_error *err) {
    EACH_GPU(gpu, one)
    TRY(one, NULL, err, fill, cuda_on(gpu, to, number_of(gpu, one)), value, n, NULL);
    return REEL_OK;
}

/* In one go, so that no launch comes between the fill and the meeting behind it. */
enum reel_status cuda_queue_fill(const struct cuda_gpu *gpu, cu_address to, unsigned char value,
                                 size_t n, struct reel_error *err) {
    if (gpu->n <= 1) return fill_all(gpu, to, value, n, err);
    pthread_mutex_lock(&one_order);
    enum reel_status status = meet_all(gpu, err);
    if (status == REEL_OK) status = fill_all(gpu, to, value, n, err);
    if (status == REEL_OK) status = meet_all(gpu, err);
    pthread_mutex_unlock(&one_order);
    return status;
}

/* ---- kernels ---- */

static enum reel_status load_module(const struct cuda_gpu *gpu, struct cu_module **module,
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

static void drop_module(const struct cuda_gpu *one, void *handle) {
    DROP(one, module_unload, handle);
}

enum reel_status cuda_module_load(const struct cuda_gpu *gpu, struct cu_module **module,
                                  const void *image, struct reel_error *err) {
    struct cuda_twin made = { 0 };
    enum reel_status status = REEL_OK;
    *module = NULL;
    EACH_GPU(gpu, one) {
        struct cu_module *own = NULL;
        if (status == REEL_OK) status = load_module(one, &own, image, err);
        note_handle(gpu, one, &made, own);
    }
    status = keep_handles(gpu, &made, drop_module, status, err);
    if (status == REEL_OK) *module = (struct cu_module *)(uintptr_t)made.on[0];
    return status;
}

void cuda_module_unload(const struct cuda_gpu *gpu, struct cu_module *module) {
    close_handles(gpu, module, drop_module);
}

static enum reel_status find_function(const struct cuda_gpu *gpu, struct cuda_function *function,
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

/* What GPUs of one kind say of a function is the same. */
enum reel_status cuda_function_find(const struct cuda_gpu *gpu, struct cuda_function *function,
                                    struct cu_module *module, const char *name,
                                    struct reel_error *err) {
    EACH_GPU(gpu, one) {
        const int g = number_of(gpu, one);
        struct cuda_function own;
        const enum reel_status status =
            find_function(one, &own, handle_on(gpu, module, one), name, err);
        if (status != REEL_OK) return status;
        if (g == 0) *function = own;
        function->on[g] = own.handle;
    }
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
    EACH_GPU(gpu, one)
    TRY(one, function->name, err, function_set, function->on[number_of(gpu, one)],
        CU_FUNCTION_MAX_DYNAMIC_SHARED, shared_bytes);
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

static int launch_overlapping(const struct cuda_gpu *gpu, const struct cuda_launch *launch,
                              struct cu_function *function, struct cu_stream *stream,
                              void **arguments) {
    struct cu_launch_attribute attribute = { .id = CU_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                             .value.allowed = 1 };
    const struct cu_launch_config config = { .grid_x = (unsigned)launch->blocks,
                                             .grid_y = 1,
                                             .grid_z = 1,
                                             .block_x = (unsigned)launch->threads,
                                             .block_y = 1,
                                             .block_z = 1,
                                             .shared_bytes = (unsigned)launch->shared_bytes,
                                             .stream = stream,
                                             .attributes = &attribute,
                                             .n_attributes = 1 };
    int error;
    CALL(error, gpu, launch_ex, &config, function, arguments, NULL);
    return error;
}

/* On one GPU. */
static int launch_on(const struct cuda_gpu *gpu, const struct cuda_launch *launch,
                     struct cu_function *function, struct cu_stream *stream, void **arguments) {
    const unsigned blocks = (unsigned)launch->blocks, threads = (unsigned)launch->threads;
    const unsigned shared = (unsigned)launch->shared_bytes;
    int error;
    if (launch->cooperative)
        CALL(error, gpu, launch_cooperative, function, blocks, 1, 1, threads, 1, 1, shared, stream,
             arguments);
    else if (launch->overlaps && gpu->driver->call.launch_ex)
        error = launch_overlapping(gpu, launch, function, stream, arguments);
    else
        CALL(error, gpu, launch, function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments,
             NULL);
    return error;
}

static int launch_on_all(const struct cuda_gpu *gpu, const struct cuda_launch *launch) {
    const struct cuda_function *f = launch->function;
    int error = 0;
    EACH_GPU(gpu, one) {
        const int g = number_of(gpu, one);
        void **arguments = launch->arguments;
        if (g > 0 && !launch->arguments_of) break;
        if (gpu->n > 1 && launch->arguments_of) arguments = launch->arguments_of(launch->user, g);
        if (error == 0)
            error =
                launch_on(one, launch, f->on[g], handle_on(gpu, launch->stream, one), arguments);
    }
    return error;
}

enum reel_status cuda_launch(const struct cuda_gpu *gpu, const struct cuda_launch *launch,
                             struct reel_error *err) {
    const struct cuda_function *f = launch->function;
    const bool several = gpu->n > 1 && launch->arguments_of;
    char what[128];
    if (several) pthread_mutex_lock(&one_order);
    const int error = launch_on_all(gpu, launch);
    if (several) pthread_mutex_unlock(&one_order);
    if (error == 0) return REEL_OK;
    snprintf(what, sizeof what, "kernel %s (%d blocks of %d threads, %d bytes of shared memory)",
             f->name, launch->blocks, launch->threads, launch->shared_bytes);
    return driver_fail(gpu->driver, error,
                       launch->cooperative ? cu_names.launch_cooperative : cu_names.launch, what,
                       err);
}
