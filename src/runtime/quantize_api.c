/* reel_model_quantize. */
#include "base/struct_size.h"
#include "model/quantized_folder.h"
#include "runtime/model_handle.h"

#include <math.h>

#define SHARD_BYTES 5000000000u /* as transformers cuts them */

static void fill_result(struct reel_quantize_result *out, const struct quantized_folder_result *r) {
    *out = (struct reel_quantize_result){ .size = sizeof *out,
                                          .n_matrices = r->n_matrices,
                                          .n_files = r->n_files,
                                          .n_weights = r->n_weights,
                                          .matrix_bytes = r->matrix_bytes,
                                          .bytes = r->bytes };
    if (r->error.all > 0) out->error = sqrt(r->error.lost / r->error.all);
}

enum reel_status reel_model_quantize(const struct reel_model *handle, const char *folder,
                                     const struct reel_quantize_options *given,
                                     struct reel_quantize_result *result, struct reel_error *err) {
    struct reel_quantize_options options;
    struct quantized_folder_result made;
    struct reel_quantize_result own;
    err_clear(err);
    enum reel_status status =
        err_if_null(err, "model folder options", (const void *const[]){ handle, folder, given });
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_quantize_options", err);
    if (status == REEL_OK && result)
        status = struct_check(result, sizeof own, "reel_quantize_result", err);
    if (status == REEL_OK && !options.weights)
        status = err_set(err, REEL_E_ARGUMENT, "weights is NULL; allowed is int8, int4 or fp8");
    if (status != REEL_OK) return status;
    const struct quantized_folder_options how = { .form = weight_form_of(options.weights),
                                                  .n_threads = options.n_threads,
                                                  .shard_bytes = options.shard_bytes
                                                                     ? options.shard_bytes
                                                                     : SHARD_BYTES,
                                                  .progress = options.progress,
                                                  .progress_user = options.progress_user };
    status = quantized_folder_write(&handle->model, folder, &how, &made, err);
    if (status != REEL_OK || !result) return status;
    fill_result(&own, &made);
    return struct_write(result, &own, sizeof own, "reel_quantize_result", err);
}
