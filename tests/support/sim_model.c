#define _DEFAULT_SOURCE
#include "support/sim_model.h"

#include "base/error.h"

#include "reel_measure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The report of the GPU at hand, for messages. */
static struct fake_cuda *cuda;

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), err->text, cuda ? cuda->report : "");
}

void sim_model_open(struct sim_model *m, const char *id) { sim_model_open_kv(m, id, NULL); }

void sim_model_open_kv(struct sim_model *m, const char *id, const char *kv) {
    struct reel_error err = { 0 };
    char shape[100], parent[] = "/tmp/reel-sim-XXXXXX";
    *m = (struct sim_model){ .kv = kv };
    assert_non_null(mkdtemp(parent));
    snprintf(m->folder, sizeof m->folder, "%s/%s", parent, id);
    snprintf(shape, sizeof shape, "tests/golden/models/%s.json", id);
    if (access(shape, R_OK)) snprintf(shape, sizeof shape, "tests/sim/models/%s.json", id);
    require(reel_synthesize(m->folder, shape, 1, NULL, NULL, &err), &err);
    const struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = "portable", .n_threads = 1, .kv = kv
    };
    require(reel_model_open(&m->cpu, m->folder, &options, &err), &err);
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(m->cpu, &info, NULL), REEL_OK);
    m->vocab = info.vocab;
}

enum reel_status sim_model_load(struct sim_model *m, const char *options, struct reel_error *err) {
    char all[400];
    snprintf(all, sizeof all,
             "patience=2147483647,hang_ms=1000000000,launch_ms=10000,launch_tokens=16,spin_us=100,"
             "nap_us=500,stage_kb=64,poison=1,columns_wait=1%s%s",
             options ? "," : "", options ? options : "");
    cuda = sim_gpu_current().cuda;
    const char *const gpus = getenv("REEL_SIM_GPUS"); /* run on so many, in place of one */
    if (gpus && cuda->gpu.n_devices == 1) {
        cuda->gpu.n_devices = atoi(gpus);
        cuda->gpu.n_sms /= cuda->gpu.n_devices;
        m->device = "gpu:all";
    }
    const struct reel_model_options o = {
        .size = sizeof o,
        .device = m->device ? m->device : "gpu",
        .gpu_options = all,
        .cuda_dir = sim_gpu_folder(),
        .kv = m->kv,
        .prompt_slice = m->prompt_slice,
        .cache_dir = m->cache_dir,
    };
    return reel_model_open(&m->gpu, m->folder, &o, err);
}

void sim_model_unload(struct sim_model *m) {
    reel_model_close(m->gpu);
    m->gpu = NULL;
}

void sim_model_close(struct sim_model *m) {
    static const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors" };
    char path[300];
    if (m->gpu) reel_model_close(m->gpu);
    reel_model_close(m->cpu);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", m->folder, names[i]);
        unlink(path);
    }
    rmdir(m->folder);
    *strrchr(m->folder, '/') = '\0';
    rmdir(m->folder);
}

float *sim_model_try_logits(struct reel_model *model, const int32_t *ids, int n,
                            struct reel_error *err) {
    struct reel_session *session = NULL;
    struct reel_model_info info = { .size = sizeof info };
    const struct reel_session_options options = { .size = sizeof options, .max_context = n };
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    if (reel_session_open(&session, model, &options, err) != REEL_OK) return NULL;
    float *logits = malloc((size_t)n * (size_t)info.vocab * sizeof *logits);
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = ids,
                                    .output = REEL_OUTPUT_ALL_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)n * (size_t)info.vocab };
    enum reel_status status = reel_session_eval(session, &eval, err);
    reel_session_close(session);
    if (status == REEL_OK) return logits;
    free(logits);
    return NULL;
}

float *sim_model_logits(struct reel_model *model, const int32_t *ids, int n) {
    struct reel_error err = { 0 };
    float *logits = sim_model_try_logits(model, ids, n, &err);
    require(err.status, &err);
    assert_non_null(logits);
    return logits;
}

struct listener {
    int32_t *ids;
    int n;
};

static bool on_token(void *user, const struct reel_token *token) {
    struct listener *l = user;
    l->ids[l->n++] = token->id;
    return true;
}

enum reel_status sim_model_generate(struct reel_model *model, const int32_t *prompt, int n,
                                    const struct reel_sampling *sampling, int32_t *ids, int n_new,
                                    struct reel_error *err) {
    struct reel_session *session = NULL;
    struct listener listener = { ids, 0 };
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = n + n_new };
    enum reel_status status = reel_session_open(&session, model, &options, err);
    if (status != REEL_OK) return status;
    status = reel_session_sync(session, prompt, n, NULL, err);
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = sampling,
                                       .max_tokens = n_new,
                                       .ignore_stop_ids = true,
                                       .on_token = on_token,
                                       .user = &listener };
    struct reel_generation_result result = { .size = sizeof result };
    if (status == REEL_OK) status = reel_generate(session, &g, &result, err);
    if (status == REEL_OK && result.reason == REEL_STOP_MEMORY)
        status = err_set(err, REEL_E_MEMORY, "memory was over after %d ids", listener.n);
    if (status == REEL_OK && listener.n != n_new)
        fail_msg("%d ids came, %d were asked for", listener.n, n_new);
    reel_session_close(session);
    return status;
}
