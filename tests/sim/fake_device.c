/* Start-up, devices, contexts, errors, and the controls. */
#include "fake_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct fake_context {
    int device;
};

struct fake_cuda fake;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static bool initialized;
static CUresult sticky;
static struct fake_context primary[SIM_MOST_GPUS];
static _Thread_local CUcontext current;
static bool peers[SIM_MOST_GPUS][SIM_MOST_GPUS]; /* [of the context][of the memory] */

int fake_current_gpu(void) { return current ? current->device : 0; }
bool fake_reaches(int gpu, int other) { return gpu == other || peers[gpu][other]; }

EXPORT fake_cuda_control_fn fake_cuda_control;
EXPORT fake_cuda_reset_fn fake_cuda_reset;

void fake_cuda_reset(void) {
    struct fake_gpu gpu = { .name = "Fake GPU",
                            .n_devices = 1,
                            .compute = 90,
                            .n_sms = 8,
                            .shared_bytes = 232448,
                            .registers = 65536,
                            .max_threads = 1024,
                            .memory_bytes = (size_t)1 << 30,
                            .driver_version = 13000 };
    struct fake_live live = fake.live;
    memset(&fake, 0, sizeof fake);
    fake.gpu = gpu;
    fake.live = live;
    fake.settings = (struct sim_settings){
        .seed = 1, .missing_block = -1, .idle_limit = 5000, .host_wait_ms = 20000
    };
    sticky = CU_OK;
}

__attribute__((constructor)) static void first_reset(void) { fake_cuda_reset(); }

struct fake_cuda *fake_cuda_control(void) {
    return &fake;
}

void fake_report(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(fake.report, sizeof fake.report, format, args);
    va_end(args);
}

void fake_broken(CUresult status) {
    if (sticky == CU_OK) sticky = status;
}

CUresult fake_status(void) { return sticky; }

static bool fails(const char *name) {
    if (fake.fail_call <= 0 || (fake.only && strcmp(fake.only, name) != 0)) return false;
    if (--fake.fail_call > 0) return false;
    if (fake.fail_onwards) fake.fail_call = 1;
    if (!fake.failed_call) fake.failed_call = name;
    return true;
}

CUresult fake_enter(const char *name, bool needs_context) {
    pthread_mutex_lock(&fake_lock);
    fake.n_calls++;
    CUresult status = CU_OK;
    if (fails(name))
        status = fake.fail_with;
    else if (!initialized && strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0)
        status = CU_NOT_INITIALIZED;
    else if (needs_context && !current)
        status = CU_INVALID_CONTEXT;
    else if (needs_context)
        status = sticky;
    pthread_mutex_unlock(&fake_lock);
    return status;
}

/* ---- errors ---- */

static const struct {
    CUresult status;
    const char *name, *text;
} errors[] = {
    { CU_OK, "CUDA_SUCCESS", "no error" },
    { CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
    { CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CU_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU",
      "no kernel image is available for execution on the device" },
    { CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
    { CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
    { CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
      "an illegal memory access was encountered" },
    { CU_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
      "too many resources requested for launch" },
    { CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated" },
    { CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
    { CU_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
      "too many blocks in cooperative launch" },
    { CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
    { CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

EXPORT CUresult cuGetErrorName(CUresult error, const char **text);
EXPORT CUresult cuGetErrorString(CUresult error, const char **text);

CUresult cuGetErrorName(CUresult error, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == error) return *text = errors[i].name, CU_OK;
    return *text = NULL, CU_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == error) return *text = errors[i].text, CU_OK;
    return *text = NULL, CU_INVALID_VALUE;
}

/* ---- devices ---- */

EXPORT CUresult cuInit(unsigned flags);
EXPORT CUresult cuDriverGetVersion(int *version);
EXPORT CUresult cuDeviceGetCount(int *n);
EXPORT CUresult cuDeviceGet(CUdevice *device, int n);
EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device);
EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
EXPORT CUresult cuDeviceGetUuid(unsigned char uuid[16], CUdevice device);
EXPORT CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device);
EXPORT CUresult cuDeviceGetPCIBusId(char *text, int bytes, CUdevice device);

CUresult cuInit(unsigned flags) {
    ENTER(false);
    if (flags) return CU_INVALID_VALUE;
    if (!fake.gpu.n_devices) return CU_NO_DEVICE;
    initialized = true;
    return CU_OK;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(false);
    *version = fake.gpu.driver_version;
    return CU_OK;
}

CUresult cuDeviceGetCount(int *n) {
    ENTER(false);
    *n = fake.gpu.n_devices;
    return CU_OK;
}

CUresult cuDeviceGet(CUdevice *device, int n) {
    ENTER(false);
    if (n < 0 || n >= fake.gpu.n_devices) return CU_INVALID_DEVICE;
    *device = n;
    return CU_OK;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    ENTER(false);
    (void)device;
    snprintf(name, (size_t)bytes, "%s", fake.gpu.name);
    return CU_OK;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(false);
    (void)device;
    *bytes = fake.gpu.memory_bytes;
    return CU_OK;
}

CUresult cuDeviceGetUuid(unsigned char uuid[16], CUdevice device) {
    ENTER(false);
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(i * 16 + device);
    return CU_OK;
}

CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device) {
    return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceGetPCIBusId(char *text, int bytes, CUdevice device) {
    ENTER(false);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return CU_OK;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER(false);
    (void)device;
    switch (attribute) {
    case 1:
        *value = fake.gpu.max_threads;
        break;
    case 2:
        *value = fake.gpu.max_threads;
        break; /* block x */
    case 5:
        *value = 0x7fffffff;
        break; /* grid x */
    case 8:
        *value = 49152;
        break; /* shared memory without opting in */
    case 10:
        *value = 32;
        break; /* warp */
    case 12:   /* registers of a block, of an SM */
    case 82:
        *value = fake.gpu.registers;
        break;
    case 13:
        *value = 1980000;
        break; /* kHz */
    case 16:
        *value = fake.gpu.n_sms;
        break;
    case 19:
        *value = 1;
        break; /* maps host memory */
    case 31:
        *value = 1;
        break; /* concurrent kernels */
    case 33:
        *value = 1;
        break; /* PCI bus */
    case 36:
        *value = 3201000;
        break; /* memory, kHz */
    case 37:
        *value = 6144;
        break; /* memory bus, bits */
    case 38:
        *value = 60 << 20;
        break; /* L2 */
    case 39:
        *value = 2048;
        break; /* threads of an SM */
    case 40:
        *value = 3;
        break; /* copy engines */
    case 41:
        *value = 1;
        break; /* unified addresses */
    case 75:
        *value = fake.gpu.compute / 10;
        break;
    case 76:
        *value = fake.gpu.compute % 10;
        break;
    case 81:
        *value = fake.gpu.shared_bytes + 1024;
        break; /* shared memory of an SM */
    case 91:
        *value = 1;
        break; /* registered memory: same pointer */
    case 95:
        *value = 1;
        break; /* cooperative launch */
    case 97:
        *value = fake.gpu.shared_bytes;
        break;
    case 99:
        *value = 1;
        break; /* registers host memory */
    case 106:
        *value = 32;
        break; /* blocks of an SM */
    case 111:
        *value = 1024;
        break; /* shared memory the driver keeps of a block */
    default:
        *value = 0;
    }
    return CU_OK;
}

/* ---- contexts: the primary one only ---- */

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
EXPORT CUresult cuCtxSetCurrent(CUcontext context);
EXPORT CUresult cuCtxGetCurrent(CUcontext *context);
EXPORT CUresult cuCtxGetDevice(CUdevice *device);
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context);
EXPORT CUresult cuCtxSynchronize(void);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(false);
    if (device < 0 || device >= fake.gpu.n_devices) return CU_INVALID_DEVICE;
    primary[device].device = device;
    *context = &primary[device];
    fake.live.contexts++;
    return CU_OK;
}

/* Releases even when told to fail, so that a test which fails every call can go on. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    CUresult status = fake_enter(__func__, false);
    if (fake.live.contexts <= 0) return CU_INVALID_CONTEXT;
    fake_wait_all();
    if (--fake.live.contexts == 0) {
        fake.leaked = fake.live;
        fake_close_modules();
        sticky = CU_OK;
        current = NULL;
        memset(peers, 0, sizeof peers);
        fake_forget_memory();
    }
    return status;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER(false);
    (void)device;
    sticky = CU_OK;
    return CU_OK;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER(false);
    (void)device, (void)flags;
    return CU_OK;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(false);
    current = context;
    return CU_OK;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER(false);
    *context = current;
    return CU_OK;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(true);
    *device = fake_current_gpu();
    return CU_OK;
}

/* ---- several devices: all of them are linked, but for fake.gpu.unlinked ---- */

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other);
EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice other);
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags);

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
    ENTER(false);
    if (device == other || device >= fake.gpu.n_devices || other >= fake.gpu.n_devices)
        return CU_INVALID_DEVICE;
    *can = !fake.gpu.unlinked;
    return CU_OK;
}

CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice other) {
    ENTER(false);
    (void)device, (void)other;
    *value = attribute == 3 ? !fake.gpu.slow_links : 1;
    return CU_OK;
}

CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags) {
    ENTER(true);
    enum { PEER_ACCESS_ALREADY_ENABLED = 704 };
    if (flags || other == current) return CU_INVALID_DEVICE;
    bool *p = &peers[current->device][other->device];
    if (*p) return PEER_ACCESS_ALREADY_ENABLED;
    return *p = true, CU_OK;
}

static _Thread_local CUcontext pushed[16];
static _Thread_local int n_pushed;

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(false);
    if (n_pushed == 16) return CU_INVALID_VALUE;
    pushed[n_pushed++] = current;
    current = context;
    return CU_OK;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    CUresult status = fake_enter(__func__, false);
    if (context) *context = current;
    if (!n_pushed) return CU_INVALID_CONTEXT;
    current = pushed[--n_pushed];
    return status;
}

CUresult cuCtxSynchronize(void) {
    ENTER(true);
    fake_wait_all();
    return sticky;
}
