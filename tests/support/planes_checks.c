#include "tests/support/planes_checks.h"

#include "cpu/tile.h"
#include "tests/support/tile_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY 200

static uint64_t random_bits(void) { /* splitmix64 */
    static _Thread_local uint64_t state;
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float random_value(void) { return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1.0); }

static void *take(size_t n) {
    void *p = aligned_alloc(64, (n + 127) / 64 * 64);
    if (!p) abort();
    memset(p, 0xff, (n + 127) / 64 * 64); /* NaN in every float type */
    return p;
}

/* ---- matrices ---- */

/* What files have, and what none has so far. */
static const struct variant {
    const char *name;
    enum matrix_form form;
    int bits, zero;
    enum plane_type scales;
    bool with_scales, with_zeros;
    enum plane_type zeros;
    int block_rows; /* that share a scale */
    float factor;
} variants[] = {
    { "int8", MATRIX_INTEGERS, 8, 128, PLANE_F32, true, false, PLANE_U8, 1, 1 },
    { "int8, bf16 scales", MATRIX_INTEGERS, 8, 128, PLANE_BF16, true, false, PLANE_U8, 1, 0.5f },
    { "int8, zero point 100", MATRIX_INTEGERS, 8, 100, PLANE_F16, true, false, PLANE_U8, 1, 1 },
    { "int8, zero points", MATRIX_INTEGERS, 8, 0, PLANE_F16, true, true, PLANE_U8, 1, 1 },
    { "int8, no scales", MATRIX_INTEGERS, 8, 128, PLANE_F32, false, false, PLANE_U8, 1, 0.25f },
    { "int4", MATRIX_INTEGERS, 4, 8, PLANE_F16, true, false, PLANE_U8, 1, 1 },
    { "int4, zero points", MATRIX_INTEGERS, 4, 0, PLANE_BF16, true, true, PLANE_U8, 1, 1 },
    { "int4, zeros of a half", MATRIX_INTEGERS, 4, 0, PLANE_F16, true, true, PLANE_F16, 1, 1 },
    { "e4m3", MATRIX_E4M3, 8, 0, PLANE_F32, true, false, PLANE_U8, 3, 1 },
    { "e4m3, e8m0 scales", MATRIX_E4M3, 8, 0, PLANE_E8M0, true, false, PLANE_U8, 1, 1 },
    { "e4m3, one factor", MATRIX_E4M3, 8, 0, PLANE_F32, false, false, PLANE_U8, 1, 0.125f },
    { "e2m1, e4m3 scales", MATRIX_E2M1, 4, 0, PLANE_E4M3, true, false, PLANE_U8, 1, 0.01f },
    { "e2m1, e8m0 scales", MATRIX_E2M1, 4, 0, PLANE_E8M0, true, false, PLANE_U8, 1, 1 },
    { "table", MATRIX_TABLE, 4, 0, PLANE_F32, true, false, PLANE_U8, 1, 1 },
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static const int groups[] = { 16, 32, 128, 96, 48, 7, 1 << 20 };
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* 6240 takes several pieces of every kind. */
static const int lengths[] = { 1, 2, 15, 16, 31, 32, 33, 47, 64, 100, 135, 576, 1031, 6240 };
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

struct coded {
    struct matrix m;
    struct matrix_planes planes;
    float table[16];
    unsigned char *codes, *scales, *zeros;
    int *order;
    char name[80];
};

static size_t value_bytes(enum plane_type type) {
    return type == PLANE_F32 ? 4 : type == PLANE_F16 || type == PLANE_BF16 ? 2 : 1;
}

static void put_scale(enum plane_type type, unsigned char *p) {
    const float x = random_value();
    const uint16_t f16 = f16_from_f32(x), bf16 = bf16_from_f32(x);
    if (type == PLANE_F32) memcpy(p, &x, sizeof x);
    if (type == PLANE_F16) memcpy(p, &f16, sizeof f16);
    if (type == PLANE_BF16) memcpy(p, &bf16, sizeof bf16);
    if (type == PLANE_E4M3) *p = (unsigned char)(random_bits() % 127);
    if (type == PLANE_E8M0) *p = (unsigned char)(random_bits() % 9 ? 120 + random_bits() % 12 : 0);
    if (type == PLANE_U8) *p = (unsigned char)(random_bits() % 16);
}

/* A plane [rows / block_rows, columns / group], rows of it a byte apart from each other. */
static struct matrix_plane new_plane(enum plane_type type, int rows, int columns, int block_rows,
                                     int group, unsigned char **memory) {
    const size_t n = (size_t)((columns - 1) / group + 1), each = value_bytes(type);
    const size_t row_bytes = n * each + 1, n_rows = (size_t)((rows - 1) / block_rows + 1);
    *memory = take(row_bytes * n_rows);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n; i++)
            put_scale(type, *memory + r * row_bytes + i * each);
    return (struct matrix_plane){ *memory, row_bytes, type, block_rows, group };
}

static void release(struct coded *c) {
    free(c->codes), free(c->scales), free(c->zeros), free(c->order);
}

/* `nan_at` is the code that becomes NaN, or -1; `ordered`: columns are of the groups that an order
 * names. Codes end where the allocation does, so that a sanitizer sees what is read behind them. */
static void make(struct coded *c, const struct variant *v, int rows, int columns, int group,
                 bool ordered, int nan_at) {
    *c = (struct coded){
        .planes = { .form = v->form, .bits = v->bits, .zero = v->zero, .factor = v->factor }
    };
    const size_t row_bytes = ((size_t)columns * (size_t)v->bits + 7) / 8;
    c->codes = malloc(row_bytes * (size_t)rows);
    if (!c->codes) abort();
    for (size_t i = 0; i < row_bytes * (size_t)rows; i++) {
        c->codes[i] = (unsigned char)random_bits();
        if (v->form == MATRIX_E4M3 && (c->codes[i] & 127) == 127) c->codes[i] = 0;
    }
    if (nan_at >= 0) c->codes[nan_at] |= 127;
    if (v->with_scales)
        c->planes.scales = new_plane(v->scales, rows, columns, v->block_rows, group, &c->scales);
    if (v->with_zeros) c->planes.zeros = new_plane(v->zeros, rows, columns, 1, group, &c->zeros);
    for (int i = 0; i < 16; i++)
        c->table[i] = random_value();
    if (v->form == MATRIX_TABLE) c->planes.table = c->table;
    if (ordered) {
        c->order = take((size_t)columns * sizeof *c->order);
        for (int k = 0; k < columns; k++)
            c->order[k] = (int)(random_bits() % (uint64_t)columns);
        c->planes.order = c->order;
    }
    c->m = (struct matrix){ .rows = rows,
                            .columns = columns,
                            .row_bytes = row_bytes,
                            .data = c->codes,
                            .planes = &c->planes };
    snprintf(c->name, sizeof c->name, "%s, groups of %d%s, %d columns", v->name, group,
             ordered ? " in an order" : "", columns);
}

/* Every variant, group and length, or each `every`-th of them; one matrix in ten has an order. */
static bool each_case(bool (*check)(const struct kernels *, const struct coded *, int, char *),
                      const struct kernels *k, int rows, int every, char *why) {
    int n = 0, count = 0;
    for (int v = 0; v < N_VARIANTS; v++)
        for (int g = 0; g < N_GROUPS; g++)
            for (int i = 0; i < N_LENGTHS; i++) {
                struct coded c;
                if (count++ % every) continue;
                make(&c, &variants[v], rows, lengths[i], groups[g], n % 10 == 3, -1);
                const bool good = check(k, &c, n++, why);
                release(&c);
                if (!good) return false;
            }
    return true;
}

/* ---- what weights are worth ---- */

static bool same_bits(const float *a, const float *b, int n, int *where) {
    for (*where = 0; *where < n; (*where)++) {
        const float x = a[*where], y = b[*where];
        if (memcmp(&x, &y, sizeof x) != 0 && !(x == 0 && y == 0)) return false;
    }
    return true;
}

static bool widen_case(const struct kernels *k, const struct coded *c, int i, char *why) {
    const int columns = c->m.columns, r = i % c->m.rows, n_steps = (columns - 1) / BLOCK + 1;
    const int first = i % n_steps * BLOCK, n = (i / 3) % (columns - first) + 1;
    float *want = take((size_t)columns * sizeof *want), *got = take((size_t)columns * sizeof *got);
    int at = 0;
    matrix_row_f32(&c->m, r, want);
    k->planes_widen(&c->m, r, 0, columns, got);
    bool good = same_bits(got, want, columns, &at);
    if (good) {
        memset(got, 0xff, (size_t)columns * sizeof *got);
        k->planes_widen(&c->m, r, first, n, got);
        good = same_bits(got, want + first, n, &at) && (n == columns || isnan(got[n]));
    }
    if (!good) snprintf(why, WHY, "%s, row %d: %.9g at %d", c->name, r, (double)got[at], at);
    free(want), free(got);
    return good;
}

static bool check_widen(const struct kernels *k, char *why) {
    return each_case(widen_case, k, 4, 3, why);
}

/* ---- one vector and several ---- */

struct vectors {
    struct cpu_vector v[MOST_COLUMNS];
    struct cpu_columns x;
};

static struct cpu_vector new_vector(const struct kernels *k, int columns) {
    const size_t n = ((size_t)columns + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD;
    struct cpu_vector v = { { take(2 * n), take(2 * n) },
                            take(4 * n),
                            take(n / BLOCK * 4),
                            take(4 * n),
                            NAN,
                            take(n / BLOCK * 4),
                            take(vector_blocks(n) * sizeof(struct cpu_block)) };
    float *x = take((size_t)columns * sizeof *x);
    for (int i = 0; i < columns; i++)
        x[i] = random_value();
    k->round_vector(x, columns, &v);
    free(x);
    return v;
}

static void free_vector(struct cpu_vector *v) {
    free(v->bf16[0]), free(v->bf16[1]), free(v->blocks);
    free(v->values), free(v->sums), free(v->digits), free(v->digit_sums);
}

/* A row as it is worth, and its codes times their scales without zero points. */
struct exact {
    float *row, *codes;
};

static struct exact exact_row(const struct coded *c, int r) {
    const size_t bytes = (size_t)c->m.columns * sizeof(float);
    struct exact e = { take(bytes), take(bytes) };
    struct matrix_planes planes = c->planes;
    const struct matrix without = { .rows = c->m.rows,
                                    .columns = c->m.columns,
                                    .row_bytes = c->m.row_bytes,
                                    .data = c->m.data,
                                    .planes = &planes };
    planes.zeros.data = NULL;
    planes.zero = 0;
    matrix_row_f32(&c->m, r, e.row);
    matrix_row_f32(&without, r, e.codes);
    return e;
}

static void exact_free(struct exact *e) { free(e->row), free(e->codes); }

/* Whether y is the sum of row r, e, times x: a weight is rounded when its scale is made and when it
 * is multiplied, and a lane's sum is of a product for each step and a few more, each rounded.
 * Integers and their zero points are multiplied apart, and each is rounded. `rounded`: what else
 * rounding may take of a product. */
static bool is_dot(const struct coded *c, int r, const struct exact *e, const float *x, double y,
                   double rounded, char *why) {
    double sum = 0, magnitude = 0;
    for (int i = 0; i < c->m.columns; i++) {
        const double product = (double)e->row[i] * (double)x[i];
        sum += product;
        magnitude += fabs(product) + fabs((double)e->codes[i] * (double)x[i]) +
                     fabs((double)(e->codes[i] - e->row[i]) * (double)x[i]);
    }
    const double bound =
        ((c->m.columns / BLOCK + 16) * 0x1p-24 + rounded) * magnitude +
        (rounded > 0 ? 0x1p-120 : 1e-38); /* AMX takes what has no leading bit for 0 */
    if (fabs(y - sum) <= bound) return true;
    snprintf(why, WHY, "%s, row %d: %.9g, expected %.9g within %.3g", c->name, r, y, sum, bound);
    return false;
}

static bool products_case(const struct kernels *k, const struct coded *c, int i, char *why) {
    const int rows = c->m.rows, first = 1, last = rows - 1, n = 2 + i % (MOST_COLUMNS - 1);
    const size_t room = ((size_t)c->m.columns + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD;
    struct cpu_vector v[MOST_COLUMNS];
    struct cpu_columns x = { n,
                             (n + 1) & ~1,
                             v,
                             take(MOST_COLUMNS * room * 4),
                             take(room / BLOCK * COLUMN_SUMS * 4),
                             take(MOST_COLUMNS * room * 4),
                             { NAN },
                             take(room / BLOCK * COLUMN_SUMS * 4),
                             take(MOST_COLUMNS * 2 * BLOCK * vector_blocks(room)),

                             take(MOST_COLUMNS * 2 * vector_blocks(room) * 4) };
    float *alone[MOST_COLUMNS], *together[MOST_COLUMNS];
    bool good = true;
    memset(x.sums, 0, room / BLOCK * COLUMN_SUMS * 4);
    for (int j = 0; j < n; j++) {
        v[j] = new_vector(k, c->m.columns);
        alone[j] = take((size_t)rows * sizeof(float));
        together[j] = take((size_t)rows * sizeof(float));
        k->spread_column(&v[j], c->m.columns, &x, j);
        kernels_rows(k, &c->m, &v[j], first, last, alone[j]);
    }
    kernels_columns(k, &c->m, &x, first, last, together);
    for (int r = 0; r < rows && good; r++) {
        if (r >= first && r < last) {
            struct exact e = exact_row(c, r);
            good = is_dot(c, r, &e, v[0].values, (double)alone[0][r], 0, why);
            exact_free(&e);
        } else {
            good = isnan(alone[0][r]);
        }
        if (!good && isnan(alone[0][r])) snprintf(why, WHY, "%s, row %d", c->name, r);
    }
    for (int j = 0; j < n; j++) {
        if (good && memcmp(alone[j], together[j], (size_t)rows * sizeof(float)) != 0) {
            snprintf(why, WHY, "%s, vector %d of %d: not the bits it has alone", c->name, j, n);
            good = false;
        }
        free(alone[j]), free(together[j]), free_vector(&v[j]);
    }
    free(x.values), free(x.sums), free(x.digits), free(x.digit_sums);
    free(x.bytes), free(x.factors);
    return good;
}

static bool check_products(const struct kernels *k, char *why) {
    return each_case(products_case, k, 6, 3, why);
}

/* ---- NaN ---- */

/* A row with a code that is NaN is NaN, and no other. */
static bool check_nan(const struct kernels *k, char *why) {
    enum { ROWS = 4 };
    static const int where[] = { 0, 17, 31, 70, 99, 101 };
    for (int v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
            enum { COLUMNS = 102 };
            struct coded c;
            float y[ROWS], row[COLUMNS];
            if (variants[v].form != MATRIX_E4M3) continue;
            make(&c, &variants[v], ROWS, COLUMNS, 32, false, 2 * COLUMNS + where[i]);
            struct cpu_vector x = new_vector(k, COLUMNS);
            bool good = true;
            kernels_rows(k, &c.m, &x, 0, ROWS, y);
            for (int r = 0; r < ROWS; r++) {
                k->planes_widen(&c.m, r, 0, COLUMNS, row);
                good = good && isnan(y[r]) == (r == 2);
                for (int j = 0; j < COLUMNS; j++)
                    good = good && isnan(row[j]) == (r == 2 && j == where[i]);
            }
            release(&c), free_vector(&x);
            if (good) continue;
            snprintf(why, WHY, "%s, column %d", c.name, where[i]);
            return false;
        }
    return true;
}

/* ---- many vectors ---- */

static bool tile_case(const struct kernels *k, const struct coded *c, int i, char *why) {
    const int columns = c->m.columns, m = 1 + i % 7, first = i % 3 == 0 ? 64 : 0;
    const int panels = i % 2 ? PANELS : PANELS / 2;
    /* Of weights as two terms what they leave, and the product of both second terms. */
    const double rounded = k->split_panel ? 0x1p-17 : 0;
    float *x = take((size_t)m * (size_t)columns * 4);
    struct tile_rows rows;
    for (int n = 0; n < m * columns; n++)
        x[n] = random_value();
    tile_rows_make(&rows, k, true, x, m, columns);
    struct tile_scratch scratch;
    float *floats = take(tile_scratch_floats(m) * sizeof *floats);
    bool good = true;
    tile_scratch_place(&scratch, floats);
    tile_product(k, &c->m, first, panels, &rows.input, &scratch, scratch.c);
    for (int lane = 0; lane < TILE_ROWS && good; lane++) {
        const int r = first + lane;
        const bool ours = lane < panels * PANEL_LANES, is_row = ours && r < c->m.rows;
        struct exact e = { 0 };
        if (is_row) e = exact_row(c, r);
        for (int j = 0; j < m && good; j++) {
            const float got = scratch.c[j * TILE_ROWS + lane];
            if (!ours)
                good = isnan(got); /* not ours to write */
            else if (is_row)
                good = is_dot(c, r, &e, rows.values + (size_t)j * (size_t)columns, (double)got,
                              rounded, why);
            if (!good && isnan(got)) snprintf(why, WHY, "%s, lane %d", c->name, lane);
        }
        exact_free(&e);
    }
    tile_rows_free(&rows);
    free(x), free(floats);
    return good;
}

static bool check_tile(const struct kernels *k, char *why) {
    return each_case(tile_case, k, 70, 5, why);
}

const struct kernel_check planes_checks[N_PLANES_CHECKS] = {
    { "widened codes have the bits of the reference", check_widen },
    { "a vector times codes equals the exact sum, and several have the bits of each alone",
      check_products },
    { "a code that is not a number makes its row not a number", check_nan },
    { "many vectors times a tile of codes equal the exact sums", check_tile },
};
