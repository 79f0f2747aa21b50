/* Rows of K and V as they lie in a piece of a GPU's cache (kernels/kv_layout.h), in every form. */
#ifndef REEL_TESTS_KV_ROWS_H
#define REEL_TESTS_KV_ROWS_H

#include "model/kv_form.h"

#include <stdbool.h>

struct kv_rows {
    enum kv_form form;
    int dim;
    float given[2]; /* scales of K and V that the model's file has, or 0 */
};

/* The row of K or V becomes what the cache gives back of it. */
void kv_row_round(const struct kv_rows *r, int is_v, float *row);

/* Position p's row of K or V goes to its piece, or is read from there. */
void kv_row_put(const struct kv_rows *r, unsigned char *piece, int is_v, int p, const float *row);
void kv_row_get(const struct kv_rows *r, const unsigned char *piece, int is_v, int p, float *row);
/* Whether all bytes of the row are 0xff. */
bool kv_row_poisoned(const struct kv_rows *r, const unsigned char *piece, int is_v, int p);

/* The first dim at which a row of K or V is not the one that was wanted, or -1. V is what the words
 * say. Keys that round to neighbours in bf16 may become neighbours among codes. */
int kv_row_differs(const struct kv_rows *r, int is_v, const float *row, const float *want);

/* How much further off than with bf16 attention may be: codes make a larger step of a step in bf16,
 * of few keys. */
double kv_rows_factor(const struct kv_rows *r);

#endif
