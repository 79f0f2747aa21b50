/* The CUDA driver, opened at run time, and one GPU behind it.
 *
 * Each call below makes the GPU's primary context current for its own duration and puts back what
 * was current before, so that any thread may call, also inside a program that uses CUDA itself.
 * Failures name the driver's call, its error and what can be done; they are REEL_E_DEVICE unless
 * said otherwise. After an illegal address and its like every later call fails too.
 *
 * A driver may be opened any number of times in one process. Nothing here is global, but for the
 * order in which launches on several GPUs are queued.
 *
 * This room, src/cuda/driver, opens NVIDIA's libraries: the driver, its monitor (nvml.h) and its
 * compiler (nvrtc.h). It includes nothing of the other rooms of src/cuda; of plan it takes struct
 * gpu_limits. */
#ifndef REEL_CUDA_DRIVER_H
#define REEL_CUDA_DRIVER_H

#include "base/error.h"
#include "cuda/driver/cuda_calls.h"
#include "cuda/driver/twins.h"

struct cuda_driver {
    void *library;
    struct cu_calls call; /* all set */
    int version;          /* CUDA version it supports: 13000 is 13.0 */
    int n_gpus;
};

/* Opens libcuda.so.1 and starts it. `folder` is the only place looked in, or NULL: wherever the
 * system's loader looks. No driver, no GPU and a driver older than CUDA 11.2 are
 * REEL_E_UNSUPPORTED, each with what to do. */
enum reel_status cuda_driver_open(struct cuda_driver *driver, const char *folder,
                                  struct reel_error *err);
/* Accepts a zeroed or closed one. */
void cuda_driver_close(struct cuda_driver *driver);

enum { CUDA_UUID = 48 };

/* What can be asked of a GPU without a context. */
struct cuda_gpu_facts {
    char name[64];
    char uuid[CUDA_UUID]; /* "GPU-01234567-89ab-...": 40 characters */
    int compute;          /* 90 for 9.0 */
    int n_sms;
    int shared_bytes; /* a block may have, opt-in */
    int registers;    /* of a SM */
    int max_threads;  /* of a block */
    int compute_mode; /* CU_DEVICE_COMPUTE_MODE */
    bool cooperative;
    bool read_only_register; /* host memory without write permission can be registered */
    uint64_t memory_bytes;
};
enum reel_status cuda_gpu_facts(struct cuda_gpu_facts *facts, const struct cuda_driver *driver,
                                int index, struct reel_error *err);

/* Whether GPU `index` reaches the memory of GPU `other`, with atomics: what sharing a model takes.
 */
enum reel_status cuda_gpus_linked(bool *linked, const struct cuda_driver *driver, int index,
                                  int other, struct reel_error *err);

/* Why reel cannot use such a GPU, with REEL_E_UNSUPPORTED, or REEL_OK. */
enum reel_status cuda_gpu_check(const struct cuda_gpu_facts *facts, int index,
                                struct reel_error *err);

/* One GPU, or several that share a model. Of several, each call below does its work on all of them,
 * and says what is different. What calls give back, addresses and handles, is the first GPU's; the
 * others' are known to `twins`. */
struct cuda_gpu {
    const struct cuda_driver *driver; /* borrowed */
    int index;                        /* N of "gpu:N" */
    int device;                       /* the driver's handle */
    struct cu_context *context;
    struct cuda_gpu_facts facts;
    int n;                   /* GPUs, of which this is the first */
    struct cuda_gpu *others; /* [n - 1], each alone; NULL: none */
    struct cuda_twins *twins;
    struct cu_event *met; /* with others, each has one: cuda_meet */
};

/* Retains the primary context of GPU `index`. A GPU below sm_75 is REEL_E_UNSUPPORTED, an index
 * there is none for REEL_E_ARGUMENT. */
enum reel_status cuda_gpu_open(struct cuda_gpu *gpu, const struct cuda_driver *driver, int index,
                               struct reel_error *err);
/* The same of n GPUs, each once. They are of one kind and reach each other's memory, atomics
 * included, as GPUs with NVLink do; REEL_E_UNSUPPORTED says which do not. */
enum reel_status cuda_gpus_open(struct cuda_gpu *gpu, const struct cuda_driver *driver,
                                const int *indices, int n, struct reel_error *err);
/* What an address, or a place behind it, is on GPU g of several; 0: the first. */
cu_address cuda_on(const struct cuda_gpu *gpu, cu_address address, int g);
/* Accepts a zeroed or closed one. Everything made with it must be gone. */
void cuda_gpu_close(struct cuda_gpu *gpu);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Of several GPUs, what is free on the one with the least. */
enum reel_status cuda_memory(const struct cuda_gpu *gpu, uint64_t *n_free, uint64_t *n_total,
                             struct reel_error *err);

/* Device memory for `what`; too little is REEL_E_MEMORY with what was wanted and what is free. */
enum reel_status cuda_alloc(const struct cuda_gpu *gpu, cu_address *address, size_t n_bytes,
                            const char *what, struct reel_error *err);
void cuda_free(const struct cuda_gpu *gpu, cu_address address); /* 0: nothing */

/* Mapped, portable host memory: the same bytes at *host and, for kernels, at *address. */
enum reel_status cuda_host_alloc(const struct cuda_gpu *gpu, void **host, cu_address *address,
                                 size_t n_bytes, const char *what, struct reel_error *err);
void cuda_host_free(const struct cuda_gpu *gpu, void *host); /* NULL: nothing */

/* Pins memory that exists, a multiple of the page size, so that copies from it run at the bus's
 * speed. Optional by nature: a refusal (REEL_E_UNSUPPORTED) leaves slow copies. */
enum reel_status cuda_host_register(const struct cuda_gpu *gpu, const void *host, size_t n_bytes,
                                    bool read_only, struct reel_error *err);
void cuda_host_unregister(const struct cuda_gpu *gpu, const void *host);

/* With a stream these return at once (host memory must then stay until the stream got there, and
 * overlaps only when it is pinned); with NULL they are over when they return. */
enum reel_status cuda_fill(const struct cuda_gpu *gpu, cu_address to, unsigned char value, size_t n,
                           struct cu_stream *stream, struct reel_error *err);
enum reel_status cuda_upload(const struct cuda_gpu *gpu, cu_address to, const void *from, size_t n,
                             struct cu_stream *stream, struct reel_error *err);
/* From the first GPU, or from GPU g. Without a stream what the others still do is waited for: they
 * may be writing there. */
enum reel_status cuda_download(const struct cuda_gpu *gpu, void *to, cu_address from, size_t n,
                               struct cu_stream *stream, struct reel_error *err);
enum reel_status cuda_download_of(const struct cuda_gpu *gpu, int g, void *to, cu_address from,
                                  size_t n, struct reel_error *err);
/* To GPU g alone, from the host's memory. */
enum reel_status cuda_upload_of(const struct cuda_gpu *gpu, int g, cu_address to, const void *from,
                                size_t n, struct reel_error *err);
enum reel_status cuda_copy(const struct cuda_gpu *gpu, cu_address to, cu_address from, size_t n,
                           struct cu_stream *stream, struct reel_error *err);

/* Puts a copy into the context's default stream and does not wait: what comes after it there finds
 * it done. */
enum reel_status cuda_queue_copy(const struct cuda_gpu *gpu, cu_address to, cu_address from,
                                 size_t n, struct reel_error *err);
/* The same: n bytes of `value`. Kernels of several GPUs store into each other's memory: so the fill
 * begins when what was queued before is over on all, and what is queued behind it begins when all
 * are filled. */
enum reel_status cuda_queue_fill(const struct cuda_gpu *gpu, cu_address to, unsigned char value,
                                 size_t n, struct reel_error *err);
/* The same from pinned memory of the host, which stays as it is until then; to all GPUs, or to GPU
 * g alone. */
enum reel_status cuda_queue_upload(const struct cuda_gpu *gpu, cu_address to, const void *from,
                                   size_t n, struct reel_error *err);
enum reel_status cuda_queue_upload_of(const struct cuda_gpu *gpu, int g, cu_address to,
                                      const void *from, size_t n, struct reel_error *err);

/* ---- streams and events ---------------------------------------------------------------------- */

/* A stream that waits for no other. */
enum reel_status cuda_stream_open(const struct cuda_gpu *gpu, struct cu_stream **stream,
                                  struct reel_error *err);
void cuda_stream_close(const struct cuda_gpu *gpu, struct cu_stream *stream); /* NULL: nothing */

/* Waits until the stream is empty; `what` names the work for messages. */
enum reel_status cuda_wait(const struct cuda_gpu *gpu, struct cu_stream *stream, const char *what,
                           struct reel_error *err);
/* Looks without waiting: *done. */
enum reel_status cuda_poll(const struct cuda_gpu *gpu, struct cu_stream *stream, bool *done,
                           const char *what, struct reel_error *err);

/* Events are the first GPU's. */
enum reel_status cuda_event_open(const struct cuda_gpu *gpu, struct cu_event **event,
                                 struct reel_error *err);
void cuda_event_close(const struct cuda_gpu *gpu, struct cu_event *event); /* NULL: nothing */
enum reel_status cuda_event_record(const struct cuda_gpu *gpu, struct cu_event *event,
                                   struct cu_stream *stream, struct reel_error *err);
enum reel_status cuda_event_wait(const struct cuda_gpu *gpu, struct cu_event *event,
                                 struct reel_error *err);
enum reel_status cuda_event_ms(const struct cuda_gpu *gpu, struct cu_event *from,
                               struct cu_event *to, float *ms, struct reel_error *err);

/* Of several GPUs: what is queued in the default stream of any of them from here on begins when
 * what was queued before is over on all. */
enum reel_status cuda_meet(const struct cuda_gpu *gpu, struct reel_error *err);

/* ---- kernels --------------------------------------------------------------------------------- */

/* image: a cubin, or PTX text with its terminating zero. */
enum reel_status cuda_module_load(const struct cuda_gpu *gpu, struct cu_module **module,
                                  const void *image, struct reel_error *err);
void cuda_module_unload(const struct cuda_gpu *gpu, struct cu_module *module); /* NULL: nothing */

struct cuda_function {
    struct cu_function *handle;
    struct cu_function *on[CUDA_MOST_GPUS]; /* on each GPU: on[0] is `handle` */
    const char *name;                       /* the caller's, borrowed */
    int registers;                          /* of a thread */
    int local_bytes;                        /* of a thread: above 0 registers are spilled */
    int shared_bytes;                       /* static */
    int max_threads;
};
enum reel_status cuda_function_find(const struct cuda_gpu *gpu, struct cuda_function *function,
                                    struct cu_module *module, const char *name,
                                    struct reel_error *err);

/* Allows this much dynamic shared memory. */
enum reel_status cuda_function_set_shared(const struct cuda_gpu *gpu,
                                          const struct cuda_function *function, int shared_bytes,
                                          struct reel_error *err);

/* Blocks of this function that fit on one SM at once. */
enum reel_status cuda_occupancy(const struct cuda_gpu *gpu, const struct cuda_function *function,
                                int threads, int shared_bytes, int *n_blocks,
                                struct reel_error *err);

struct cuda_launch {
    const struct cuda_function *function;
    int blocks, threads;
    int shared_bytes; /* dynamic */
    bool cooperative; /* all blocks resident at once, or refused */
    bool overlaps;    /* blocks may start before the launch before is over: it waits by itself */
    struct cu_stream *stream;
    void **arguments; /* addresses of the kernel's parameters */
    /* Several GPUs: makes those of GPU g, which are used before it is called again; NULL: the first
     * GPU alone is launched on. */
    void **(*arguments_of)(void *user, int g);
    void *user;
};
enum reel_status cuda_launch(const struct cuda_gpu *gpu, const struct cuda_launch *launch,
                             struct reel_error *err);

/* An address as the pointer that kernels take. */
static inline void *cuda_pointer(cu_address address) { return (void *)(uintptr_t)address; }

#endif
