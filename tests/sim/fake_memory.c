/* Device memory, pinned and registered host memory, copies. All are host memory; the tables know
 * what is whose, so that copies and kernels are kept inside. */
#include "fake_state.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 4096 };

enum range_kind { RANGE_DEVICE, RANGE_HOST, RANGE_REGISTERED };

struct range {
    struct sim_range at;
    enum range_kind kind;
    size_t bytes; /* asked for */
};

static struct range *ranges;
static int n_ranges, max_ranges;

static bool range_add(void *p, size_t bytes, enum range_kind kind) {
    pthread_mutex_lock(&fake_lock);
    if (n_ranges == max_ranges) {
        int more = max_ranges ? 2 * max_ranges : 64;
        struct range *grown = realloc(ranges, (size_t)more * sizeof *grown);
        if (grown) ranges = grown, max_ranges = more;
    }
    bool good = n_ranges < max_ranges;
    if (good) {
        const int gpu = kind == RANGE_DEVICE ? fake_current_gpu() : -1;
        struct sim_range at = { (uintptr_t)p, (uintptr_t)p + bytes, gpu };
        ranges[n_ranges++] = (struct range){ at, kind, bytes };
    }
    pthread_mutex_unlock(&fake_lock);
    return good;
}

static bool range_remove(void *p, enum range_kind kind, size_t *bytes) {
    bool found = false;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < n_ranges && !found; i++) {
        if (ranges[i].at.from != (uintptr_t)p || ranges[i].kind != kind) continue;
        *bytes = ranges[i].bytes;
        ranges[i] = ranges[--n_ranges];
        found = true;
    }
    pthread_mutex_unlock(&fake_lock);
    return found;
}

struct sim_range fake_range(uintptr_t p) {
    struct sim_range found = { 0, 0, -1 };
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < n_ranges; i++)
        if (p >= ranges[i].at.from && p < ranges[i].at.to) found = ranges[i].at;
    pthread_mutex_unlock(&fake_lock);
    return found;
}

static bool inside(CUdeviceptr p, size_t bytes, const char *call) {
    struct sim_range r = fake_range((uintptr_t)p);
    if (p >= r.from && bytes <= r.to - p) return true;
    fake_report("%s: %zu bytes at %#llx reach outside of every allocation", call, bytes, p);
    return false;
}

/* ---- allocations ---- */

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes);
EXPORT CUresult cuMemFree_v2(CUdeviceptr p);
EXPORT CUresult cuMemGetInfo_v2(size_t *n_free, size_t *total);
EXPORT CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags);
EXPORT CUresult cuMemAllocHost_v2(void **p, size_t bytes);
EXPORT CUresult cuMemFreeHost(void *p);
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *p, unsigned flags);
EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags);
EXPORT CUresult cuMemHostUnregister(void *p);

static size_t used_of[SIM_MOST_GPUS];

static size_t free_bytes(int gpu) {
    return fake.gpu.memory_bytes - fake.gpu.taken_bytes - used_of[gpu];
}

void fake_forget_memory(void) { memset(used_of, 0, sizeof used_of); }

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
    ENTER(true);
    if (!bytes) return CU_INVALID_VALUE;
    size_t *const used = &used_of[fake_current_gpu()];
    if (bytes > free_bytes(fake_current_gpu())) return CU_OUT_OF_MEMORY;
    size_t room = (bytes + 255) / 256 * 256 + GAP; /* or the next one begins where this one ends */
    void *memory = room < bytes ? NULL : aligned_alloc(256, room);
    if (!memory) return CU_OUT_OF_MEMORY;
    memset(memory, 0xff, room);
    if (!range_add(memory, bytes, RANGE_DEVICE)) {
        free(memory);
        return CU_OUT_OF_MEMORY;
    }
    fake.live.allocations++;
    *used += bytes;
    fake.live.bytes += bytes;
    if (fake.live.bytes > fake.most_bytes) fake.most_bytes = fake.live.bytes;
    *p = (CUdeviceptr)(uintptr_t)memory;
    return CU_OK;
}

/* Frees even when told to fail, as all calls that close: what a test looks for is a missing call.
 */
CUresult cuMemFree_v2(CUdeviceptr p) {
    CUresult status = fake_enter(__func__, true);
    size_t bytes;
    if (!p) return status;
    fake_wait_all();
    const int gpu = fake_range((uintptr_t)p).gpu;
    if (!range_remove((void *)(uintptr_t)p, RANGE_DEVICE, &bytes)) return CU_INVALID_VALUE;
    used_of[gpu] -= bytes;
    memset((void *)(uintptr_t)p, 0xff, bytes);
    free((void *)(uintptr_t)p);
    fake.live.allocations--;
    fake.live.bytes -= bytes;
    return status;
}

CUresult cuMemGetInfo_v2(size_t *n_free, size_t *total) {
    ENTER(true);
    *total = fake.gpu.memory_bytes;
    *n_free = free_bytes(fake_current_gpu());
    return CU_OK;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    ENTER(true);
    (void)flags;
    size_t room = (bytes + 4095) / 4096 * 4096;
    void *memory = bytes ? aligned_alloc(4096, room) : NULL;
    if (!bytes) return CU_INVALID_VALUE;
    if (!memory) return CU_OUT_OF_MEMORY;
    memset(memory, 0xff, room);
    if (!range_add(memory, bytes, RANGE_HOST)) {
        free(memory);
        return CU_OUT_OF_MEMORY;
    }
    fake.live.host_allocations++;
    fake.live.host_bytes += bytes;
    if (fake.live.host_bytes > fake.most_host_bytes) fake.most_host_bytes = fake.live.host_bytes;
    *p = memory;
    return CU_OK;
}

CUresult cuMemAllocHost_v2(void **p, size_t bytes) { return cuMemHostAlloc(p, bytes, 0); }

CUresult cuMemFreeHost(void *p) {
    CUresult status = fake_enter(__func__, true);
    size_t bytes;
    fake_wait_all();
    if (!range_remove(p, RANGE_HOST, &bytes)) return CU_INVALID_VALUE;
    free(p);
    fake.live.host_allocations--;
    fake.live.host_bytes -= bytes;
    return status;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *p, unsigned flags) {
    ENTER(true);
    if (flags || !fake_range((uintptr_t)p).to) return CU_INVALID_VALUE;
    *device = (CUdeviceptr)(uintptr_t)p;
    return CU_OK;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
    ENTER(true);
    (void)flags;
    if (!p || !bytes) return CU_INVALID_VALUE;
    if (fake_range((uintptr_t)p).to) return CU_ALREADY_REGISTERED;
    if (!range_add(p, bytes, RANGE_REGISTERED)) return CU_OUT_OF_MEMORY;
    fake.live.registrations++;
    return CU_OK;
}

CUresult cuMemHostUnregister(void *p) {
    CUresult status = fake_enter(__func__, true);
    size_t bytes;
    fake_wait_all();
    if (!range_remove(p, RANGE_REGISTERED, &bytes)) return CU_NOT_REGISTERED;
    fake.live.registrations--;
    return status;
}

/* ---- copies and fills ---- */

struct move {
    struct fake_work work;
    unsigned char *dst;
    const unsigned char *src; /* NULL: fill with value */
    size_t n;
    unsigned value;
    int width;
};

static void move_run(struct fake_work *work) {
    const struct move *m = (const struct move *)work;
    if (m->src) {
        memmove(m->dst, m->src, m->n);
        return;
    }
    if (m->width == 1) memset(m->dst, (int)m->value, m->n);
    for (size_t i = 0; i < m->n && m->width > 1; i++)
        memcpy(m->dst + i * (size_t)m->width, &m->value, (size_t)m->width);
}

static void move_drop(struct fake_work *work) { free(work); }

static CUresult move_now(struct move m) {
    fake_wait_blocking();
    move_run(&m.work);
    return fake_status();
}

/* Pageable memory is copied before an asynchronous copy from it returns; a copy to it is waited
 * for. */
static CUresult move_later(struct move m, CUstream stream) {
    struct move *queued = malloc(sizeof *queued);
    if (!queued) return CU_OUT_OF_MEMORY;
    *queued = m;
    queued->work.run = move_run, queued->work.drop = move_drop;
    return fake_submit(stream, &queued->work);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n);
EXPORT CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n);
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n);
EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n);
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream stream);
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream stream);
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream);
EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n);
EXPORT CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n);
EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t n);
EXPORT CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream);
EXPORT CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream);
EXPORT CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream stream);

static struct move copy_of(uintptr_t dst, uintptr_t src, size_t n) {
    return (struct move){ .dst = (unsigned char *)dst, .src = (const unsigned char *)src, .n = n };
}
static struct move fill_of(CUdeviceptr dst, unsigned value, size_t n, int width) {
    return (struct move){
        .dst = (unsigned char *)(uintptr_t)dst, .n = n, .value = value, .width = width
    };
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n) {
    ENTER(true);
    fake.n_host_copies++;
    if (!inside(dst, n, __func__)) return CU_INVALID_VALUE;
    return move_now(copy_of((uintptr_t)dst, (uintptr_t)src, n));
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n) {
    ENTER(true);
    fake.n_host_copies++;
    if (!inside(src, n, __func__)) return CU_INVALID_VALUE;
    return move_now(copy_of((uintptr_t)dst, (uintptr_t)src, n));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    ENTER(true);
    if (!inside(src, n, __func__) || !inside(dst, n, __func__)) return CU_INVALID_VALUE;
    return move_now(copy_of((uintptr_t)dst, (uintptr_t)src, n));
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    ENTER(true);
    return move_now(copy_of((uintptr_t)dst, (uintptr_t)src, n));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream stream) {
    ENTER(true);
    fake.n_host_copies++;
    if (!inside(dst, n, __func__)) return CU_INVALID_VALUE;
    CUresult status = move_later(copy_of((uintptr_t)dst, (uintptr_t)src, n), stream);
    if (status == CU_OK && !fake_range((uintptr_t)src).to) fake_wait_all();
    return status;
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream stream) {
    ENTER(true);
    fake.n_host_copies++;
    if (!inside(src, n, __func__)) return CU_INVALID_VALUE;
    CUresult status = move_later(copy_of((uintptr_t)dst, (uintptr_t)src, n), stream);
    if (status == CU_OK && !fake_range((uintptr_t)dst).to) fake_wait_all();
    return status;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    ENTER(true);
    if (!inside(src, n, __func__) || !inside(dst, n, __func__)) return CU_INVALID_VALUE;
    return move_later(copy_of((uintptr_t)dst, (uintptr_t)src, n), stream);
}

static CUresult fill(CUdeviceptr dst, unsigned value, size_t n, int width, const char *call) {
    if (dst % (unsigned)width || !inside(dst, n * (size_t)width, call)) return CU_INVALID_VALUE;
    return move_now(fill_of(dst, value, n, width));
}

static CUresult fill_later(CUdeviceptr dst, unsigned value, size_t n, int width, CUstream stream,
                           const char *call) {
    if (dst % (unsigned)width || !inside(dst, n * (size_t)width, call)) return CU_INVALID_VALUE;
    fake_note_fill(stream);
    return move_later(fill_of(dst, value, n, width), stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n) {
    ENTER(true);
    return fill(dst, value, n, 1, __func__);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n) {
    ENTER(true);
    return fill(dst, value, n, 2, __func__);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t n) {
    ENTER(true);
    return fill(dst, value, n, 4, __func__);
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream) {
    ENTER(true);
    return fill_later(dst, value, n, 1, stream, __func__);
}
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream) {
    ENTER(true);
    return fill_later(dst, value, n, 2, stream, __func__);
}
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream stream) {
    ENTER(true);
    return fill_later(dst, value, n, 4, stream, __func__);
}
