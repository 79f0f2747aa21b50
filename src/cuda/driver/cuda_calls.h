/* The calls of libcuda.so.1 and libnvrtc that reel uses, declared by ourselves: no CUDA header is
 * needed to build. One line each: the member, the exported symbol (with its version), the
 * parameters. Every call returns 0 or an error number. */
#ifndef REEL_CUDA_CUDA_CALLS_H
#define REEL_CUDA_CUDA_CALLS_H

#include <stddef.h>

struct cu_context;
struct cu_stream;
struct cu_event;
struct cu_module;
struct cu_function;
struct nvrtc_program;

/* An address in device memory, CUdeviceptr. */
typedef unsigned long long cu_address;

struct cu_uuid {
    unsigned char bytes[16];
};

#define CU_CALLS(X)                                                                                \
    X(init, cuInit, (unsigned flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int *version))                                          \
    X(error_name, cuGetErrorName, (int error, const char **text))                                  \
    X(error_text, cuGetErrorString, (int error, const char **text))                                \
    X(device_count, cuDeviceGetCount, (int *n))                                                    \
    X(device_get, cuDeviceGet, (int *device, int index))                                           \
    X(device_name, cuDeviceGetName, (char *name, int size, int device))                            \
    X(device_uuid, cuDeviceGetUuid, (struct cu_uuid * uuid, int device))                           \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * n_bytes, int device))                          \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))             \
    X(can_reach, cuDeviceCanAccessPeer, (int *can, int device, int other))                         \
    X(link_attribute, cuDeviceGetP2PAttribute, (int *value, int attribute, int device, int other)) \
    X(peer_enable, cuCtxEnablePeerAccess, (struct cu_context * other, unsigned flags))             \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct cu_context * *context, int device))        \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    X(context_push, cuCtxPushCurrent_v2, (struct cu_context * context))                            \
    X(context_pop, cuCtxPopCurrent_v2, (struct cu_context * *context))                             \
    X(memory_info, cuMemGetInfo_v2, (size_t * n_free, size_t * n_total))                           \
    X(memory_alloc, cuMemAlloc_v2, (cu_address * address, size_t n_bytes))                         \
    X(memory_free, cuMemFree_v2, (cu_address address))                                             \
    X(fill, cuMemsetD8Async,                                                                       \
      (cu_address to, unsigned char value, size_t n, struct cu_stream *stream))                    \
    X(upload, cuMemcpyHtoD_v2, (cu_address to, const void *from, size_t n))                        \
    X(upload_async, cuMemcpyHtoDAsync_v2,                                                          \
      (cu_address to, const void *from, size_t n, struct cu_stream *stream))                       \
    X(download, cuMemcpyDtoH_v2, (void *to, cu_address from, size_t n))                            \
    X(download_async, cuMemcpyDtoHAsync_v2,                                                        \
      (void *to, cu_address from, size_t n, struct cu_stream *stream))                             \
    X(copy_async, cuMemcpyDtoDAsync_v2,                                                            \
      (cu_address to, cu_address from, size_t n, struct cu_stream * stream))                       \
    X(host_alloc, cuMemHostAlloc, (void **host, size_t n_bytes, unsigned flags))                   \
    X(host_free, cuMemFreeHost, (void *host))                                                      \
    X(host_address, cuMemHostGetDevicePointer_v2,                                                  \
      (cu_address * address, void *host, unsigned flags))                                          \
    X(host_register, cuMemHostRegister_v2, (void *host, size_t n_bytes, unsigned flags))           \
    X(host_unregister, cuMemHostUnregister, (void *host))                                          \
    X(stream_create, cuStreamCreate, (struct cu_stream * *stream, unsigned flags))                 \
    X(stream_destroy, cuStreamDestroy_v2, (struct cu_stream * stream))                             \
    X(stream_synchronize, cuStreamSynchronize, (struct cu_stream * stream))                        \
    X(stream_query, cuStreamQuery, (struct cu_stream * stream))                                    \
    X(event_create, cuEventCreate, (struct cu_event * *event, unsigned flags))                     \
    X(event_destroy, cuEventDestroy_v2, (struct cu_event * event))                                 \
    X(event_record, cuEventRecord, (struct cu_event * event, struct cu_stream * stream))           \
    X(event_synchronize, cuEventSynchronize, (struct cu_event * event))                            \
    X(event_elapsed, cuEventElapsedTime, (float *ms, struct cu_event *from, struct cu_event *to))  \
    X(stream_wait_event, cuStreamWaitEvent,                                                        \
      (struct cu_stream * stream, struct cu_event * event, unsigned flags))                        \
    X(module_load, cuModuleLoadDataEx,                                                             \
      (struct cu_module * *module, const void *image, unsigned n_options, int *options,            \
       void **values))                                                                             \
    X(module_unload, cuModuleUnload, (struct cu_module * module))                                  \
    X(module_function, cuModuleGetFunction,                                                        \
      (struct cu_function * *function, struct cu_module * module, const char *name))               \
    X(function_attribute, cuFuncGetAttribute,                                                      \
      (int *value, int attribute, struct cu_function *function))                                   \
    X(function_set, cuFuncSetAttribute, (struct cu_function * function, int attribute, int value)) \
    X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                      \
      (int *n_blocks, struct cu_function *function, int threads, size_t shared_bytes))             \
    X(launch, cuLaunchKernel,                                                                      \
      (struct cu_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       struct cu_stream *stream, void **parameters, void **extra))                                 \
    X(launch_cooperative, cuLaunchCooperativeKernel,                                               \
      (struct cu_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       struct cu_stream *stream, void **parameters))

/* Of CUDA 11.8; NULL in older drivers. */
#define CU_LATER_CALLS(X)                                                                          \
    X(launch_ex, cuLaunchKernelEx,                                                                 \
      (const struct cu_launch_config *config, struct cu_function *function, void **parameters,     \
       void **extra))

#define NVRTC_CALLS(X)                                                                             \
    X(version, nvrtcVersion, (int *major, int *minor))                                             \
    X(n_targets, nvrtcGetNumSupportedArchs, (int *n))                                              \
    X(targets, nvrtcGetSupportedArchs, (int *list))                                                \
    X(create, nvrtcCreateProgram,                                                                  \
      (struct nvrtc_program * *program, const char *text, const char *name, int n_headers,         \
       const char *const *headers, const char *const *header_names))                               \
    X(destroy, nvrtcDestroyProgram, (struct nvrtc_program * *program))                             \
    X(compile, nvrtcCompileProgram,                                                                \
      (struct nvrtc_program * program, int n_options, const char *const *options))                 \
    X(log_size, nvrtcGetProgramLogSize, (struct nvrtc_program * program, size_t * n_bytes))        \
    X(log, nvrtcGetProgramLog, (struct nvrtc_program * program, char *text))                       \
    X(cubin_size, nvrtcGetCUBINSize, (struct nvrtc_program * program, size_t * n_bytes))           \
    X(cubin, nvrtcGetCUBIN, (struct nvrtc_program * program, char *bytes))                         \
    X(ptx_size, nvrtcGetPTXSize, (struct nvrtc_program * program, size_t * n_bytes))               \
    X(ptx, nvrtcGetPTX, (struct nvrtc_program * program, char *text))

/* CUlaunchAttribute and CUlaunchConfig of the driver's interface. */
enum { CU_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6 };
struct cu_launch_attribute {
    int id, pad;
    union {
        int allowed;
        char bytes[64];
    } value;
};
struct cu_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    struct cu_stream *stream;
    struct cu_launch_attribute *attributes;
    unsigned n_attributes;
};

#define CUDA_CALL_MEMBER(name, symbol, parameters) int(*name) parameters;
struct cu_calls {
    CU_CALLS(CUDA_CALL_MEMBER)
    CU_LATER_CALLS(CUDA_CALL_MEMBER)
};
struct nvrtc_calls {
    NVRTC_CALLS(CUDA_CALL_MEMBER)
};
#undef CUDA_CALL_MEMBER

enum {
    CU_ERROR_INVALID_VALUE = 1,
    CU_ERROR_OUT_OF_MEMORY = 2,
    CU_ERROR_STUB_LIBRARY = 34,
    CU_ERROR_DEVICES_UNAVAILABLE = 46,
    CU_ERROR_NO_DEVICE = 100,
    CU_ERROR_INVALID_IMAGE = 200,
    CU_ERROR_NO_BINARY_FOR_GPU = 209,
    CU_ERROR_ECC_UNCORRECTABLE = 214,
    CU_ERROR_INVALID_PTX = 218,
    CU_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CU_ERROR_NOT_FOUND = 500,
    CU_ERROR_NOT_READY = 600,
    CU_ERROR_ILLEGAL_ADDRESS = 700,
    CU_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CU_ERROR_PEER_ACCESS_ALREADY = 704,
    CU_ERROR_LAUNCH_TIMEOUT = 702,
    CU_ERROR_ALREADY_REGISTERED = 712,
    CU_ERROR_LAUNCH_FAILED = 719,
    CU_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    CU_ERROR_NOT_PERMITTED = 800,
    CU_ERROR_NOT_SUPPORTED = 801,
    CU_ERROR_SYSTEM_NOT_READY = 802,
    CU_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CU_ERROR_UNKNOWN = 999
};

enum cu_device_attribute {
    CU_DEVICE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_SM_COUNT = 16,
    CU_DEVICE_COMPUTE_MODE = 20,
    CU_DEVICE_MAJOR = 75,
    CU_DEVICE_MINOR = 76,
    CU_DEVICE_REGISTERS_PER_SM = 82,
    CU_DEVICE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_SHARED_OPTIN = 97,
    CU_DEVICE_READ_ONLY_REGISTER = 113 /* maps without write permission can be registered */
};

enum { CU_MODE_PROHIBITED = 2 };

/* Of a link between two GPUs. */
enum { CU_LINK_NATIVE_ATOMICS = 3 };

enum cu_function_attribute {
    CU_FUNCTION_MAX_THREADS = 0,
    CU_FUNCTION_SHARED_BYTES = 1,
    CU_FUNCTION_LOCAL_BYTES = 3,
    CU_FUNCTION_REGISTERS = 4,
    CU_FUNCTION_MAX_DYNAMIC_SHARED = 8
};

enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_HOST_ALLOC_PORTABLE = 1,
    CU_HOST_ALLOC_DEVICEMAP = 2,
    CU_HOST_REGISTER_PORTABLE = 1,
    CU_HOST_REGISTER_READ_ONLY = 8,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
};

#endif
