/* Panels: the bytes of 16 rows, in an order that the path with wide registers reads. */
#include "cpu/panels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 18, MOST_BYTES = 1 << 15 };

static unsigned char data[MOST_BYTES], panel[MOST_BYTES];

/* A byte tells its row and its place in the row. */
static unsigned char byte_of(size_t row, size_t at) { return (unsigned char)(row * 37 + at * 11); }

static struct matrix matrix_of(enum dtype type, int columns) {
    const struct matrix m = { .dtype = type,
                              .rows = ROWS,
                              .columns = columns,
                              .row_bytes = dtype_row_bytes(type, (size_t)columns),
                              .data = data };
    assert_true(m.row_bytes * ROWS <= sizeof data);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < m.row_bytes; i++)
            data[r * m.row_bytes + i] = byte_of(r, i);
    return m;
}

static const unsigned char *packed(const struct matrix *m, int i) {
    const size_t n = panels_bytes(m);
    assert_true(n < sizeof panel);
    memset(panel, 0xaa, sizeof panel);
    panels_pack(m, i, panel);
    assert_int_equal(panel[n], 0xaa);
    return panel;
}

/* How often each byte is there. */
static void count(const unsigned char *bytes, size_t n, int counts[256]) {
    for (size_t i = 0; i < n; i++)
        counts[bytes[i]]++;
}

static void a_panel_has_the_bytes_of_its_rows_and_zeros(void **state) {
    (void)state;
    int n_formats = 0;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!panels_hold((enum dtype)type) || type == DTYPE_Q8_0) continue;
        /* Three blocks: no whole number of units of two or four. */
        const struct matrix m =
            matrix_of((enum dtype)type, 3 * dtype_block_elements((enum dtype)type));
        int of_rows[256] = { 0 }, of_panel[256] = { 0 };
        count(data, PANEL_ROWS * m.row_bytes, of_rows);
        count(packed(&m, 0), panels_bytes(&m), of_panel);
        assert_int_equal(panels_bytes(&m) % 64, 0);
        assert_true(of_panel[0] >= of_rows[0]);
        for (int i = 1; i < 256; i++)
            assert_int_equal(of_panel[i], of_rows[i]);
        n_formats++;
    }
    assert_int_equal(n_formats, 10);
}

/* Two blocks' scales of 16 rows, then the words of codes of one and of the other, 128 added. */
static void blocks_of_a_unit_lie_field_by_field(void **state) {
    (void)state;
    const struct matrix m = matrix_of(DTYPE_Q8_0, 96);
    const unsigned char *p = packed(&m, 0);
    assert_int_equal(panels_bytes(&m), 2 * (64 + 2 * 8 * 64));
    for (size_t r = 0; r < PANEL_ROWS; r++)
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(p[2 * r + i], byte_of(r, i));
            assert_int_equal(p[32 + 2 * r + i], byte_of(r, 34 + i));
            assert_int_equal(p[1088 + 2 * r + i], byte_of(r, 68 + i));
        }
    for (size_t b = 0; b < 3; b++)
        for (size_t k = 0; k < 32; k++)
            for (size_t r = 0; r < PANEL_ROWS; r++) {
                const size_t at = b / 2 * 1088 + 64 + b % 2 * 512 + k / 4 * 64 + 4 * r + k % 4;
                assert_int_equal(p[at], byte_of(r, 34 * b + 2 + k) ^ 0x80);
            }
}

/* A word of lower bits has its upper bits behind it. */
static void fields_lie_in_the_order_of_reading(void **state) {
    (void)state;
    const struct matrix m = matrix_of(DTYPE_Q6_K, 256);
    const unsigned char *p = packed(&m, 0);
    for (size_t r = 0; r < PANEL_ROWS; r++)
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(p[64 + 4 * r + i], byte_of(r, 192 + i));
            assert_int_equal(p[320 + 4 * r + i], byte_of(r, i));
            assert_int_equal(p[384 + 4 * r + i], byte_of(r, 128 + i));
            assert_int_equal(p[448 + 4 * r + i], byte_of(r, 4 + i));
            assert_int_equal(p[320 + 1024 + 4 * r + i], byte_of(r, 32 + i));
        }
}

static void the_last_panel_repeats_the_last_row(void **state) {
    (void)state;
    const struct matrix m = matrix_of(DTYPE_Q4_1, 32);
    const unsigned char *p = packed(&m, 1);
    assert_int_equal(panels_count(&m), 2);
    for (size_t r = 0; r < PANEL_ROWS; r++)
        assert_int_equal(p[2 * r], byte_of(r == 0 ? 16 : 17, 0));
}

static void a_model_gets_panels_for_what_wants_them(void **state) {
    (void)state;
    static const bool formats[DTYPE_COUNT] = { [DTYPE_Q4_0] = true, [DTYPE_Q4_1] = true };
    const struct matrix m = matrix_of(DTYPE_Q4_1, 64);
    struct matrix other = m;
    other.dtype = DTYPE_Q5_1;
    struct layer_weights layer = { .q = m, .down = other };
    const struct weights weights = { .embedding = m, .head = m, .layers = &layer, .n_layers = 1 };
    struct panel_weights p;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_open(&pool, 2, NULL), REEL_OK);
    assert_int_equal(panel_weights_open(&p, &weights, formats, pool, NULL), REEL_OK);
    for (int i = 0; i < 2; i++) {
        const size_t bytes = panels_bytes(&m);
        assert_memory_equal(p.weights.head.panels + (size_t)i * bytes, packed(&m, i), bytes);
        assert_memory_equal(p.weights.layers[0].q.panels + (size_t)i * bytes, panel, bytes);
    }
    assert_null(p.weights.layers[0].down.panels); /* not a format that wants them */
    assert_null(p.weights.layers[0].up.panels);   /* no matrix at all */
    assert_null(p.weights.embedding.panels);      /* its rows are looked up */
    assert_null(layer.q.panels);
    /* Panels that are there stay. */
    struct panel_weights again;
    assert_int_equal(panel_weights_open(&again, &p.weights, formats, pool, NULL), REEL_OK);
    assert_ptr_equal(again.weights.head.panels, p.weights.head.panels);
    assert_null(again.memory);
    panel_weights_close(&again);
    panel_weights_close(&p);
    thread_pool_close(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_panel_has_the_bytes_of_its_rows_and_zeros),
        cmocka_unit_test(blocks_of_a_unit_lie_field_by_field),
        cmocka_unit_test(fields_lie_in_the_order_of_reading),
        cmocka_unit_test(the_last_panel_repeats_the_last_row),
        cmocka_unit_test(a_model_gets_panels_for_what_wants_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
