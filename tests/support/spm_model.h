/* A SentencePiece vocabulary read from tokenizer.model, and the other files that are made of it:
 * tokenizer.json as transformers' converter writes it, GGUF metadata as llama.cpp's does. */
#ifndef REEL_TESTS_SPM_MODEL_H
#define REEL_TESTS_SPM_MODEL_H

#include "base/buffer.h"
#include "base/file_map.h"

struct spm_piece {
    const char *text; /* [n], borrowed from the file */
    size_t n;
    float score;
    int type; /* of sentencepiece_model.proto: 1 normal, 2 unknown, 3 control, 4 user-defined, 6
                 byte */
};

struct spm_model {
    struct file_map file;
    struct spm_piece *pieces; /* [n] */
    size_t n;
};

/* From tests/fixtures/tokenizers/NAME/tokenizer.model.xz; false when it cannot be had. */
bool spm_model_open(struct spm_model *m, const char *name);
void spm_model_close(struct spm_model *m);

/* layout: "prepend" (normalizers), or the prepend_scheme of Metaspace, with " split" behind it
 * where it splits. The caller releases the buffer. */
void spm_model_json(const struct spm_model *m, const char *layout, struct buffer *out);

/* A file without tensors. */
void spm_model_gguf(const struct spm_model *m, struct buffer *out);

#endif
