/* Opening a model on a GPU: driver, plan, kernels, memory, weights. */
#include "cuda/run/cuda_backend.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cuda/driver/gpu_info.h"
#include "cuda/measure/cuda_machine.h"
#include "cuda/measure/cuda_profile.h"
#include "cuda/run/cuda_decode.h"
#include "cuda/run/cuda_delta.h"
#include "cuda/run/cuda_eval.h"
#include "cuda/run/cuda_load.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "cuda/run/cuda_step.h"
#include "cuda/run/tuned.h"
#include "kernels/kv_layout.h"
#include "plan/plan_layout.h"

#include <string.h>

_Static_assert((int)KV_CODES_INT8 == (int)KV_INT8 && (int)KV_CODES_E4M3 == (int)KV_FP8,
               "the plan's forms of K and V are the model's");

/* ---- memory ---- */

/* Refuses before anything is allocated or compiled. */
static enum reel_status check_memory(const struct backend *b, struct reel_error *err) {
    const double gb = 1e9;
    uint64_t n_free = 0, n_total = 0;
    enum reel_status status = cuda_memory(&b->gpu, &n_free, &n_total, err);
    if (status != REEL_OK) return status;
    const uint64_t wanted = gpu_memory_least(&b->memory), scratch = b->memory.bytes[GPU_PROMPTS];
    const uint64_t model = gpu_memory_of(&b->memory, GPU_OF_MODEL, false);
    const uint64_t staging = gpu_memory_of(&b->memory, GPU_OF_LOADER, false);
    const uint64_t session = wanted - model;
    if (wanted <= n_free) return REEL_OK;
    return err_set(
        err, REEL_E_MEMORY,
        "%s: %.2f GB are needed (weights %.2f, scratch memory for prompts %.2f, staging %.2f, the "
        "smallest session %.2f), %.2f of %.2f GB are free",
        b->gpu.facts.name, (double)wanted / gb, (double)(model - scratch) / gb,
        (double)scratch / gb, (double)staging / gb, (double)session / gb, (double)n_free / gb,
        (double)n_total / gb);
}

/* f32 tables: norms [layers][attn, ffn][hidden] and final [hidden]; q and k norms; frequencies. */
static enum reel_status upload_norms(struct backend *b, struct reel_error *err) {
    const struct weights *w = &b->model->weights;
    const size_t hidden = (size_t)b->model->config.hidden, layers = (size_t)w->n_layers;
    const size_t n = (size_t)b->memory.bytes[GPU_NORMS];
    float *all = NULL;
    enum reel_status status = mem_zeroed(&all, n / sizeof *all, sizeof *all, "norms", err);
    if (status != REEL_OK) return status;
    for (size_t l = 0; l < layers; l++) {
        memcpy(all + 2 * l * hidden, w->layers[l].attn_norm, hidden * sizeof *all);
        memcpy(all + (2 * l + 1) * hidden, w->layers[l].ffn_norm, hidden * sizeof *all);
    }
    memcpy(all + 2 * layers * hidden, w->final_norm, hidden * sizeof *all);
    status = cuda_part_alloc(&b->gpu, &b->memory, GPU_NORMS, &b->norms, err);
    if (status == REEL_OK) status = cuda_upload(&b->gpu, b->norms, all, n, NULL, err);
    mem_free(all);
    return status;
}

/* A layer's biases of q, k and v, with zeros where the plan has heads that the model has not. */
static void copy_biases(const struct backend *b, const float *biases, float *to) {
    const struct model_config *c = &b->model->config;
    const int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const int own_q = plan_q_rows(&b->plan), own_kv = plan_kv_rows(&b->plan);
    memcpy(to, biases, (size_t)q * sizeof *to);
    memcpy(to + own_q, biases + q, (size_t)kv * sizeof *to);
    memcpy(to + own_q + own_kv, biases + q + kv, (size_t)kv * sizeof *to);
}

/* Gains of q's and k's norms, or biases of q, k and v, and behind them the scales that the file has
 * for K and V: what struct decode_args says. */
static enum reel_status upload_qkv_vectors(struct backend *b, struct reel_error *err) {
    const struct weights *w = &b->model->weights;
    const struct plan *p = &b->plan;
    const size_t dim = (size_t)p->head_dim;
    const size_t rows = (size_t)plan_bias_rows(p);
    const size_t n = (size_t)b->memory.bytes[GPU_QKV_VECTORS];
    float *all = NULL;
    if (n == 0) return REEL_OK;
    enum reel_status status =
        mem_zeroed(&all, n / sizeof *all, sizeof *all, "norms or biases", err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < w->n_layers; i++) {
        const struct layer_weights *l = &w->layers[i];
        float *to = all + 2 * (size_t)l->nth * dim;
        if (l->kind != LAYER_ATTENTION) continue;
        if (l->qkv_bias) copy_biases(b, l->qkv_bias, all + (size_t)l->nth * rows);
        if (!l->q_norm) continue;
        memcpy(to, l->q_norm, dim * sizeof *all);
        memcpy(to + dim, l->k_norm, dim * sizeof *all);
    }
    const size_t layers = (size_t)model_layer_count(&b->model->config, LAYER_ATTENTION);
    const size_t scales = 2 * (size_t)p->n_kv_heads,
                 given = 2 * (size_t)b->model->config.n_kv_heads;
    for (size_t i = 0; p->kv_given && i < layers; i++)
        memcpy(all + n / sizeof *all - (layers - i) * scales, w->kv_scales + i * given,
               given * sizeof *all);
    status = cuda_part_alloc(&b->gpu, &b->memory, GPU_QKV_VECTORS, &b->qkv_vectors, err);
    if (status == REEL_OK) status = cuda_upload(&b->gpu, b->qkv_vectors, all, n, NULL, err);
    mem_free(all);
    return status;
}

static enum reel_status upload_rope(struct backend *b, struct reel_error *err) {
    float inverse[MODEL_MAX_HEAD_DIM / 2] = { 0 };
    model_rope_frequencies(&b->model->config, inverse);
    enum reel_status status = cuda_part_alloc(&b->gpu, &b->memory, GPU_ROPE, &b->rope, err);
    if (status == REEL_OK)
        status = cuda_upload(&b->gpu, b->rope, inverse, sizeof inverse, NULL, err);
    return status;
}

static enum reel_status open_memory(struct backend *b, struct reel_error *err) {
    const struct cuda_gpu *gpu = &b->gpu;
    const struct gpu_memory_plan *m = &b->memory;
    cu_address mapped = 0;
    void *leave = NULL;
    enum reel_status status = cuda_pages_open_pool(b, err);
    if (status == REEL_OK) status = cuda_recurrent_open_pool(b, err);
    if (status == REEL_OK) status = cuda_part_alloc(gpu, m, GPU_TAPES, &b->tape, err);
    if (status == REEL_OK)
        status = cuda_fill(gpu, b->tape, 0, (size_t)m->bytes[GPU_TAPES], NULL, err);
    if (status == REEL_OK) status = cuda_part_alloc(gpu, m, GPU_EMBEDDING, &b->embedding, err);
    if (status == REEL_OK) status = cuda_part_alloc(gpu, m, GPU_WORDS, &b->words, err);
    if (status == REEL_OK)
        status = cuda_fill(gpu, b->words, 0, (size_t)m->bytes[GPU_WORDS], NULL, err);
    if (status == REEL_OK) status = upload_norms(b, err);
    if (status == REEL_OK) status = upload_qkv_vectors(b, err);
    if (status == REEL_OK) status = upload_rope(b, err);
    if (status == REEL_OK) status = cuda_delta_open(b, err);
    if (status == REEL_OK) status = cuda_prefill_open(b, err);
    if (status == REEL_OK) status = cuda_encoder_open(b, err);
    if (status == REEL_OK) status = cuda_stream_open(gpu, &b->rescue, err);
    if (status == REEL_OK) status = cuda_part_host_alloc(gpu, m, GPU_LEAVE, &leave, &mapped, err);
    b->leave = leave;
    if (status == REEL_OK) *b->leave = ABORT_LEAVE;
    return status;
}

/* ---- opening ---- */

static enum reel_status keep_options(struct backend *b, const struct backend_options *options,
                                     struct reel_error *err) {
    struct cuda_later *l = &b->later;
    const struct {
        char **to;
        const char *from;
    } all[] = { { &l->cache_dir, options->cache_dir },
                { &l->cuda_dir, options->cuda_dir },
                { &l->nvrtc_dir, folder_of_nvrtc(&b->tuning.folders) },
                { &l->gpu_options, options->gpu_options } };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++)
        if (all[i].from)
            status = mem_text(all[i].to, all[i].from, strlen(all[i].from), "an option", err);
    l->mutex_made = pthread_mutex_init(&l->mutex, NULL) == 0;
    return status != REEL_OK || l->mutex_made ? status
                                              : err_memory(err, "a mutex", sizeof l->mutex);
}

static void forget_options(struct cuda_later *l) {
    mem_free(l->cache_dir);
    mem_free(l->cuda_dir);
    mem_free(l->nvrtc_dir);
    mem_free(l->gpu_options);
    if (l->mutex_made) pthread_mutex_destroy(&l->mutex);
}

static void cuda_close(struct backend *b) {
    if (!b) return;
    cuda_draft_layer_close(b);
    cuda_pool_close(&b->pool, cuda_untouchable(b));
    cuda_pool_close(&b->states, cuda_untouchable(b));
    cuda_stage_close(b);
    cuda_programs_close(b, &b->layer_drafts);
    cuda_programs_close(b, &b->drafts);
    cuda_programs_close(b, &b->step);
    if (!cuda_untouchable(b)) {
        const cu_address all[] = { b->tape,        b->embedding,   b->norms,
                                   b->qkv_vectors, b->rope,        b->words,
                                   b->scratch,     b->delta_gates, b->delta_constants };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            cuda_free(&b->gpu, all[i]);
        cuda_encoder_close(b);
        cuda_packed_unload(b);
        cuda_host_free(&b->gpu, b->leave);
        cuda_stream_close(&b->gpu, b->rescue);
        cuda_module_unload(&b->gpu, b->short_module);
        cuda_module_unload(&b->gpu, b->short_far_module);
        cuda_module_unload(&b->gpu, b->prefill_delta_module);
        cuda_module_unload(&b->gpu, b->prefill_module);
        cuda_module_unload(&b->gpu, b->module);
        cuda_gpu_close(&b->gpu);
        cuda_driver_close(&b->driver);
    }
    cuda_packed_close(b);
    forget_options(&b->later);
    if (b->mutex_made) pthread_mutex_destroy(&b->mutex);
    mem_free(b);
}

static void list_uuids(struct backend *b) {
    for (int g = 0; g < b->gpu.n; g++) {
        const struct cuda_gpu *one = g == 0 ? &b->gpu : &b->gpu.others[g - 1];
        if (g > 0) strcat(b->uuids, ",");
        strcat(b->uuids, one->facts.uuid);
    }
}

static enum reel_status open_gpu(struct backend *b, const struct backend_options *options,
                                 struct reel_error *err) {
    enum reel_status status = cuda_driver_open(&b->driver, b->tuning.folders.driver, err);
    if (status == REEL_OK)
        status =
            cuda_gpus_open(&b->gpu, &b->driver, options->devices.index, options->devices.n, err);
    if (status == REEL_OK) list_uuids(b);
    if (status == REEL_OK && !b->gpu.facts.cooperative)
        status = err_set(err, REEL_E_UNSUPPORTED,
                         "%s cannot launch cooperative kernels, which decoding needs",
                         b->gpu.facts.name);
    return status;
}

/* What reel_model_tune found on this GPU for this shape and these formats, unless wishes were
 * given. */
static enum reel_status read_tuned(struct backend *b, const struct backend_options *options,
                                   const int formats[TAPE_N_PHASES], struct plan_options *wishes,
                                   struct reel_error *err) {
    static const struct plan_options none;
    struct buffer path = { 0 };
    struct reel_error text;
    const char *damage = NULL;
    *wishes = b->tuning.plan;
    if (!b->tuning.tuned || !options->cache_dir || memcmp(wishes, &none, sizeof none) != 0)
        return REEL_OK;
    enum reel_status status =
        tuned_path(&path, options->cache_dir, &b->gpu, &b->model->config, formats, err);
    if (status == REEL_OK) status = tuned_read(wishes, &damage, path.bytes, err);
    const bool found = memcmp(wishes, &none, sizeof none) != 0;
    if (status == REEL_OK && options->log && (damage || found)) {
        if (damage)
            err_set(&text, REEL_OK, "%s: %s; reel tune writes a new one", path.bytes, damage);
        else
            err_set(&text, REEL_OK, "launch settings that reel tune found: %s", path.bytes);
        options->log(options->log_user, damage ? REEL_LOG_WARNING : REEL_LOG_INFO, text.text);
    }
    buffer_release(&path);
    return status;
}

static enum reel_status open_plan(struct backend *b, const struct backend_options *options,
                                  struct reel_error *err) {
    struct gpu_limits limits;
    struct plan_options wishes;
    int formats[TAPE_N_PHASES] = { TILE_BF16 };
    uint64_t n_total = 0;
    gpu_limits_fill(&limits, &b->gpu.facts, b->gpu.n);
    /* what others have taken is not there for prompts */
    enum reel_status status = cuda_memory(&b->gpu, &limits.memory_bytes, &n_total, err);
    if (plan_keeps_narrow((enum narrow_wish)b->tuning.narrow, &b->model->weights))
        plan_stored(&b->model->weights, formats);
    if (status == REEL_OK) status = read_tuned(b, options, formats, &wishes, err);
    if (status != REEL_OK) return status;
    memcpy(wishes.formats, formats, sizeof formats);
    memcpy(b->tuning.plan.formats, formats, sizeof formats);
    wishes.kv_form = b->tuning.plan.kv_form = (int)options->kv;
    wishes.kv_given = b->tuning.plan.kv_given =
        options->kv == KV_FP8 && b->model->weights.kv_scales;
    status = plan_make(&b->plan, &b->model->config, &limits, &wishes, err);
    if (status != REEL_OK) /* what was remembered may be of another planner's time */
        status = plan_make(&b->plan, &b->model->config, &limits, &b->tuning.plan, err);
    if (status == REEL_OK) cuda_draft_plan(&b->plan, b->model);
    /* before a launch was timed: half a terabyte a second */
    if (status == REEL_OK) b->token_ms = 0.05 + (double)b->plan.token_bytes / 0.5e9;
    if (status == REEL_OK) cuda_memory_plan(&b->memory, b, KV_POSITIONS);
    return status == REEL_OK ? check_memory(b, err) : status;
}

static enum reel_status open_all(struct backend *b, const struct backend_options *options,
                                 struct reel_error *err) {
    struct cu_module *wind_module = NULL;
    const double start = clock_ms();
    enum reel_status status = open_gpu(b, options, err);
    b->times.driver = options->driver_ms + clock_ms() - start;
    if (status == REEL_OK) status = open_plan(b, options, err);
    if (status == REEL_OK) status = keep_options(b, options, err);
    if (status == REEL_OK) status = cuda_packed_open(b, err);
    if (status == REEL_OK) status = cuda_open_kernels(b, options, &wind_module, err);
    const double built = clock_ms();
    if (status == REEL_OK) status = open_memory(b, err);
    const double taken = clock_ms();
    if (status == REEL_OK) status = cuda_load(b, options, wind_module, err);
    b->times.memory = taken - built;
    b->times.load = clock_ms() - taken;
    cuda_module_unload(&b->gpu, wind_module);
    return status;
}

static enum reel_status cuda_open(struct backend **out, const struct model *model,
                                  const struct backend_options *options, struct reel_error *err) {
    struct backend *b = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&b, 1, sizeof *b, "the GPU backend", err);
    if (status != REEL_OK) return status;
    b->model = model;
    b->process = getpid();
    cuda_tuning_defaults(&b->tuning);
    /* most slices have many positions before them */
    b->tuning.short_far = options->prompt_slice > 0;
    b->tuning.folders = (struct cuda_folders){ options->cuda_dir, options->nvrtc_dir };
    b->mutex_made = pthread_mutex_init(&b->mutex, NULL) == 0;
    b->drafts.follows = b->layer_drafts.follows = b->layer_drafts.leaves = true;
    if (!b->mutex_made) status = err_memory(err, "a mutex", sizeof b->mutex);
    if (status == REEL_OK) status = cuda_stage_open(&b->stage, err);
    if (status == REEL_OK && options->rounding != REEL_ROUNDING_FAST)
        status = err_set(err, REEL_E_ARGUMENT, "faithful and exact rounding run on the CPU only");
    if (status == REEL_OK) status = cuda_tuning_parse(&b->tuning, options->gpu_options, err);
    b->epoch = b->tuning.first_epoch & 0xffffu ? b->tuning.first_epoch : b->tuning.first_epoch + 1;
    if (status == REEL_OK) status = open_all(b, options, err);
    if (status == REEL_OK)
        *out = b;
    else
        cuda_close(b);
    return status;
}

static void cuda_info(const struct backend *b, struct backend_info *info) {
    const uint64_t session =
        gpu_memory_of(&b->memory, GPU_OF_SESSION, false) + b->memory.bytes[GPU_STATES];
    *info =
        (struct backend_info){ .name = "cuda",
                               .path = b->gpu.facts.name,
                               .uuids = b->uuids,
                               .n_threads = 1,
                               /* cuda_load.c rounds them */
                               .weights_are_bf16 = !plan_narrow(&b->plan.tape),
                               .token_bytes = plan_narrow(&b->plan.tape) ? b->plan.token_bytes : 0,
                               .state_fixed_bytes = (size_t)session,
                               .state_position_bytes = (size_t)b->plan.kv_position_bytes,
                               .most_columns = cuda_step_columns(b),
                               .drafts = cuda_drafts_possible(b),
                               .guesses = cuda_guesses(b),
                               .column_share = 0.08F,
                               .queues = true,
                               .eval_positions = cuda_prefills(b) ? b->plan.prefill_tokens : 0,
                               .driver_ms = b->times.driver,
                               .compile_ms = b->times.compile,
                               .load_ms = b->times.memory + b->times.load };
}

static uint64_t cuda_memory_available(const struct backend *b) {
    uint64_t n_free = 0, n_total = 0;
    return cuda_memory(&b->gpu, &n_free, &n_total, NULL) == REEL_OK ? n_free : 0;
}

static enum reel_status host_alloc(struct backend *b, void **out, size_t n_bytes, const char *what,
                                   struct reel_error *err) {
    cu_address address;
    return cuda_host_alloc(&b->gpu, out, &address, n_bytes, what, err);
}

static void host_free(struct backend *b, void *host) {
    if (!cuda_untouchable(b)) cuda_host_free(&b->gpu, host);
}

const struct backend_ops cuda_backend = {
    .name = "cuda",
    .machine = &cuda_machine,
    .tuning = &cuda_tuning_ops,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .memory_available = cuda_memory_available,
    .state_open = cuda_state_open,
    .state_close = cuda_state_close,
    .eval = cuda_eval,
    .decode = cuda_decode,
    .step = cuda_step,
    .guess_begin = cuda_guess_begin,
    .guess = cuda_guess,
    .embed = cuda_embed,
    .resume = cuda_resume,
    .keep = cuda_keep,
    .save_bytes = cuda_save_bytes,
    .save = cuda_save,
    .restore = cuda_restore,
    .copy = cuda_copy_state,
    .profile = cuda_profile,
    .tower = &cuda_tower,
    .host_alloc = host_alloc,
    .host_free = host_free,
};
