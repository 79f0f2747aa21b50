/* The forms of a KV cache, and how keys and values become codes of 8 bits.
 *
 * In int8 and fp8 (e4m3) a token's key of one KV head is head_dim codes and one scale, and its
 * value is so too: value = scale * code. K's scale multiplies the score, V's the weight of softmax,
 * so codes go into matrix products as they are; both kinds are exact in bf16.
 *
 * The scale is a float32. It costs 1.5 % of a position at a head_dim of 128, twice what a scale of
 * 16 bits would; but files have scales of their own (reel reads k_scale and v_scale for fp8), which
 * bf16 would change, and float16 does not reach the keys of all models. */
#ifndef REEL_MODEL_KV_FORM_H
#define REEL_MODEL_KV_FORM_H

#include <stddef.h>
#include <stdint.h>

enum kv_form { KV_BF16, KV_INT8, KV_FP8, KV_FORMS };

/* What `--kv` names; NULL is bf16, and KV_FORMS says that it is none. */
enum kv_form kv_form_of(const char *name);
const char *kv_form_name(enum kv_form form);

static inline size_t kv_form_code_bytes(enum kv_form form) { return form == KV_BF16 ? 2 : 1; }

/* Codes of a vector of n values, and their scale, which is returned. The form is not KV_BF16.
 *
 * given 0: the scale is the largest size in the vector divided by 127 (int8) or by 448 (fp8). Codes
 * are the nearest ones to values * (127 / largest), even at halves, so that an int8 value is off by
 * half a scale at most. A vector that holds nothing of 2^-119 or more becomes zeros with scale 0.
 * One with an infinity or a NaN gets the scale NaN. given, above 0: the scale of a file, for fp8;
 * what lies beyond 448 scales becomes 448 scales. */
float kv_quantise(enum kv_form form, const float *x, int n, float given, uint8_t *codes);

/* What a code is worth before its scale. */
float kv_code_value(enum kv_form form, uint8_t code);

#endif
