/* A model's matrices made narrower than its file has them, while it is loaded. */
#ifndef REEL_MODEL_WEIGHTS_QUANTIZE_H
#define REEL_MODEL_WEIGHTS_QUANTIZE_H

#include "model/quantize.h"
#include "model/weights.h"

/* One that --weights can change. Small vectors, a DeltaNet's a and b, and the audio tower are not
 * among them: they stay as wide as they are. */
struct wide_matrix {
    struct matrix *matrix;
    const char *what; /* "gate" */
    int layer;        /* -1: the embedding or the head */
};

/* Of the embedding, all layers and an untied head, the embedding first. out may be NULL, or has
 * room for what the first call returned. */
int weights_list(struct weights *weights, struct wide_matrix *out);

/* The form of a matrix where the model gets `form`: the embedding and the head of an int4 model are
 * int8, since every error in them reaches the logits, or every layer. */
enum weight_form weights_form_of(const struct wide_matrix *matrix, enum weight_form form);

/* Codes of one matrix. Zeroed: none. */
struct quantized_matrix {
    struct matrix matrix; /* with `planes`; borrows from codes, scales and planes */
    struct matrix_planes *planes;
    unsigned char *codes;
    uint16_t *scales; /* bf16 [rows, scales of a row] */
    struct quantize_error error;
};
void quantized_matrix_release(struct quantized_matrix *q);

struct thread_pool;

/* `from` in the form given, one that has codes. The bytes do not depend on the pool's size. `name`
 * is for messages. REEL_E_UNSUPPORTED where no group divides the columns. */
enum reel_status quantized_matrix_make(struct quantized_matrix *q, const struct matrix *from,
                                       const char *name, enum weight_form form,
                                       struct thread_pool *pool, struct reel_error *err);

/* What weights_quantize made; weights_release frees it. */
struct quantized_weights {
    enum weight_form form;
    struct quantized_matrix *list; /* [n] */
    int n;
    int n_kept; /* matrices that stayed as stored, since the file takes no more bits for a weight */
    struct quantize_error error; /* of all that were made */
};

struct quantize_options {
    enum weight_form form;
    int n_threads; /* 0: one per core */
    reel_progress_fn progress;
    void *progress_user;
    const char *name; /* of the model, for messages */
};

/* Puts narrow matrices into the place of wide ones and counts the bytes anew. A matrix stays as it
 * is where its weights take no more whole bits than the codes would have. REEL_E_ARGUMENT when that
 * is so of all. WEIGHTS_BF16 makes every matrix bf16, also narrower ones. */
enum reel_status weights_quantize(struct weights *weights, const struct quantize_options *options,
                                  struct reel_error *err);
void quantized_weights_release(struct quantized_weights *q); /* and frees it; NULL: nothing */

#endif
