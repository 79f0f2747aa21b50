/* What a failing call of the driver means, in words. */
#ifndef REEL_CUDA_DRIVER_ERROR_H
#define REEL_CUDA_DRIVER_ERROR_H

#include "cuda/driver/driver.h"

/* The exported name of every call, by its member. */
#define CUDA_NAME_MEMBER(name, symbol, parameters) const char *name;
struct cu_names {
    CU_CALLS(CUDA_NAME_MEMBER)
};
#undef CUDA_NAME_MEMBER
extern const struct cu_names cu_names;

/* "CALL for WHAT: CUDA_ERROR_X (text); what to do". `what` may be NULL. REEL_E_MEMORY for
 * exhausted memory, else REEL_E_DEVICE. */
enum reel_status driver_fail(const struct cuda_driver *driver, int error, const char *call,
                             const char *what, struct reel_error *err);

#endif
