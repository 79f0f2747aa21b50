/* The search of scales. A group is looked at some ten times, so this is written in vectors, whose
 * lanes keep the order of the sums on every machine. */
#include "model/quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define LANES 4 /* what every machine passes in registers */
typedef float vf __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static const char *const form_names[WEIGHTS_FORMS] = { "stored", "bf16", "int8", "int4", "fp8" };

const char *weight_form_name(enum weight_form form) { return form_names[form]; }

enum weight_form weight_form_of(const char *name) {
    if (!name) return WEIGHTS_STORED;
    for (int i = WEIGHTS_STORED + 1; i < WEIGHTS_FORMS; i++)
        if (strcmp(name, form_names[i]) == 0) return (enum weight_form)i;
    return WEIGHTS_FORMS;
}

int quantize_group(enum weight_form form, int columns) {
    if (form != WEIGHTS_INT4) return columns;
    for (int group = 128; group >= 32; group /= 2)
        if (columns % group == 0) return group;
    return 0;
}

bool quantize_shape_fill(struct quantize_shape *shape, enum weight_form form, int columns) {
    const int group = quantize_group(form, columns), bits = form == WEIGHTS_INT4 ? 4 : 8;
    if (!group) return false;
    *shape = (struct quantize_shape){ .form = form,
                                      .columns = columns,
                                      .group = group,
                                      .bits = bits,
                                      .row_bytes = (size_t)columns * (size_t)bits / 8,
                                      .scales = columns / group };
    return true;
}

void quantize_planes_fill(struct matrix_planes *planes, const struct quantize_shape *shape) {
    const bool floats = shape->form == WEIGHTS_FP8;
    *planes = (struct matrix_planes){ .form = floats ? MATRIX_E4M3 : MATRIX_INTEGERS,
                                      .bits = shape->bits,
                                      .scales = { .row_bytes = (size_t)shape->scales * 2,
                                                  .type = PLANE_BF16,
                                                  .rows = 1,
                                                  .columns = shape->group },
                                      .zero = floats ? 0 : 1 << (shape->bits - 1),
                                      .factor = 1 };
}

size_t quantize_row_floats(int columns) { return ((size_t)columns + LANES - 1) / LANES * LANES; }

/* ---- what a code gives back ------------------------------------------------------------------ */

static inline vf load(const float *p) { return *(const vf *)p; }

/* a where the mask is set, else b */
static inline vf choose(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

/* To the nearest integer, even at halves, of |x| < 2^22: the sum has no room for a fraction. */
static inline vf nearest(vf x, float magic) { return (x + magic) - magic; }
#define MAGIC 0x1.8p23f

static inline vf nearest_integer(vf x, float least, float most) {
    const vf zero = { 0 }, low = zero + least, high = zero + most;
    x = choose(x < low, low, x);
    x = choose(x > high, high, x);
    return nearest(x, MAGIC);
}

#define E4M3_MOST      448.0f
#define E4M3_NORMAL    0x1p-6f /* below it steps are 2^-9 */
#define E4M3_LOST_BITS 20      /* of a float's fraction */

/* The nearest float of 8 bits, even at halves, the largest beyond it. */
static inline vf nearest_e4m3(vf x) {
    const vi sign = (vi)x & INT32_MIN;
    vi size = (vi)x & INT32_MAX;
    const vf small = nearest((vf)size, MAGIC * 0x1p-9f);
    const vi odd = (size >> E4M3_LOST_BITS) & 1;
    const vi few = (size + (1 << (E4M3_LOST_BITS - 1)) - 1 + odd) & -(1 << E4M3_LOST_BITS);
    vf y = choose((vf)size < E4M3_NORMAL, small, (vf)few);
    const vf zero = { 0 }, most = zero + E4M3_MOST;
    y = choose(y > most, most, y);
    return (vf)((vi)y | sign);
}

/* The range of codes: of fp8 only where it ends matters. */
struct range {
    bool floats;
    float least, most;
};

static struct range range_of(const struct quantize_shape *shape) {
    if (shape->form == WEIGHTS_FP8) return (struct range){ true, -E4M3_MOST, E4M3_MOST };
    const float least = (float)-(1 << (shape->bits - 1));
    return (struct range){ false, least, -least - 1 };
}

static inline vf code_of(vf x, struct range range, bool floats) {
    return floats ? nearest_e4m3(x) : nearest_integer(x, range.least, range.most);
}

static double sum_of(vf x) {
    double sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += (double)x[i];
    return sum;
}

/* ---- a group --------------------------------------------------------------------------------- */

/* What one scale makes of a group. */
struct trial {
    float scale;
    double lost;                 /* sum of squared errors */
    double with_codes, of_codes; /* sums of weight * code and of code * code */
};

__attribute__((always_inline)) static inline void try_form(struct trial *t, const float *w, int n,
                                                           struct range range, bool floats) {
    const float scale = t->scale, inverse = 1 / scale;
    vf lost = { 0 }, with_codes = { 0 }, of_codes = { 0 };
    for (int i = 0; i < n; i += LANES) {
        const vf x = load(w + i), code = code_of(x * inverse, range, floats);
        const vf off = x - code * scale;
        lost += off * off;
        with_codes += x * code;
        of_codes += code * code;
    }
    t->lost = sum_of(lost);
    t->with_codes = sum_of(with_codes);
    t->of_codes = sum_of(of_codes);
}

static void try_scale(struct trial *t, const float *w, int n, struct range range) {
    if (range.floats)
        try_form(t, w, n, range, true);
    else
        try_form(t, w, n, range, false);
}

/* The scale as it is stored. It stays a normal float, so that its inverse is one, too. */
static float stored_scale(double scale) {
    const float x = bf16_to_f32(bf16_from_f32((float)scale));
    return x < FLT_MIN ? FLT_MIN : x > 0x1p126f ? 0x1p126f : x;
}

/* Candidates, the first of which reaches the largest weight. Of integers the largest weight is
 * worth 1 to 2 times the largest code, so that the largest weights are cut off for finer steps.
 * Floats of 8 bits keep their precision over many binades: the largest weight moves through the
 * last one instead. Rows of int8 have so fine steps that cutting off pays only where single weights
 * stick out: fewer candidates find that. */
static int candidates(struct range range) { return !range.floats && range.most > 7 ? 4 : 12; }

static double candidate(int i, float largest, struct range range) {
    const double part = (double)i / candidates(range);
    if (range.floats) return (double)largest / E4M3_MOST * exp2(part);
    return (double)largest / (((double)range.most - (double)range.least) / 2) / (1 + part);
}

static void search_scale(struct trial *best, const float *w, int n, float largest,
                         struct range range) {
    for (int i = 1; i < candidates(range); i++) {
        struct trial t = { .scale = stored_scale(candidate(i, largest, range)) };
        try_scale(&t, w, n, range);
        if (t.lost < best->lost) *best = t;
    }
    /* For the codes that this scale gives, another one fits best: least squares. */
    for (int i = 0; i < 2 && best->of_codes > 0; i++) {
        struct trial t = { .scale = stored_scale(best->with_codes / best->of_codes) };
        if (t.scale == best->scale) return;
        try_scale(&t, w, n, range);
        if (t.lost >= best->lost) return;
        *best = t;
    }
}

/* Of a group's weights. */
struct extent {
    float largest; /* NaN or infinite where one of them is */
    double squares;
};

static struct extent extent_of(const float *w, int n) {
    vf most = { 0 }, squares = { 0 }, odd = { 0 };
    for (int i = 0; i < n; i += LANES) {
        const vf x = load(w + i), size = (vf)((vi)x & INT32_MAX);
        most = choose(size > most, size, most);
        squares += x * x;
        odd += x * 0.0f; /* not 0 of infinities and NaNs */
    }
    struct extent e = { .squares = sum_of(squares) };
    for (int i = 0; i < LANES; i++)
        if (most[i] > e.largest) e.largest = most[i];
    if (sum_of(odd) != 0) e.largest = NAN;
    return e;
}

static unsigned char e4m3_code(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 24 & 0x80;
    const float size = fabsf(x);
    if (size < E4M3_NORMAL) return (unsigned char)(sign | (uint32_t)(size * 0x1p9f));
    return (unsigned char)(sign | (((bits & INT32_MAX) >> E4M3_LOST_BITS) - (120u << 3)));
}

/* Codes of columns first to first + n. */
static void write_codes(const struct quantize_shape *shape, const float *row, int first, int n,
                        float scale, unsigned char *codes) {
    const struct range range = range_of(shape);
    const float inverse = 1 / scale;
    for (int i = 0; i < n; i += LANES) {
        const vf x = load(row + first + i) * inverse;
        const vf y = code_of(x, range, range.floats);
        for (int j = 0; j < LANES && i + j < n; j++) {
            const int k = first + i + j;
            const unsigned char code =
                range.floats ? e4m3_code(y[j]) : (unsigned char)(int)(y[j] - range.least);
            if (shape->bits == 8)
                codes[k] = code;
            else if (k % 2 == 0)
                codes[k / 2] = code;
            else
                codes[k / 2] = (unsigned char)(codes[k / 2] | code << 4);
        }
    }
}

bool quantize_row(const struct quantize_shape *shape, const float *row, bool search,
                  unsigned char *codes, uint16_t *scales, struct quantize_error *error) {
    const struct range range = range_of(shape);
    for (int g = 0; g < shape->scales; g++) {
        const int first = g * shape->group;
        const float *w = row + first;
        const int n = (int)quantize_row_floats(shape->group);
        const struct extent e = extent_of(w, n);
        struct trial best = { .scale = 1 }; /* of nothing but zeros */
        if (!isfinite(e.largest)) return false;
        if (e.largest > 0) {
            best.scale = stored_scale(candidate(0, e.largest, range));
            try_scale(&best, w, n, range);
            if (search) search_scale(&best, w, n, e.largest, range);
        }
        write_codes(shape, row, first, shape->group, best.scale, codes);
        scales[g] = bf16_from_f32(best.scale);
        error->lost += best.lost;
        error->all += e.squares;
    }
    return true;
}
