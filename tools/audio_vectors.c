/* What a speech model's audio tower makes of features, for scripts that compare it with another
 * program: the API has no call that ends there.
 *
 * usage: audio_vectors MODEL DEVICE GPU_OPTIONS CACHE_DIR FEATURES VECTORS    ("" for none)
 *
 * FEATURES: clips one after the other, each int32 n_frames, float32 [bins, n_frames], as this
 * machine stores them. VECTORS receives float32 [vectors, width] of each. Says on standard output
 * where the tower ran. */
#include "base/file_map.h"
#include "base/memory.h"
#include "runtime/model_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FRAMES 120000 /* 20 minutes */

struct run {
    struct reel_model *model;
    struct model_tower tower;
    FILE *out;
};

static enum reel_status open_tower(struct run *t, char **argv, struct reel_error *err) {
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = argv[2],
                                                .gpu_options = *argv[3] ? argv[3] : NULL,
                                                .cache_dir = *argv[4] ? argv[4] : NULL };
    enum reel_status status = reel_model_open(&t->model, argv[1], &options, err);
    if (status != REEL_OK) return status;
    const struct reel_model *m = t->model;
    if (m->model.config.audio.n_layers == 0)
        return err_set(err, REEL_E_UNSUPPORTED, "%s has no audio tower", argv[1]);
    return model_tower_open(&t->tower, m, err);
}

static enum reel_status encode(struct run *t, const float *features, int n_frames,
                               struct reel_error *err) {
    const struct reel_model *m = t->model;
    const size_t n = (size_t)audio_tokens(n_frames) * (size_t)m->model.config.audio.output_dim;
    float *out = NULL;
    enum reel_status status = mem_aligned(&out, n, sizeof *out, "vectors", err);
    if (status == REEL_OK) status = model_tower_run(&t->tower, features, n_frames, out, err);
    if (status == REEL_OK && fwrite(out, sizeof *out, n, t->out) != n)
        status = err_set(err, REEL_E_IO, "the vectors cannot be written");
    free(out);
    return status;
}

static enum reel_status encode_all(struct run *t, const struct file_map *file,
                                   struct reel_error *err) {
    const size_t bins = (size_t)t->model->model.config.audio.n_bins;
    enum reel_status status = REEL_OK;
    for (size_t at = 0; at < file->size && status == REEL_OK;) {
        const size_t left = (file->size - at) / sizeof(float);
        int32_t n_frames = 0;
        if (left > 0) memcpy(&n_frames, file->bytes + at, sizeof n_frames);
        if (n_frames < 1 || n_frames > MOST_FRAMES || left - 1 < bins * (size_t)n_frames)
            return err_set(err, REEL_E_FORMAT, "the features end at byte %zu, or %d frames are not",
                           at, (int)n_frames);
        at += sizeof n_frames;
        status = encode(t, (const float *)(const void *)(file->bytes + at), n_frames, err);
        at += bins * (size_t)n_frames * sizeof(float);
    }
    return status;
}

int main(int argc, char **argv) {
    struct run t = { 0 };
    struct file_map features = { 0 };
    struct reel_error err = { 0 };
    if (argc != 7) {
        fputs("usage: audio_vectors MODEL DEVICE GPU_OPTIONS CACHE_DIR FEATURES VECTORS\n", stderr);
        return 2;
    }
    enum reel_status status = file_map_open(&features, argv[5], &err);
    if (status == REEL_OK) status = open_tower(&t, argv, &err);
    if (status == REEL_OK && !(t.out = fopen(argv[6], "wb")))
        status = err_set(&err, REEL_E_IO, "%s cannot be written", argv[6]);
    if (status == REEL_OK) status = encode_all(&t, &features, &err);
    if (t.out && fclose(t.out) != 0 && status == REEL_OK)
        status = err_set(&err, REEL_E_IO, "%s cannot be written", argv[6]);
    if (status == REEL_OK)
        printf("%s %s\n", t.tower.ops->name,
               t.tower.ops == t.model->ops->tower ? t.model->backend_info.path : "beside it");
    else
        fprintf(stderr, "audio_vectors: %s\n", err.text);
    model_tower_close(&t.tower);
    reel_model_close(t.model);
    file_map_close(&features);
    return (int)status;
}
