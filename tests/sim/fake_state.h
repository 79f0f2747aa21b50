/* What the fake driver's files share. */
#ifndef REEL_TESTS_FAKE_STATE_H
#define REEL_TESTS_FAKE_STATE_H

#include "fake_cuda.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_ALREADY_MAPPED = 208,
    CU_NO_BINARY = 209,
    CU_ALREADY_REGISTERED = 712,
    CU_NOT_REGISTERED = 713,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_OUT_OF_RESOURCES = 701,
    CU_LAUNCH_TIMEOUT = 702,
    CU_LAUNCH_FAILED = 719,
    CU_TOO_LARGE = 720,
    CU_NOT_SUPPORTED = 801,
    CU_UNKNOWN = 999
};

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct fake_context *CUcontext;
typedef struct fake_stream *CUstream;
typedef struct fake_event *CUevent;
typedef struct fake_module *CUmodule;
typedef struct fake_function *CUfunction;

/* fake_device.c */
extern struct fake_cuda fake;
/* Counts a call; what it returns when it is to fail or the context is broken. */
CUresult fake_enter(const char *name, bool needs_context);
#define ENTER(needs_context)                                                                       \
    do {                                                                                           \
        CUresult entered = fake_enter(__func__, needs_context);                                    \
        if (entered != CU_OK) return entered;                                                      \
    } while (0)
/* What broke the context, CU_OK: nothing. */
CUresult fake_status(void);
void fake_broken(CUresult status);
void fake_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern pthread_mutex_t fake_lock; /* of counters and tables */

/* The device of the calling thread's context; whether its kernels reach another one's memory. */
int fake_current_gpu(void);
bool fake_reaches(int gpu, int other);
/* What was allocated counts no more: its context is gone. */
void fake_forget_memory(void);

/* fake_module.c: those that a context takes along when it ends; still counted as leaked */
void fake_close_modules(void);

/* fake_memory.c */
struct sim_range fake_range(uintptr_t p);

/* fake_stream.c: work in order, on a thread of the stream */
/* Waits until a stream waits for an event, but at most 300 ms. */
void fake_be_late(void);
struct fake_work {
    void (*run)(struct fake_work *work);
    void (*drop)(struct fake_work *work); /* frees it */
    struct fake_work *next;
};
CUresult fake_submit(CUstream stream, struct fake_work *work);
/* A fill is queued in the current GPU's stream. A launch on several GPUs, whose kernels store into
 * each other's memory, must begin when the fills that the calling thread queued before it are over
 * on all: false, told in the report, when the current GPU's part of it does not wait for those of
 * another. */
void fake_note_fill(CUstream stream);
bool fake_fills_over(void);
void fake_wait_all(void);      /* everything */
void fake_wait_blocking(void); /* what the default stream waits for */

#endif
