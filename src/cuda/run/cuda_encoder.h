/* The audio tower of a speech model: its weights as tiles, and the launches of a run. */
#ifndef REEL_CUDA_CUDA_ENCODER_H
#define REEL_CUDA_CUDA_ENCODER_H

#include "cuda/driver/driver.h"
#include "cuda/run/cuda_kernels.h"

#include <pthread.h>

struct audio_tower_ops;
struct backend;
struct decode_mailbox;

/* The kernels of encoder.cu. */
enum {
    ENCODER_HALVES,
    ENCODER_WIDE1,
    ENCODER_WIDE2,
    ENCODER_STEM,
    ENCODER_NORM,
    ENCODER_ATTENTION,
    CUDA_ENCODER_KERNELS
};

/* The audio tower of a speech model; all 0 where there is none. */
struct cuda_encoder {
    struct cu_module *module;
    struct cuda_function kernels[CUDA_ENCODER_KERNELS];
    cu_address weights, numbers, scratch, abort;
    struct decode_mailbox *mailbox; /* for faults */
    cu_address mailbox_address;
    pthread_mutex_t mutex; /* of a run: there is one scratch memory */
    bool mutex_made;
};

/* Whether the model has an audio tower that runs here; plan.encoder.none says why not. */
bool cuda_encodes(const struct backend *b);
struct cuda_kernel_shape cuda_encoder_kernel(const struct backend *b, int kernel);
/* Weights and scratch memory; after the kernels. */
enum reel_status cuda_encoder_open(struct backend *b, struct reel_error *err);
void cuda_encoder_close(struct backend *b);
/* As audio_tower_ops have it; from any thread. */
enum reel_status cuda_encode(struct backend *b, const float *features, int n_frames, float *out,
                             struct reel_error *err);
extern const struct audio_tower_ops cuda_tower;

#endif
