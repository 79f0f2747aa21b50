/* Miniature models on the fake GPU, through the public interface. Failures end the test with the
 * simulator's report. */
#ifndef REEL_TESTS_SIM_MODEL_H
#define REEL_TESTS_SIM_MODEL_H

#include "reel.h"
#include "support/sim_gpu.h"

struct sim_model {
    char folder[200];
    const char *kv;        /* as in reel_model_options, of both */
    int prompt_slice;      /* likewise, of the GPU; set before it is loaded, as is */
    const char *device;    /* "gpu" when NULL */
    const char *cache_dir; /* as in reel_model_options; of the GPU */
    struct reel_model *cpu, *gpu;
    int vocab;
};

/* tests/golden/models/<id>.json, or else tests/sim/models/<id>.json, with generated weights, on the
 * CPU only: the reference. */
void sim_model_open(struct sim_model *m, const char *id);
void sim_model_open_kv(struct sim_model *m, const char *id, const char *kv);
/* Loads it into the fake GPU too (sim_gpu_controls comes before). `options` as gpu_options: on top
 * of those that keep time out of the tests. */
enum reel_status sim_model_load(struct sim_model *m, const char *options, struct reel_error *err);
void sim_model_unload(struct sim_model *m);
void sim_model_close(struct sim_model *m);

/* Logits [n, vocab] of ids from position 0 on; the caller frees. */
float *sim_model_logits(struct reel_model *model, const int32_t *ids, int n);
/* The same where it may fail: NULL and err. */
float *sim_model_try_logits(struct reel_model *model, const int32_t *ids, int n,
                            struct reel_error *err);
/* n_new ids after the prompt; returns how many came. */
enum reel_status sim_model_generate(struct reel_model *model, const int32_t *prompt, int n,
                                    const struct reel_sampling *sampling, int32_t *ids, int n_new,
                                    struct reel_error *err);

#endif
