/* Small models of random weights: odd shapes, every weight type, every kind of layer. */
#ifndef REEL_TESTS_RANDOM_MODEL_H
#define REEL_TESTS_RANDOM_MODEL_H

#include "model/model.h"

struct shape {
    const char *name;
    int hidden, heads, kv_heads, head_dim, inter, vocab;
    bool qk_norm;
    enum dtype type;
    enum dtype down_type; /* K-quants are mixed in real files */
    unsigned with;
};
/* HYBRID: the first layer is a DeltaNet, and attention is gated and half turned. */
enum { QKV_BIAS = 1, TIED = 2, HYBRID = 4 };

enum { N_LAYERS = 2, N_SHAPES = 8, N_ALL_SHAPES = 10 };
/* The first N_SHAPES have attention alone, neither biases nor a tied head. */
extern const struct shape random_shapes[N_ALL_SHAPES];

struct small_model {
    struct model model;
    struct layer_weights layers[N_LAYERS];
    void *owned[96];
    int n_owned;
};

/* Running out of memory fails the test. */
struct small_model *random_model(const struct shape *shape);
void free_model(struct small_model *m);
/* Memory that goes with the model. */
void *own(struct small_model *m, size_t n);

/* Of the generator that a model begins anew. */
uint64_t random_bits(void);

#endif
