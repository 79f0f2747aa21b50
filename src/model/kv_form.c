#include "model/kv_form.h"

#include "model/matrix.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *const form_names[KV_FORMS] = { "bf16", "int8", "fp8" };

enum kv_form kv_form_of(const char *name) {
    if (!name) return KV_BF16;
    for (int i = 0; i < KV_FORMS; i++)
        if (strcmp(name, form_names[i]) == 0) return (enum kv_form)i;
    return KV_FORMS;
}

const char *kv_form_name(enum kv_form form) { return form_names[form]; }

#define INT8_MOST   127.0f
#define E4M3_MOST   448.0f
#define E4M3_NORMAL 0x1p-6f /* below it steps are 2^-9 */
#define E4M3_LOST   20      /* bits of a float's fraction */
#define LEAST       0x1p-119f

/* To the nearest integer, even at halves, of |x| < 2^22: the sum has no room for a fraction. */
static float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

static uint8_t int8_code(float x) {
    if (x > INT8_MOST) x = INT8_MOST;
    if (x < -INT8_MOST) x = -INT8_MOST;
    return (uint8_t)(int8_t)nearest(x);
}

static uint8_t e4m3_code(float x) {
    enum { MOST_CODE = 0x7e }; /* 448 */
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 24 & 0x80;
    const float size = fabsf(x);
    if (size < E4M3_NORMAL) return (uint8_t)(sign | (uint32_t)nearest(size * 0x1p9f));
    bits &= INT32_MAX;
    bits += (1u << (E4M3_LOST - 1)) - 1 + (bits >> E4M3_LOST & 1);
    const uint32_t code = (bits >> E4M3_LOST) - (120u << 3); /* 127 - 7: their exponents' biases */
    return (uint8_t)(sign | (code > MOST_CODE ? MOST_CODE : code));
}

/* The largest size, or NaN where some value is no number or infinite. */
static float largest(const float *x, int n) {
    float most = 0, odd = 0;
    for (int i = 0; i < n; i++) {
        const float size = fabsf(x[i]);
        most = size > most ? size : most;
        odd += x[i] * 0.0f; /* not 0 of infinities and NaNs */
    }
    return odd == 0 ? most : NAN;
}

float kv_quantise(enum kv_form form, const float *x, int n, float given, uint8_t *codes) {
    const float most = largest(x, n);
    const bool counts = most >= LEAST; /* not NaN either */
    const float top = form == KV_INT8 ? INT8_MOST : E4M3_MOST;
    const float scale = given > 0 ? given : counts ? most / top : 0, inverse = top / most;
    if (!counts) {
        memset(codes, 0, (size_t)n);
        return most < LEAST ? scale : NAN;
    }
    for (int i = 0; i < n; i++) {
        const float y = given > 0 ? x[i] / scale : x[i] * inverse;
        codes[i] = form == KV_INT8 ? int8_code(y) : e4m3_code(y);
    }
    return scale;
}

float kv_code_value(enum kv_form form, uint8_t code) {
    return form == KV_INT8 ? (float)(int8_t)code : e4m3_to_f32(code);
}
