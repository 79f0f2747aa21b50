/* Wide weights made narrow: codes, scales, groups, and whole models while they are loaded. */
#include "base/thread_pool.h"
#include "model/weights_quantize.h"
#include "reel.h"
#include "support/random_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_COLUMNS = 1024, MOST_SCALES = 32 };

static const enum weight_form coded[] = { WEIGHTS_INT8, WEIGHTS_INT4, WEIGHTS_FP8 };
enum { N_CODED = sizeof coded / sizeof *coded };

static uint64_t counter;
static float uniform(void) { /* -1 to 1 */
    counter = counter * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(counter >> 32) * 0x1p-31f;
}

/* Sums of four draws, some of which stick out. */
static void fill(float *row, int columns, float outliers) {
    memset(row, 0, MOST_COLUMNS * sizeof *row);
    for (int k = 0; k < columns; k++)
        row[k] = (uniform() + uniform() + uniform() + uniform()) * 0.02f;
    for (int k = 5; k < columns; k += 97)
        row[k] *= outliers;
}

/* A row in one form. */
struct narrow {
    struct quantize_shape shape;
    struct matrix_planes planes;
    struct matrix matrix;
    unsigned char codes[MOST_COLUMNS];
    uint16_t scales[MOST_SCALES];
    float values[MOST_COLUMNS];
    struct quantize_error error;
};

static bool make(struct narrow *n, enum weight_form form, const float *row, int columns,
                 bool search) {
    memset(n, 0, sizeof *n);
    assert_true(quantize_shape_fill(&n->shape, form, columns));
    if (!quantize_row(&n->shape, row, search, n->codes, n->scales, &n->error)) return false;
    quantize_planes_fill(&n->planes, &n->shape);
    n->planes.scales.data = (const unsigned char *)n->scales;
    n->matrix = (struct matrix){ .rows = 1,
                                 .columns = columns,
                                 .row_bytes = n->shape.row_bytes,
                                 .data = n->codes,
                                 .planes = &n->planes };
    matrix_row_f32(&n->matrix, 0, n->values);
    return true;
}

/* Of all codes the one nearest to x, times the scale. */
static float nearest_value(enum weight_form form, float x, float scale) {
    float best = NAN;
    for (int code = 0; code < (form == WEIGHTS_INT4 ? 16 : 256); code++) {
        const float value = form == WEIGHTS_FP8    ? e4m3_to_f32((uint8_t)code) * scale
                            : form == WEIGHTS_INT4 ? (float)(code - 8) * scale
                                                   : (float)(code - 128) * scale;
        if (isnan(value)) continue;
        if (isnan(best) || fabsf(value - x) < fabsf(best - x)) best = value;
    }
    return best;
}

static void every_weight_gets_the_code_that_is_nearest_to_it(void **state) {
    (void)state;
    static float row[MOST_COLUMNS];
    static struct narrow n;
    for (int f = 0; f < N_CODED; f++) {
        for (int columns = 64; columns <= 576; columns += 512) {
            fill(row, columns, 6);
            row[1] = 1e-9f;             /* e4m3: below its smallest, */
            row[2] = row[5] * 0.00002f; /* and among those without full precision */
            assert_true(make(&n, coded[f], row, columns, true));
            double lost = 0, all = 0;
            for (int k = 0; k < columns; k++) {
                const float scale = bf16_to_f32(n.scales[k / n.shape.group]);
                const float best = nearest_value(coded[f], row[k], scale);
                if (fabsf(n.values[k] - row[k]) > fabsf(best - row[k]) * 1.0001f + 1e-12f)
                    fail_msg("%s: weight %d, %.9g, became %.9g; %.9g is nearer",
                             weight_form_name(coded[f]), k, (double)row[k], (double)n.values[k],
                             (double)best);
                lost += pow((double)row[k] - (double)n.values[k], 2);
                all += pow((double)row[k], 2);
            }
            assert_true(fabs(n.error.lost - lost) < 1e-4 * lost);
            assert_true(fabs(n.error.all - all) < 1e-4 * all);
            assert_true(lost > 0);
        }
    }
}

/* The search is worth its time for int4 and fp8; for int8 where weights stick out. */
static void a_searched_scale_loses_less_than_the_one_that_reaches_the_largest(void **state) {
    (void)state;
    static const float outliers[] = { 1, 4, 40 };
    static float row[MOST_COLUMNS];
    static struct narrow plain, searched;
    for (int f = 0; f < N_CODED; f++) {
        for (int o = 0; o < 3; o++) {
            double least = 0, most = 0;
            for (int i = 0; i < 20; i++) {
                fill(row, 512, outliers[o]);
                assert_true(make(&plain, coded[f], row, 512, false));
                assert_true(make(&searched, coded[f], row, 512, true));
                assert_true(searched.error.lost <= plain.error.lost);
                least += searched.error.lost;
                most += plain.error.lost;
            }
            print_message("%s, weights that stick out %g times: %.1f %% less\n",
                          weight_form_name(coded[f]), (double)outliers[o],
                          100 * (1 - sqrt(least / most)));
            if (coded[f] != WEIGHTS_INT8 && o == 0) assert_true(sqrt(least / most) < 0.96);
        }
    }
}

static void groups_divide_the_columns(void **state) {
    (void)state;
    static const int cases[][2] = { { 1024, 128 }, { 896, 128 }, { 576, 64 }, { 96, 32 },
                                    { 48, 0 },     { 100, 0 },   { 32, 32 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(quantize_group(WEIGHTS_INT4, cases[i][0]), cases[i][1]);
        assert_int_equal(quantize_group(WEIGHTS_INT8, cases[i][0]), cases[i][0]);
        assert_int_equal(quantize_group(WEIGHTS_FP8, cases[i][0]), cases[i][0]);
    }
}

static void rows_of_zeros_tiny_and_huge_weights_have_sound_scales(void **state) {
    (void)state;
    static const float sizes[] = { 0, 1e-42f, 1e-38f, 1e-20f, 1e15f, 3e38f };
    static float row[MOST_COLUMNS];
    static struct narrow n;
    for (int f = 0; f < N_CODED; f++) {
        for (int i = 0; i < 6; i++) {
            memset(row, 0, sizeof row);
            row[3] = sizes[i];
            row[9] = -sizes[i];
            assert_true(make(&n, coded[f], row, 128, true));
            const float scale = bf16_to_f32(n.scales[0]);
            assert_true(scale > 0 && isfinite(scale));
            assert_true(n.values[0] == 0 && n.values[127] == 0);
            if (sizes[i] == 0 || sizes[i] > 1e-30f) {
                assert_true(fabsf(n.values[3] - row[3]) <= 0.08f * sizes[i]);
                assert_true(fabsf(n.values[9] - row[9]) <= 0.08f * sizes[i]);
            }
        }
        const float odd[] = { NAN, INFINITY, -INFINITY };
        for (int i = 0; i < 3; i++) {
            fill(row, 128, 1);
            row[100] = odd[i];
            assert_false(make(&n, coded[f], row, 128, true));
        }
    }
}

static void a_matrix_has_the_same_codes_whatever_the_number_of_threads(void **state) {
    (void)state;
    enum { ROWS = 83, COLUMNS = 160 };
    static float values[ROWS][MOST_COLUMNS];
    for (int r = 0; r < ROWS; r++)
        fill(values[r], COLUMNS, 3);
    const struct matrix from = { .dtype = DTYPE_F32,
                                 .rows = ROWS,
                                 .columns = COLUMNS,
                                 .row_bytes = sizeof values[0],
                                 .data = (const unsigned char *)values };
    for (int f = WEIGHTS_BF16; f < WEIGHTS_FORMS; f++) {
        struct quantized_matrix all[3];
        static const int threads[] = { 1, 2, 5 };
        for (int i = 0; i < 3; i++) {
            struct thread_pool *pool = NULL;
            struct reel_error err;
            assert_int_equal(thread_pool_open(&pool, threads[i], &err), REEL_OK);
            if (quantized_matrix_make(&all[i], &from, "m", (enum weight_form)f, pool, &err))
                fail_msg("%s", err.text);
            thread_pool_close(pool);
            assert_memory_equal(all[i].codes, all[0].codes, ROWS * all[0].matrix.row_bytes);
            assert_memory_equal(&all[i].error, &all[0].error, sizeof all[0].error);
            if (f == WEIGHTS_BF16) continue;
            const size_t scales = all[0].planes->scales.row_bytes;
            assert_memory_equal(all[i].scales, all[0].scales, ROWS * scales);
        }
        float row[MOST_COLUMNS];
        matrix_row_f32(&all[0].matrix, ROWS - 1, row); /* the last row was reached */
        for (int k = 0; k < COLUMNS; k++)
            assert_true(fabsf(row[k] - values[ROWS - 1][k]) < 0.05f);
        assert_true(row[5] != 0);
        for (int i = 0; i < 3; i++)
            quantized_matrix_release(&all[i]);
    }
}

/* ---- models ---- */

static enum reel_status make_all(struct weights *w, enum weight_form form, struct reel_error *err) {
    return weights_quantize(
        w, &(struct quantize_options){ .form = form, .n_threads = 2, .name = "m" }, err);
}

static const struct shape hybrid = { "hybrid", 64,   4,         2,         32,           96,
                                     50,       true, DTYPE_F32, DTYPE_F32, HYBRID | TIED };

static bool is_coded(const struct matrix *m, enum matrix_form form, int bits) {
    return m->planes && m->planes->form == form && m->planes->bits == bits;
}

static void wide_matrices_become_narrow_and_small_ones_stay(void **state) {
    (void)state;
    struct small_model *m = random_model(&hybrid);
    struct weights *w = &m->model.weights;
    struct reel_error err;
    w->n_bytes = 1000000;
    assert_true(w->head.data == w->embedding.data);
    if (make_all(w, WEIGHTS_INT4, &err)) fail_msg("%s", err.text);
    assert_true(is_coded(&w->embedding, MATRIX_INTEGERS, 8));
    assert_memory_equal(&w->head, &w->embedding, sizeof w->head);
    const struct layer_weights *delta = &w->layers[0], *attention = &w->layers[1];
    assert_int_equal(delta->kind, LAYER_DELTA);
    assert_true(is_coded(&delta->delta.qkv, MATRIX_INTEGERS, 4));
    assert_true(is_coded(&delta->delta.z, MATRIX_INTEGERS, 4));
    assert_null(delta->delta.a.planes);
    assert_null(delta->delta.b.planes);
    assert_true(is_coded(&attention->q, MATRIX_INTEGERS, 4));
    assert_true(is_coded(&attention->down, MATRIX_INTEGERS, 4));
    assert_int_equal(attention->down.planes->scales.columns, 32); /* 96 columns */
    assert_int_equal(attention->gate.planes->scales.columns, 64);
    /* 4 bytes a weight became half a byte and a scale for 64, 32 or a row of them */
    uint64_t bytes = 1000000;
    struct wide_matrix all[32];
    const int n = weights_list(w, all);
    assert_int_equal(n, 1 + 6 + 7);
    for (int i = 0; i < n; i++) {
        const uint64_t rows = (uint64_t)all[i].matrix->rows;
        const uint64_t columns = (uint64_t)all[i].matrix->columns;
        const struct matrix_planes *p = all[i].matrix->planes;
        bytes -= 4 * rows * columns;
        bytes += rows * columns * (uint64_t)p->bits / 8;
        bytes += 2 * rows * (columns / (uint64_t)p->scales.columns);
    }
    assert_int_equal(w->n_bytes, bytes);
    /* once more there is nothing left to do, and nothing is touched */
    const struct quantized_weights *made = w->quantized;
    assert_int_equal(make_all(w, WEIGHTS_INT8, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "int8"));
    assert_true(w->quantized == made);
    quantized_weights_release(w->quantized);
    w->quantized = NULL;
    free_model(m);
}

static void what_has_no_group_is_refused_and_left_alone(void **state) {
    (void)state;
    struct shape odd = hybrid;
    odd.inter = 80; /* columns of down */
    struct small_model *m = random_model(&odd);
    struct weights *w = &m->model.weights;
    struct reel_error err;
    assert_int_equal(make_all(w, WEIGHTS_INT4, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layer 0's down"));
    assert_non_null(strstr(err.text, "80"));
    assert_null(w->embedding.planes);
    assert_null(w->quantized);
    ((float *)(void *)(uintptr_t)w->layers[1].up.data)[70] = NAN;
    assert_int_equal(make_all(w, WEIGHTS_FP8, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "layer 1's up: row 1 "));
    assert_null(w->quantized);
    free_model(m);
}

/* ---- the public calls ---- */

static struct reel_model *open_demo(const char *weights) {
    struct reel_model *model = NULL;
    struct reel_error err;
    const struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = "reference", .weights = weights
    };
    if (reel_model_open(&model, "models/demo", &options, &err)) fail_msg("%s", err.text);
    return model;
}

/* Logits behind a few tokens: distance from those of the file's weights, relative. */
static double distance(const struct reel_model *a, const struct reel_model *b) {
    const struct reel_model *both[] = { a, b };
    static float logits[2][1 << 16];
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(a, &info, NULL), REEL_OK);
    for (int i = 0; i < 2; i++) {
        struct reel_session *s = NULL;
        const struct reel_session_options options = { .size = sizeof options, .max_context = 8 };
        const int32_t ids[] = { 300, 17, 400, 1001 };
        struct reel_eval eval = { .size = sizeof eval,
                                  .n = 4,
                                  .ids = ids,
                                  .output = REEL_OUTPUT_LAST_LOGITS,
                                  .out = logits[i],
                                  .out_floats = (size_t)info.vocab };
        struct reel_error err;
        if (reel_session_open(&s, both[i], &options, &err) || reel_session_eval(s, &eval, &err))
            fail_msg("%s", err.text);
        reel_session_close(s);
    }
    double off = 0, all = 0;
    for (int i = 0; i < info.vocab; i++) {
        off += pow((double)(logits[0][i] - logits[1][i]), 2);
        all += pow((double)logits[0][i], 2);
    }
    return sqrt(off / all);
}

static void an_opened_model_says_what_it_has_and_answers_nearly_the_same(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double bits, least, most; /* bits a weight; distances of logits */
    } forms[] = { { "bf16", 16.1, 0, 0 },
                  { "int8", 8.2, 1e-4, 0.03 },
                  { "int4", 5.0, 1e-3, 0.4 },
                  { "fp8", 8.2, 1e-4, 0.1 } };
    struct reel_model *stored = open_demo(NULL);
    for (size_t i = 1; i < sizeof forms / sizeof *forms; i++) {
        struct reel_model *model = open_demo(forms[i].name);
        struct reel_model_info info = { .size = sizeof info };
        assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
        assert_string_equal(info.weight_type, forms[i].name);
        const double bits = 8 * (double)info.weight_bytes / (double)info.n_parameters;
        const double off = distance(stored, model);
        print_message("%s: %.3f bits a weight, logits %.4f off\n", forms[i].name, bits, off);
        assert_true(bits < forms[i].bits && bits > forms[i].bits - 1);
        assert_true(off >= forms[i].least && off <= forms[i].most);
        reel_model_close(model);
    }
    reel_model_close(stored);
}

static void forms_that_there_are_not_are_refused(void **state) {
    (void)state;
    struct reel_model *model = NULL;
    struct reel_error err;
    struct reel_model_options options = { .size = sizeof options, .weights = "int5" };
    assert_int_equal(reel_model_open(&model, "models/demo", &options, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "int5"));
    assert_non_null(strstr(err.text, "bf16, int8, int4 or fp8"));
    options.weights = "stored";
    assert_int_equal(reel_model_open(&model, "models/demo", &options, &err), REEL_E_ARGUMENT);
    options.weights = "bf16"; /* which it has */
    assert_int_equal(reel_model_open(&model, "models/demo", &options, &err), REEL_E_ARGUMENT);
    assert_null(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_gets_the_code_that_is_nearest_to_it),
        cmocka_unit_test(a_searched_scale_loses_less_than_the_one_that_reaches_the_largest),
        cmocka_unit_test(groups_divide_the_columns),
        cmocka_unit_test(rows_of_zeros_tiny_and_huge_weights_have_sound_scales),
        cmocka_unit_test(a_matrix_has_the_same_codes_whatever_the_number_of_threads),
        cmocka_unit_test(wide_matrices_become_narrow_and_small_ones_stay),
        cmocka_unit_test(what_has_no_group_is_refused_and_left_alone),
        cmocka_unit_test(an_opened_model_says_what_it_has_and_answers_nearly_the_same),
        cmocka_unit_test(forms_that_there_are_not_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
