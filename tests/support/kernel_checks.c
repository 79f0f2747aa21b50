#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/support/kernel_checks.h"

#include "cpu/blocks.h"
#include "cpu/panels.h"
#include "cpu/tile.h"
#include "tests/support/tile_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WHY 200

/* Rounding of sums in float32: a few hundred additions of 2^-24 each, relative to the sum of
 * magnitudes. */
#define SUM_BOUND 4e-6

/* ---- random input ------------------------------------------------------------------------------
 */

static uint64_t random_bits(void) { /* splitmix64 */
    static _Thread_local uint64_t state;
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float random_value(void) { return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1.0); }

/* Offsets of a block's fp16 scale and minimum; -1 where there is none. */
static void scale_offsets(enum dtype type, int *scale, int *min) {
    *scale = type == DTYPE_Q6_K ? 208 : type == DTYPE_Q3_K ? 108 : type == DTYPE_Q2_K ? 80 : 0;
    bool with_min =
        type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
    *min = with_min ? 2 : type == DTYPE_Q2_K ? 82 : -1;
}

static void put_half(unsigned char *p, float x) {
    uint16_t h = f16_from_f32(x);
    memcpy(p, &h, sizeof h);
}

static void random_weights(enum dtype type, unsigned char *p, size_t n_bytes) {
    int scale, min, block = dtype_block_bytes(type);
    for (size_t i = 0; i < n_bytes; i++)
        p[i] = (unsigned char)random_bits();
    for (size_t i = 0; i < n_bytes; i += (size_t)block) {
        float x = random_value();
        uint16_t h = bf16_from_f32(x);
        switch (type) {
        case DTYPE_F32:
            memcpy(p + i, &x, sizeof x);
            continue;
        case DTYPE_F16:
            put_half(p + i, x);
            continue;
        case DTYPE_BF16:
            memcpy(p + i, &h, sizeof h);
            continue;
        case DTYPE_MXFP4: /* 2^-10 to 2^-3 */
            p[i] = (unsigned char)(118 + random_bits() % 8);
            continue;
        case DTYPE_NVFP4:
            for (size_t j = 0; j < 4; j++)
                p[i + j] = (unsigned char)(random_bits() % 64);
            continue;
        default:
            break;
        }
        scale_offsets(type, &scale, &min);
        put_half(p + i + scale, x * 0.05f);
        if (min >= 0) put_half(p + i + min, random_value() * 0.3f);
    }
}

/* n bytes that end where a page without access begins, so that reading past them dies. */
struct guarded {
    unsigned char *map, *bytes;
    size_t map_bytes;
};

static struct guarded guarded_bytes(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (n + page - 1) / page;
    struct guarded g = { .map_bytes = (pages + 1) * page };
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + pages * page, page, PROT_NONE) != 0) abort();
    g.bytes = g.map + pages * page - n;
    return g;
}

static struct matrix random_matrix(enum dtype type, int rows, int columns, struct guarded *memory) {
    size_t row_bytes = dtype_row_bytes(type, (size_t)columns), n = row_bytes * (size_t)rows;
    *memory = guarded_bytes(n);
    random_weights(type, memory->bytes, n);
    return (struct matrix){ .dtype = type,
                            .rows = rows,
                            .columns = columns,
                            .row_bytes = row_bytes,
                            .data = memory->bytes,
                            .factor = type == DTYPE_NVFP4 ? 0.75f : 0 };
}

/* Panels of the matrix, where the path wants them, in pages that end at one without access. */
static struct guarded give_panels(const struct kernels *k, struct matrix *w) {
    if (!k->from_panels[w->dtype]) return (struct guarded){ 0 };
    const size_t bytes = panels_bytes(w);
    struct guarded g = guarded_bytes((size_t)panels_count(w) * bytes);
    for (int i = 0; i < panels_count(w); i++)
        panels_pack(w, i, g.bytes + (size_t)i * bytes);
    w->panels = g.bytes;
    return g;
}

static void release(const struct guarded *memory, const struct guarded *panels) {
    munmap(memory->map, memory->map_bytes);
    if (panels->map) munmap(panels->map, panels->map_bytes);
}

static void *aligned(size_t n) {
    void *p = aligned_alloc(64, (n + 127) / 64 * 64);
    if (!p) abort();
    memset(p, 0xff, (n + 127) / 64 * 64); /* NaN in every float type */
    return p;
}

static int padded(int n) { return (n + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD; }

/* Values that bf16 holds, or (`fine`) any. */
static float *random_values(int n, bool fine) {
    float *x = aligned((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] = fine ? random_value() : bf16_to_f32(bf16_from_f32(random_value()));
    return x;
}

/* The exact product, and what its rounding errors are relative to. */
static double exact_dot(const struct matrix *w, int r, const float *x, double *magnitude) {
    float *row = malloc((size_t)w->columns * sizeof *row);
    double sum = 0, largest = 0, total = 0;
    if (!row) abort();
    matrix_row_f32(w, r, row);
    for (int i = 0; i < w->columns; i++) {
        sum += (double)row[i] * (double)x[i];
        largest = fmax(largest, fabs((double)row[i]));
        total += fabs((double)x[i]);
    }
    free(row);
    *magnitude = largest * total;
    return sum;
}

static const int plain_columns[] = { 1, 2, 3, 15, 31, 33, 63, 64, 65, 127, 130, 200, 576, 1031 };
static const int block_columns[] = { 32, 64, 96, 160, 288, 576, 1056 };
static const int double_columns[] = { 64, 128, 192, 576, 1088 };
static const int super_columns[] = { 256, 512, 1280 };

static int columns_of(enum dtype type, const int **list) {
    int block = dtype_block_elements(type);
    *list = block == 1    ? plain_columns
            : block == 32 ? block_columns
            : block == 64 ? double_columns
                          : super_columns;
    return (int)(block == 1    ? sizeof plain_columns / sizeof(int)
                 : block == 32 ? sizeof block_columns / sizeof(int)
                 : block == 64 ? sizeof double_columns / sizeof(int)
                               : sizeof super_columns / sizeof(int));
}

/* ---- one vector --------------------------------------------------------------------------------
 */

/* Block formats take vectors of 16 significant bits. */
#define FINE_BOUND 1e-5

/* Fewer rows than AVX-512 takes beside each other, and some that no whole number of such steps has.
 */
enum { FEW_ROWS = 8, MANY_ROWS = 39 };

static struct cpu_vector new_vector(int columns) {
    const size_t n = (size_t)padded(columns);
    return (struct cpu_vector){ { aligned(2 * n), aligned(2 * n) },
                                aligned(4 * n),
                                aligned(n / BLOCK * 4),
                                aligned(4 * n),
                                NAN,
                                aligned(n / BLOCK * 4),
                                aligned(vector_blocks(n) * sizeof(struct cpu_block)) };
}

static void free_vector(struct cpu_vector *v) {
    free(v->bf16[0]), free(v->bf16[1]), free(v->blocks);
    free(v->values), free(v->sums), free(v->digits), free(v->digit_sums);
}

/* What rounding to whole numbers of 16 bits may add to FINE_BOUND: a block's errors are up to half
 * a step each, with any signs. */
static double words_bound(const float *x, int n) {
    double steps = 0, total = 0;
    for (int b = 0; b < n; b += BLOCK) {
        double most = 0;
        for (int i = b; i < b + BLOCK && i < n; i++) {
            most = fmax(most, fabs((double)x[i]));
            total += fabs((double)x[i]);
        }
        steps += most / (127 * 256 + 127);
    }
    return sqrt(BLOCK) * steps / total;
}

/* `large`: one value is a thousand times the others, which must keep their own digits; as words,
 * those of other blocks. */
static bool dot_rows_case(const struct kernels *k, enum dtype type, int rows, int columns,
                          bool fine, bool large, char *why) {
    const int first = 1, last = rows - 1;
    struct guarded memory;
    struct matrix w = random_matrix(type, rows, columns, &memory);
    const struct guarded panels = give_panels(k, &w);
    float *x = random_values(columns, fine), *y = aligned((size_t)rows * sizeof *y);
    struct cpu_vector v = new_vector(columns);
    bool ok = true;
    double bound = fine ? FINE_BOUND : SUM_BOUND;
    if (large) x[columns / 2] = 1000;
    if (k->from_panels[type]) bound += words_bound(x, columns);
    k->round_vector(x, columns, &v);
    k->dot_rows[type](&w, &v, first, last, y);
    for (int r = 0; r < rows && ok; r++) {
        double magnitude, want = exact_dot(&w, r, x, &magnitude);
        if (r < first || r >= last)
            ok = isnan(y[r]);
        else
            ok = fabs((double)y[r] - want) <= bound * magnitude + 1e-30;
        if (!ok)
            snprintf(why, WHY, "%s, %d columns, row %d: %.9g, expected %.9g within %.3g",
                     dtype_name(type), columns, r, (double)y[r], want, bound * magnitude);
    }
    release(&memory, &panels);
    free(x), free(y), free_vector(&v);
    return ok;
}

static bool check_dot_rows(const struct kernels *k, char *why) {
    for (enum dtype type = 0; type < DTYPE_COUNT; type++) {
        const int *columns;
        int n = columns_of(type, &columns);
        const bool blocks = dtype_block_elements(type) > 1;
        for (int i = 0; i < n; i++)
            for (int few = 0; few < 2; few++) {
                const int rows = few ? FEW_ROWS : MANY_ROWS;
                if (!dot_rows_case(k, type, rows, columns[i], false, false, why) ||
                    (blocks && !dot_rows_case(k, type, rows, columns[i], true, false, why)) ||
                    (blocks && !dot_rows_case(k, type, rows, columns[i], true, true, why)))
                    return false;
            }
    }
    return true;
}

/* ---- several vectors ---------------------------------------------------------------------------
 */

/* Each has the bits that it has alone, and rows beside those asked for stay as they are. */
static bool dot_columns_case(const struct kernels *k, enum dtype type, int rows, int columns, int n,
                             char *why) {
    const int first = 1, last = rows - 1;
    struct guarded memory;
    struct matrix w = random_matrix(type, rows, columns, &memory);
    const struct guarded panels = give_panels(k, &w);
    struct cpu_vector vectors[MOST_COLUMNS];
    const size_t room = (size_t)padded(columns);
    struct cpu_columns x = { n,
                             (n + 1) & ~1,
                             vectors,
                             aligned(MOST_COLUMNS * room * 4),
                             aligned(room / BLOCK * COLUMN_SUMS * 4),
                             aligned(MOST_COLUMNS * room * 4),
                             { NAN },
                             aligned(room / BLOCK * COLUMN_SUMS * 4),
                             aligned(MOST_COLUMNS * 2 * BLOCK * vector_blocks(room)),

                             aligned(MOST_COLUMNS * 2 * vector_blocks(room) * 4) };
    float *alone[MOST_COLUMNS], *together[MOST_COLUMNS];
    bool ok = true;
    memset(x.sums, 0, room / BLOCK * COLUMN_SUMS * 4);
    memset(x.digit_sums, 0, room / BLOCK * COLUMN_SUMS * 4);
    for (int c = 0; c < n; c++) {
        float *values = random_values(columns, true);
        vectors[c] = new_vector(columns);
        alone[c] = aligned((size_t)rows * sizeof(float));
        together[c] = aligned((size_t)rows * sizeof(float));
        k->round_vector(values, columns, &vectors[c]);
        k->spread_column(&vectors[c], columns, &x, c);
        k->dot_rows[type](&w, &vectors[c], first, last, alone[c]);
        free(values);
    }
    k->dot_columns[type](&w, &x, first, last, together);
    for (int c = 0; c < n; c++) {
        const bool same = memcmp(alone[c], together[c], (size_t)rows * sizeof(float)) == 0;
        if (ok && !same)
            snprintf(why, WHY, "%s, %d columns, vector %d of %d: not the bits it has alone",
                     dtype_name(type), columns, c, n);
        ok = ok && same;
        free(alone[c]), free(together[c]), free_vector(&vectors[c]);
    }
    release(&memory, &panels);
    free(x.values), free(x.sums), free(x.digits), free(x.digit_sums);
    free(x.bytes), free(x.factors);
    return ok;
}

/* The lists of lengths, and one that takes several pieces at every number of vectors. */
static bool check_dot_columns(const struct kernels *k, char *why) {
    for (enum dtype type = 0; type < DTYPE_COUNT; type++) {
        const int *columns;
        const int block = dtype_block_elements(type);
        const int long_row = block == 1 ? 6247 : block == 32 ? 6240 : 6400; /* 64 has both */
        const int n_lengths = columns_of(type, &columns);
        for (int i = 0; i <= n_lengths; i++)
            for (int n = 2; n <= MOST_COLUMNS; n++)
                for (int few = 0; few < 2; few++)
                    if (!dot_columns_case(k, type, few ? FEW_ROWS : MANY_ROWS,
                                          i < n_lengths ? columns[i] : long_row, n, why))
                        return false;
    }
    return true;
}

/* ---- many vectors ------------------------------------------------------------------------------
 */

static bool tile_case(const struct kernels *k, enum dtype type, int columns, int m, int first,
                      int n_panels, char *why) {
    enum { ROWS = 70 };
    struct guarded memory;
    struct matrix w = random_matrix(type, ROWS, columns, &memory);
    const struct guarded panels = give_panels(k, &w);
    const bool blocks = block_format(type);
    float *x = random_values(m * columns, true);
    struct tile_rows rows;
    tile_rows_make(&rows, k, blocks, x, m, columns);
    /* Of weights as two terms the product of both second terms is left out. */
    const double bound = blocks && k->split_panel ? FINE_BOUND : SUM_BOUND;
    struct tile_scratch scratch;
    float *floats = aligned(tile_scratch_floats(m) * sizeof *floats);
    tile_scratch_place(&scratch, floats);
    tile_product(k, &w, first, n_panels, &rows.input, &scratch, scratch.c);
    bool ok = true;
    for (int i = 0; i < m && ok; i++)
        for (int lane = 0; lane < TILE_ROWS && ok; lane++) {
            float got = scratch.c[i * TILE_ROWS + lane];
            double magnitude = 0, want = NAN;
            if (lane >= n_panels * PANEL_LANES) {
                ok = isnan(got); /* not ours to write */
            } else if (first + lane < ROWS) {
                want = exact_dot(&w, first + lane, rows.values + (size_t)i * (size_t)columns,
                                 &magnitude);
                ok = fabs((double)got - want) <= bound * magnitude + 1e-30;
            }
            if (!ok)
                snprintf(why, WHY, "%s, %d columns, vector %d of %d, row %d: %.9g, expected %.9g",
                         dtype_name(type), columns, i, m, first + lane, (double)got, want);
        }
    release(&memory, &panels);
    tile_rows_free(&rows);
    free(x), free(floats);
    return ok;
}

static bool check_tile(const struct kernels *k, char *why) {
    static const int counts[] = { 1, 2, 3, 4, 5, 6, 7, 13 };
    for (int type = 0; type < DTYPE_COUNT; type++) {
        const int *columns;
        int n = columns_of((enum dtype)type, &columns);
        for (int i = 0; i < n; i++) {
            int m = counts[(i + type) % 8];
            if (!tile_case(k, (enum dtype)type, columns[i], m, 0, PANELS, why)) return false;
            if (!tile_case(k, (enum dtype)type, columns[i], counts[i % 8], 64, 2, why))
                return false;
        }
    }
    return true;
}

/* Strides as attention uses them: panels side by side, steps far apart, adding to what is there. */
static bool check_strides_of(const struct kernels *k, int m, int pairs, char *why) {
    enum { LANES = 5 * PANEL_LANES };
    const size_t n_panels = (size_t)(pairs * LANES * 2), n_a = (size_t)(m * pairs * 2);
    uint16_t *panels = aligned(n_panels * sizeof *panels), *a = aligned(n_a * sizeof *a);
    float *c = aligned((size_t)(m * LANES) * sizeof *c);
    bool right = true;
    for (size_t i = 0; i < n_panels; i++)
        panels[i] = bf16_from_f32(random_value());
    for (size_t i = 0; i < n_a; i++)
        a[i] = bf16_from_f32(random_value());
    for (int i = 0; i < m * LANES; i++)
        c[i] = (float)(i % 512);
    k->gemm(&(struct gemm){ .m = m,
                            .n_panels = 5,
                            .k_pairs = pairs,
                            .a = a,
                            .a_stride = (size_t)pairs * 2,
                            .panels = panels,
                            .panel_stride = 2 * PANEL_LANES,
                            .step_stride = 2 * LANES,
                            .c = c,
                            .c_stride = LANES,
                            .accumulate = true });
    for (int i = 0; i < m * LANES && right; i++) {
        double want = i % 512;
        for (int s = 0; s < 2 * pairs; s++)
            want += (double)bf16_to_f32(a[i / LANES * pairs * 2 + s]) *
                    (double)bf16_to_f32(panels[(s / 2 * LANES + i % LANES) * 2 + s % 2]);
        right = fabs((double)c[i] - want) <= 1e-3;
        if (!right)
            snprintf(why, WHY, "vector %d of %d, lane %d: %.9g, expected %.9g", i / LANES, m,
                     i % LANES, (double)c[i], want);
    }
    free(panels), free(a), free(c);
    return right;
}

static bool check_gemm_strides(const struct kernels *k, char *why) {
    /* The second is more than any path takes at once, both ways. */
    return check_strides_of(k, 7, 9, why) && check_strides_of(k, 101, 150, why);
}

/* ---- elementwise -------------------------------------------------------------------------------
 */

static bool close_to(double got, double want, double bound, const char *what, int i, char *why) {
    if (fabs(got - want) <= bound * fabs(want) + 1e-37 || (isnan(got) && isnan(want))) return true;
    snprintf(why, WHY, "%s, element %d: %.9g, expected %.9g", what, i, got, want);
    return false;
}

static bool check_rounding(const struct kernels *k, char *why) {
    enum { N = 75 };
    float x[N];
    uint16_t got[N];
    static const float special[] = { 0, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, -1e-40f, 3.4e38f };
    for (int turn = 0; turn < 400; turn++) {
        for (int i = 0; i < N; i++) {
            uint32_t bits = (uint32_t)random_bits();
            if (turn & 1) bits = (bits & 0xffff0000u) | 0x8000u; /* exactly half way */
            memcpy(&x[i], &bits, sizeof bits);
            if (turn == 0 && i < 8) x[i] = special[i];
        }
        k->round_bf16(x, N, got);
        for (int i = 0; i < N; i++) {
            uint16_t want = bf16_from_f32(x[i]);
            bool nan = isnan(x[i]) && isnan(bf16_to_f32(got[i]));
            if (got[i] != want && !nan) {
                snprintf(why, WHY, "%.9g becomes 0x%04x, expected 0x%04x", (double)x[i],
                         (unsigned)got[i], (unsigned)want);
                return false;
            }
        }
    }
    return true;
}

/* Whole numbers are within half a step of the values, blocks end with zeros, and a factor is the
 * sum of what they are worth. */
static bool words_case(const struct kernels *k, const float *x, int n, char *why) {
    enum { ROOM = 4 * BLOCK };
    int16_t words[ROOM];
    float factors[2 * ROOM / BLOCK], joined[ROOM];
    const int whole = (n + BLOCK - 1) / BLOCK * BLOCK;
    memset(words, 0xff, sizeof words);
    k->round_words(x, n, words, factors, 1);
    k->join_words(words, factors, 1, whole, joined);
    for (int b = 0; b < whole; b += BLOCK) {
        double most = 0, sum = 0;
        for (int i = b; i < b + BLOCK; i++) {
            if (i < n) most = fmax(most, fabs((double)x[i]));
            sum += (double)joined[i];
        }
        for (int i = b; i < b + BLOCK; i++) {
            const double want = i < n ? (double)x[i] : 0;
            if (fabs((double)joined[i] - want) <= most / 65500 + 0x1p-100 && words[i] != -32768)
                continue;
            snprintf(why, WHY, "value %d of %d: %.9g becomes %.9g, the largest is %.9g", i, n, want,
                     (double)joined[i], most);
            return false;
        }
        const double got = (double)factors[b / BLOCK * 2 + 1];
        if (fabs(got - sum) > 4e-6 * most + 0x1p-100) {
            snprintf(why, WHY, "the sum of block %d: %.9g, expected %.9g", b / BLOCK, got, sum);
            return false;
        }
    }
    return true;
}

static bool check_words(const struct kernels *k, char *why) {
    float x[4 * BLOCK];
    for (int n = 1; n <= 4 * BLOCK; n++) {
        for (int i = 0; i < n; i++)
            x[i] = random_value() * (i % 7 ? 1 : 1000) * (n % 5 ? 1 : 1e-30f);
        if (n % 11 == 0) memset(x, 0, sizeof x);
        if (!words_case(k, x, n, why)) return false;
    }
    /* What is no number leaves none, of its own block alone. */
    static const float special[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 4; i++) {
        int16_t words[2 * BLOCK];
        float factors[4];
        for (int j = 0; j < 2 * BLOCK; j++)
            x[j] = j == 5 + i ? special[i] : random_value();
        k->round_words(x, 2 * BLOCK, words, factors, 1);
        if (!isfinite(factors[0]) && isfinite(factors[2])) continue;
        snprintf(why, WHY, "%.9g: scales %.9g and %.9g", (double)special[i], (double)factors[0],
                 (double)factors[2]);
        return false;
    }
    return true;
}

static bool check_elementwise(const struct kernels *k, char *why) {
    for (int n = 2; n <= 80; n += 2) {
        float x[80], w[80], y[80], z[80], cos[40], sin[40];
        double squares = 0;
        for (int i = 0; i < n; i++) {
            x[i] = random_value() * 8;
            w[i] = random_value();
            squares += (double)x[i] * (double)x[i];
        }
        k->norm(x, w, n, 1e-6f, y);
        for (int i = 0; i < n; i++)
            if (!close_to((double)y[i], (double)x[i] * (double)w[i] / sqrt(squares / n + 1e-6),
                          1e-6, "norm", i, why))
                return false;
        k->swiglu(x, w, n, y);
        for (int i = 0; i < n; i++)
            if (!close_to((double)y[i], (double)x[i] / (1 + exp(-(double)x[i])) * (double)w[i],
                          2e-6, "swiglu", i, why))
                return false;
        for (int i = 0; i < n / 2; i++) {
            cos[i] = random_value();
            sin[i] = random_value();
        }
        memcpy(y, x, sizeof y);
        k->rope(y, n, cos, sin);
        for (int i = 0; i < n / 2; i++) {
            double a = (double)x[i], b = (double)x[n / 2 + i], c = (double)cos[i],
                   s = (double)sin[i];
            if (fabs((double)y[i] - (a * c - b * s)) > 4e-6 ||
                fabs((double)y[n / 2 + i] - (b * c + a * s)) > 4e-6) {
                snprintf(why, WHY, "rope, pair %d of %d", i, n / 2);
                return false;
            }
        }
        memcpy(z, x, sizeof z);
        k->add(z, w, n);
        k->scale(z, 0.5f, n);
        for (int i = 0; i < n; i++)
            if (!close_to((double)z[i], (double)((x[i] + w[i]) * 0.5f), 0, "add, scale", i, why))
                return false;
    }
    return true;
}

/* In pieces as attention takes it: the merged result must be the whole softmax. */
/* Bounds are absolute: what enters a product is rounded to 2^-9. */
static bool check_audio(const struct kernels *k, char *why) {
    for (int n = 1; n <= 80; n++) {
        float x[80], w[80], b[80], y[80];
        double mean = 0, variance = 0;
        for (int i = 0; i < n; i++) {
            x[i] = random_value() * 8;
            w[i] = random_value();
            b[i] = random_value();
            mean += (double)x[i] / n;
        }
        for (int i = 0; i < n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
        k->layer_norm(x, w, b, n, 1e-5f, y);
        for (int i = 0; i < n; i++) {
            double exact = ((double)x[i] - mean) / sqrt(variance + 1e-5) * (double)w[i];
            if (!(fabs((double)y[i] - exact - (double)b[i]) < 4e-6)) {
                snprintf(why, WHY, "layer_norm, %d of %d: %g", i, n, (double)y[i]);
                return false;
            }
        }
        k->gelu(x, b, n, y);
        for (int i = 0; i < n; i++) {
            double z = (double)(x[i] + b[i]), exact = 0.5 * z * erfc(-z * sqrt(0.5));
            if (!(fabs((double)y[i] - exact) < 2e-6)) {
                snprintf(why, WHY, "gelu of %g is %g", z, (double)y[i]);
                return false;
            }
        }
    }
    return true;
}

static bool check_softmax(const struct kernels *k, char *why) {
    for (int n = 1; n <= 70; n++) {
        float scores[70];
        uint16_t p[72];
        double largest = -1e30, total = 0;
        for (int i = 0; i < n; i++) {
            scores[i] = random_value() * 60;
            largest = fmax(largest, (double)scores[i] * 0.5);
        }
        for (int i = 0; i < n; i++)
            total += exp((double)scores[i] * 0.5 - largest);
        float max = -INFINITY, sum = 0;
        int half = n / 2;
        memset(p, 0xff, sizeof p);
        if (half) k->softmax(scores, half, 0.5f, p, &max, &sum);
        float correction = k->softmax(scores + half, n - half, 0.5f, p + 36, &max, &sum);
        if (((n - half) & 1) && p[36 + n - half] != 0) {
            snprintf(why, WHY, "%d scores: the odd neighbour is not cleared", n - half);
            return false;
        }
        if (!close_to((double)sum, total, 1e-5, "sum", n, why) ||
            !close_to((double)max, largest, 1e-6, "max", n, why))
            return false;
        for (int i = 0; i < n; i++) {
            double got = (double)bf16_to_f32(i < half ? p[i] : p[36 + i - half]);
            if (i < half) got *= (double)correction;
            double want = exp((double)scores[i] * 0.5 - largest);
            if (want > 1e-30 && !close_to(got, want, 5e-3, "p", i, why)) return false;
        }
    }
    return true;
}

/* The same numbers as without scales, where the scales are taken out of them first. */
static bool check_scaled_softmax(const struct kernels *k, char *why) {
    for (int n = 1; n <= 70; n++) {
        float scores[70], plain[70], k_scales[70], v_scales[70];
        uint16_t p[72], want[72];
        float max = -INFINITY, sum = 0, want_max = -INFINITY, want_sum = 0;
        memset(p, 0xff, sizeof p);
        for (int i = 0; i < n; i++) {
            plain[i] = random_value() * 60;
            k_scales[i] = ldexpf(1, i % 7 - 3);
            scores[i] = plain[i] / k_scales[i];
            v_scales[i] = 0.5f + (float)i;
        }
        k->softmax(plain, n, 0.5f, want, &want_max, &want_sum);
        k->softmax_scaled(scores, k_scales, v_scales, n, 0.5f, p, &max, &sum);
        if (max != want_max || sum != want_sum || (n & 1 && p[n] != 0)) {
            snprintf(why, WHY, "%d scores: max %g, not %g; sum %g, not %g", n, (double)max,
                     (double)want_max, (double)sum, (double)want_sum);
            return false;
        }
        for (int i = 0; i < n; i++) {
            const double weight = exp((double)plain[i] * 0.5 - (double)max) * (double)v_scales[i];
            const double got = (double)bf16_to_f32(p[i]);
            if (weight > 1e-30 && !close_to(got, weight, 5e-3, "p", i, why)) return false;
        }
    }
    return true;
}

static bool check_widen_kv(const struct kernels *k, char *why) {
    enum { N = 256 };
    uint8_t codes[N];
    uint16_t wide[N + 1];
    for (int form = KV_INT8; form <= KV_FP8; form++)
        for (int n = PANEL_LANES; n <= N; n += PANEL_LANES) {
            for (int i = 0; i < n; i++) /* all, but for e4m3's NaNs */
                codes[i] = (uint8_t)(form == KV_FP8 && (i & 127) == 127 ? 0 : i);
            wide[n] = 0x1234;
            k->widen_kv((enum kv_form)form, codes, (size_t)n, wide);
            for (int i = 0; i < n; i++)
                if (bf16_to_f32(wide[i]) != kv_code_value((enum kv_form)form, codes[i])) {
                    snprintf(why, WHY, "%s, code %d", kv_form_name((enum kv_form)form), codes[i]);
                    return false;
                }
            if (wide[n] != 0x1234) {
                snprintf(why, WHY, "more than %d codes were written", n);
                return false;
            }
        }
    return true;
}

/* ---- DeltaNet ---------------------------------------------------------------------------------
 */

static bool check_gates(const struct kernels *k, char *why) {
    for (int n = 1; n <= 70; n++) {
        float x[70], gate[70], y[70], taps[4 * 70], out[70];
        const float *inputs[4] = { x, gate, x, y };
        for (int i = 0; i < n; i++) {
            x[i] = random_value();
            gate[i] = random_value() * 20;
        }
        for (int i = 0; i < 4 * 70; i++)
            taps[i] = random_value();
        memcpy(y, x, sizeof y);
        k->sigmoid_gate(y, gate, n);
        for (int i = 0; i < n; i++)
            if (!close_to((double)y[i], (double)x[i] / (1 + exp(-(double)gate[i])), 2e-6, "gate", i,
                          why))
                return false;
        k->convolve(inputs, taps, 70, 4, n, out);
        k->convolve(inputs, taps, 70, 4, n, y); /* onto an input */
        for (int i = 0; i < n; i++) {
            double sum = 0, last = (double)x[i] / (1 + exp(-(double)gate[i]));
            for (int j = 0; j < 4; j++)
                sum += (double)taps[j * 70 + i] * (j == 3 ? last : (double)inputs[j][i]);
            if (!(fabs((double)out[i] - sum / (1 + exp(-sum))) <= 4e-6) || out[i] != y[i]) {
                snprintf(why, WHY, "convolve, %d of %d", i, n);
                return false;
            }
        }
    }
    return true;
}

static bool check_gemm_f32(const struct kernels *k, char *why) {
    static const int sizes[][3] = { { 1, 16, 1 }, { 3, 48, 7 }, { 4, 32, 130 }, { 9, 80, 33 } };
    for (size_t t = 0; t < 2 * sizeof sizes / sizeof sizes[0]; t++) {
        const int *s = sizes[t / 2], m = s[0], n = s[1], depth = s[2];
        enum { STRIDE = 160 };
        float *a = random_values(9 * STRIDE, false), *b = random_values(130 * STRIDE, false);
        float *c = random_values(9 * STRIDE, false), *before = random_values(9 * STRIDE, false);
        memcpy(before, c, 9 * STRIDE * sizeof *c);
        const bool accumulate = t & 1;
        k->gemm_f32(&(struct gemm_f32){ m, n, depth, a, STRIDE, b, STRIDE, c, STRIDE, accumulate });
        bool right = true;
        for (int i = 0; i < 9 * STRIDE && right; i++) {
            const int r = i / STRIDE, col = i % STRIDE;
            double sum = (double)before[i], magnitude = 0;
            if (r < m && col < n) {
                sum = accumulate ? sum : 0;
                for (int j = 0; j < depth; j++) {
                    sum += (double)a[r * STRIDE + j] * (double)b[j * STRIDE + col];
                    magnitude += fabs((double)a[r * STRIDE + j] * (double)b[j * STRIDE + col]);
                }
            }
            right = fabs((double)c[i] - sum) <= SUM_BOUND * (magnitude + fabs(sum));
            if (!right) snprintf(why, WHY, "%d x %d x %d, entry %d", m, n, depth, i);
        }
        free(a);
        free(b);
        free(c);
        free(before);
        if (!right) return false;
    }
    return true;
}

static bool check_delta_step(const struct kernels *k, char *why) {
    enum { KEYS = 21, COLUMNS = 48, STRIDE = 64 };
    float *state = random_values(KEYS * STRIDE, false), before[KEYS * STRIDE], out[COLUMNS];
    float *q = random_values(KEYS, false), *key = random_values(KEYS, false);
    float *v = random_values(COLUMNS, false);
    double kq = 0;
    const double alpha = 0.75, beta = 0.5;
    bool right = true;
    for (int i = 0; i < KEYS; i++)
        kq += (double)q[i] * (double)key[i];
    memcpy(before, state, sizeof before);
    k->delta_step(&(struct delta_step){ state, STRIDE, KEYS, COLUMNS, q, key, v, (float)kq, 0.75f,
                                        0.5f, out });
    for (int c = 0; c < STRIDE && right; c++) {
        double said = 0, sum = 0, learned = 0;
        for (int i = 0; i < KEYS; i++)
            said += alpha * (double)before[i * STRIDE + c] * (double)key[i];
        if (c < COLUMNS) learned = beta * ((double)v[c] - said);
        for (int i = 0; i < KEYS && right; i++) {
            double s = (double)before[i * STRIDE + c];
            if (c < COLUMNS) s = alpha * s + (double)key[i] * learned;
            sum += s * (double)q[i];
            right = fabs((double)state[i * STRIDE + c] - s) <= 1e-5;
        }
        if (c < COLUMNS) right = right && fabs((double)out[c] - sum) <= 1e-5;
        if (!right) snprintf(why, WHY, "column %d", c);
    }
    free(state);
    free(q);
    free(key);
    free(v);
    return right;
}

const struct kernel_check kernel_checks[N_KERNEL_CHECKS] = {
    { "a vector times rows of every type equals the exact sum", check_dot_rows },
    { "several vectors times rows have the bits of each alone", check_dot_columns },
    { "many vectors times a tile of every type equal the exact sums", check_tile },
    { "panels and steps may lie anywhere, and results are added", check_gemm_strides },
    { "rounding to bf16 is to nearest even, bit by bit", check_rounding },
    { "whole numbers of a vector are within half a step, and their sums right", check_words },
    { "norm, gate, rotation, sum and scale are right to float32", check_elementwise },
    { "norm of a layer and GELU are right to float32", check_audio },
    { "softmax in two pieces equals softmax in one", check_softmax },
    { "softmax takes the scales of keys and values", check_scaled_softmax },
    { "codes of keys and values become their numbers, exactly", check_widen_kv },
    { "a gate and a convolution are right to float32", check_gates },
    { "a float32 product writes its own entries only", check_gemm_f32 },
    { "a step of the delta rule equals its definition", check_delta_step },
};
