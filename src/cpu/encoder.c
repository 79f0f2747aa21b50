#include "cpu/encoder.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "cpu/cpu_path.h"
#include "cpu/encoder_work.h"

#include <string.h>

int encoder_window_frames(const struct encoder *e) {
    return e->config->window_chunks * M_AUDIO_CHUNK_FRAMES;
}

const char *encoder_path(const struct encoder *e) {
    return e->reference ? "reference" : e->kernels.name;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void place_worker(const struct encoder *e, struct encoder_worker *w, struct carver *c) {
    const size_t pad = (size_t)e->head_pad, window = (size_t)e->window_pad;
    const int most_bins = e->plane[1].bins; /* rows of a convolution's product */
    float *tile =
        carve(c, tile_scratch_floats(e->batch > most_bins ? e->batch : most_bins), sizeof(float));
    w->values = carve(c, (size_t)e->config->hidden, sizeof(float));
    w->q = carve(c, window * pad, sizeof(uint16_t));
    w->k = carve(c, PANEL_LANES * pad, sizeof(uint16_t));
    w->k_panels = carve(c, window * pad, sizeof(uint16_t));
    w->v_panels = carve(c, window * pad, sizeof(uint16_t));
    w->scores = carve(c, T_QUERY_ROWS * window, sizeof(float));
    w->p = carve(c, T_QUERY_ROWS * window, sizeof(uint16_t));
    w->out = carve(c, T_QUERY_ROWS * pad, sizeof(float));
    if (tile) tile_scratch_place(&w->tile, tile);
}

static void place(struct encoder *e, struct carver *c) {
    const struct audio_config *config = e->config;
    const size_t hidden = (size_t)config->hidden, inter = (size_t)config->intermediate;
    const size_t batch = (size_t)e->batch, channels = (size_t)config->n_channels;
    const size_t tiles = (channels + TILE_ROWS - 1) / TILE_ROWS;
    const size_t longest = size_max(size_max(hidden, inter), e->plane[M_AUDIO_CONVS].row);
    for (int i = 0; i <= M_AUDIO_CONVS; i++)
        e->plane[i].values = carve(c, T_ENCODER_CHUNKS * e->plane[i].chunk, sizeof(uint16_t));
    for (int i = 0; i < M_AUDIO_CONVS; i++)
        e->kernels_of[i].panels = carve(c, encoder_stem_panels(e, i), sizeof(uint16_t));
    e->conv_bias = carve(c, M_AUDIO_CONVS * tiles * TILE_ROWS, sizeof(float));
    e->conv_out_data = carve(c, hidden, e->conv_out.row_bytes);
    e->positions = carve(c, M_AUDIO_CHUNK_TOKENS * hidden, sizeof(float));
    e->zeros = carve(c, longest, sizeof(float));
    e->x = carve(c, batch * hidden, sizeof(float));
    e->projected = carve(c, size_max(3 * batch * hidden, channels * M_AUDIO_TAPS), sizeof(float));
    e->rows = carve(c, batch * hidden, sizeof(uint16_t));
    e->wide_stride = size_max(inter + (inter & 1), hidden);
    e->wide = carve(c, batch * e->wide_stride, sizeof(uint16_t));
    for (int i = 0; i < thread_pool_size(e->pool); i++)
        place_worker(e, &e->workers[i], c);
}

static void measure(struct encoder *e) {
    const struct audio_config *c = e->config;
    e->head_dim = c->hidden / c->n_heads;
    e->head_pad = (e->head_dim + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES;
    e->window = c->window_chunks * M_AUDIO_CHUNK_TOKENS;
    e->window_pad = (e->window + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES;
    e->batch = e->window > T_ENCODER_TOKENS ? e->window : T_ENCODER_TOKENS / e->window * e->window;
    encoder_stem_measure(e);
    const struct matrix *stored = &e->weights->conv_out;
    const size_t columns = e->plane[M_AUDIO_CONVS].row;
    e->conv_out = (struct matrix){ .dtype = stored->dtype,
                                   .rows = stored->rows,
                                   .columns = (int)columns,
                                   .row_bytes = dtype_row_bytes(stored->dtype, columns) };
}

static enum reel_status open_fast(struct encoder *e, const struct encoder_options *options,
                                  struct reel_error *err) {
    struct carver carver = { 0 };
    enum reel_status status = cpu_path_choose(&e->kernels, options->cpu_path, err);
    if (status == REEL_OK) status = thread_pool_open(&e->pool, options->n_threads, err);
    if (status == REEL_OK)
        status = mem_zeroed(&e->workers, (size_t)thread_pool_size(e->pool), sizeof *e->workers,
                            "workers", err);
    if (status != REEL_OK) return status;
    measure(e);
    place(e, &carver);
    if (carver.overflow) return err_memory(err, "the audio encoder", SIZE_MAX);
    status = mem_zeroed(&e->memory, carver.used + 64, 1, "the audio encoder", err);
    if (status != REEL_OK) return status;
    carver.block = (char *)(((uintptr_t)e->memory + 63) & ~(uintptr_t)63);
    carver.used = 0;
    place(e, &carver);
    e->conv_out.data = e->conv_out_data;
    encoder_stem_pack(e);
    return REEL_OK;
}

enum reel_status encoder_open(struct encoder **out, const struct audio_config *config,
                              const struct audio_weights *weights,
                              const struct encoder_options *options, struct reel_error *err) {
    struct encoder *e = NULL;
    *out = NULL;
    if (!weights->n_layers) return err_set(err, REEL_E_UNSUPPORTED, "the model has no audio tower");
    enum reel_status status = mem_zeroed(&e, 1, sizeof *e, "the audio encoder", err);
    if (status != REEL_OK) return status;
    e->config = config;
    e->weights = weights;
    e->mode = ref_rounding_of(options->rounding);
    e->reference = e->mode != REF_FAST || cpu_path_is_reference(options->cpu_path);
    if (!e->reference) status = open_fast(e, options, err);
    if (status == REEL_OK)
        *out = e;
    else
        encoder_close(e);
    return status;
}

void encoder_close(struct encoder *e) {
    if (!e) return;
    thread_pool_close(e->pool);
    mem_free(e->workers);
    mem_free(e->memory);
    mem_free(e);
}

/* ---- running --------------------------------------------------------------------------------- */

static void region(void *user, int thread, int n_threads) {
    const struct encoder_job *job = user;
    struct encoder *e = job->encoder;
    const struct encoder_turn turn = { job, e, &e->workers[thread], thread, n_threads };
    if (encoder_stem(&turn)) encoder_layers(&turn);
}

enum reel_status encoder_run(struct encoder *e, const float *features, int n_frames, float *out,
                             struct reel_error *err) {
    if (n_frames < 1)
        return err_set(err, REEL_E_ARGUMENT, "%d frames of audio, at least 1 is needed", n_frames);
    if (e->reference)
        return encoder_reference_run(e->config, e->weights, features, n_frames, e->mode, out, err);
    const int batch = e->batch / M_AUDIO_CHUNK_TOKENS * M_AUDIO_CHUNK_FRAMES;
    for (int first = 0; first < n_frames; first += batch) {
        const int n = n_frames - first < batch ? n_frames - first : batch;
        struct encoder_job job = { .encoder = e,
                                   .features = features,
                                   .stride = n_frames,
                                   .first = first,
                                   .n = n,
                                   .n_tokens = audio_tokens(n),
                                   .out = out };
        thread_pool_run(e->pool, region, &job);
        out += (size_t)job.n_tokens * (size_t)e->config->output_dim;
    }
    return REEL_OK;
}
