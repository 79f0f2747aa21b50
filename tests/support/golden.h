/* Goldens: what another implementation computed, stored as tests/golden/<id>.safetensors.xz, and
 * the synthetic miniature models they belong to. tools/make_goldens.py says what each holds.
 * Everything here ends the running cmocka test with a message when it fails. */
#ifndef REEL_TESTS_GOLDEN_H
#define REEL_TESTS_GOLDEN_H

#include "model/model_config.h"
#include "model/tensor_file.h"
#include "model/weights.h"

#define GOLDEN_SEED    1
#define GOLDEN_COLUMNS 16 /* of the logits stored for a position */

extern const char *const golden_ids[]; /* the miniatures with phases and 576 positions; NULL ends */

struct golden {
    struct tensor_file file;
    void *bytes;
};

/* Ends the test unless the call succeeded. */
void golden_require(enum reel_status status, const struct reel_error *err);
/* n zeros; the caller frees. */
float *golden_floats(size_t n);

/* The bytes that a file packed with xz holds; the caller frees. */
void *golden_unpack(const char *path, size_t *n);

/* Unpacks tests/golden/<name>.safetensors.xz. */
void golden_open(struct golden *golden, const char *name);
void golden_close(struct golden *golden);

/* Elements of a tensor, 0 when there is none. */
int golden_count(const struct golden *golden, const char *name);
/* The tensor as f32 [count]; the caller frees. */
float *golden_f32(const struct golden *golden, const char *name);
int32_t *golden_int(const struct golden *golden, const char *name);

/* A miniature, written by reel_synthesize into a temporary folder that close removes, and opened
 * without tokenizer or backend. */
struct golden_model {
    char folder[200]; /* for reel_model_open */
    struct model_source source;
    struct model_config config;
    struct tensor_file tensors;
    struct weights weights;
};
void golden_model_open(struct golden_model *model, const char *id);
/* Another shape, of the config in the file `shape`. */
void golden_model_open_shape(struct golden_model *model, const char *id, const char *shape);
void golden_model_close(struct golden_model *model);

/* Logits of the EXACT reference, [n, vocab], for ids from position 0 on; the caller frees. */
float *golden_exact_logits(const struct golden_model *model, const int32_t *ids, int n,
                           int rotation_offset);

/* The logits of one set of runs: the golden's own, or with a prefix such as "far.4090.". */
struct golden_logits {
    int n;            /* positions */
    int32_t *at;      /* [n] */
    float *logits;    /* [n, GOLDEN_COLUMNS] of the float32 run, columns (16 at + j) mod vocab */
    float *largest;   /* [n] absolute logit of the float32 run */
    float *rms, *max; /* [n] error of the bf16 runs against the float32 run, at or around it */
    double whole;     /* RMS of it over all of `at` */
};
void golden_logits_read(struct golden_logits *logits, const struct golden *golden,
                        const char *prefix);
void golden_logits_release(struct golden_logits *logits);

/* The largest error of `exact` [vocab] at entry i against the stored columns, relative to the
 * largest logit there. */
double golden_logits_error(const struct golden_logits *logits, int i, const float *exact,
                           int vocab);

/* The bound every rounding implementation is held to: RMS and maximum error against float32 at
 * most GOLDEN_BOUND times those of Hugging Face's own bf16 runs (the larger of its two kinds of
 * attention), at every position. */
#define GOLDEN_BOUND 1.25

struct golden_ratio {
    double rms, max; /* this error / the bf16 run's */
};
/* `made` and `exact` are [vocab], of the position of entry i. */
struct golden_ratio golden_logits_ratio(const struct golden_logits *logits, int i,
                                        const float *made, const float *exact, int vocab);

#endif
