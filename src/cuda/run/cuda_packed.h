/* Packed texts: many whole texts in one pass through the layers, each blind to the others. */
#ifndef REEL_CUDA_CUDA_PACKED_H
#define REEL_CUDA_CUDA_PACKED_H

#include "cuda/driver/driver.h"
#include "cuda/run/cuda_kernels.h"

#include <pthread.h>

struct backend;
struct backend_embed;
struct backend_options;
struct backend_state;
struct packed_buffers;

/* The kernels of packed.cu. */
enum { PACKED_ROPE, PACKED_ATTENTION, PACKED_VECTORS, CUDA_PACKED_KERNELS };

/* The program, which is compiled when the first texts come: most models are never asked for that.
 */
struct cuda_packed {
    pthread_mutex_t mutex; /* guards what follows */
    bool mutex_made;
    struct cu_module *module; /* NULL: not there yet */
    struct cuda_function kernels[CUDA_PACKED_KERNELS];
};

/* Whether the kernels of prompts read this model's texts; a state that is recurrent would have to
 * begin anew at each text. */
bool cuda_packs(const struct backend *b);
struct cuda_kernel_shape cuda_packed_kernel(const struct backend *b, int kernel);
enum reel_status cuda_packed_open(struct backend *b, struct reel_error *err);
/* The program, while the driver may still be called; and the rest. */
void cuda_packed_unload(struct backend *b);
void cuda_packed_close(struct backend *b);
/* As backend_ops have it. Its first call on a session takes GPU_PACKED and GPU_PACKED_HOST, its
 * first call on a model compiles. */
enum reel_status cuda_embed(struct backend_state *s, const struct backend_embed *embed,
                            struct reel_error *err);
void cuda_packed_buffers_release(struct packed_buffers *buffers, const struct backend *b);

#endif
