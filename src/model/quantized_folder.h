/* A model folder with narrow weights in the format of the compressed-tensors package, which
 * transformers and vLLM read: pack-quantized for int8 and int4, float-quantized for fp8. */
#ifndef REEL_MODEL_QUANTIZED_FOLDER_H
#define REEL_MODEL_QUANTIZED_FOLDER_H

#include "model/model.h"

struct quantized_folder_options {
    enum weight_form form; /* one with codes */
    int n_threads;         /* 0: one per core */
    uint64_t shard_bytes;  /* a file of weights ends before it is longer */
    reel_progress_fn progress;
    void *progress_user;
};

struct quantized_folder_result {
    int n_matrices, n_files;     /* quantised; of weights */
    uint64_t bytes, n_weights;   /* of all files of weights; in the quantised matrices */
    uint64_t matrix_bytes;       /* codes and scales of those */
    struct quantize_error error; /* of all of them */
};

/* Quantises the layers' matrices. Embedding, output matrix, small vectors, a DeltaNet's a and b,
 * and tensors that reel does not run are copied, and so are the files of the tokenizer. The folder
 * appears when it is whole and on the disk. Refused in words: a model that has no wide matrices of
 * its own, or is a GGUF file. */
enum reel_status quantized_folder_write(const struct model *model, const char *folder,
                                        const struct quantized_folder_options *options,
                                        struct quantized_folder_result *result,
                                        struct reel_error *err);

#endif
