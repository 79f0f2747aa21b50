/* What a GPU's plan does otherwise where weights are narrow: docs/EXPERIMENTS.md, "Shorter
 * chains". */
#include "model/synthetic.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    COLUMNS_128 = 3, /* share a scale */
    INT4 = TILE_FORMAT(TILE_INT4, COLUMNS_128, TILE_SCALE_BF16, TILE_NO_OFFSETS),
    INT8 = TILE_FORMAT(TILE_INT8, TILE_GROUP_ROW, TILE_SCALE_F32, TILE_NO_OFFSETS),
    Q4_1 = TILE_FORMAT(TILE_UINT4, 1, TILE_SCALE_F16, TILE_MINIMA), /* 32 columns */
    FP8 = TILE_FORMAT(TILE_E4M3, COLUMNS_128, TILE_SCALE_BF16, TILE_NO_OFFSETS)
};

static struct plan plan_of(const char *name, int format, int hops) {
    struct reel_error err = { 0 };
    struct buffer text = { 0 };
    struct model_source source = { 0 };
    struct model_config config = { 0 };
    struct plan_options options = { .hops = hops };
    struct plan p;
    bool found = false;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        options.formats[i] = format;
    assert_int_equal(synthetic_shape_config(&text, name, &found, &err), REEL_OK);
    assert_true(found);
    const struct reel_memory_file file = { "config.json", text.bytes, text.size };
    assert_int_equal(model_source_open_memory(&source, name, &file, 1, &err), REEL_OK);
    assert_int_equal(model_config_read(&config, &source, &err), REEL_OK);
    model_source_release(&source);
    buffer_release(&text);
    if (plan_make(&p, &config, plan_known_gpu("h200"), &options, &err) != REEL_OK)
        fail_msg("%s: %s", name, err.text);
    if (plan_check(&p, &config, false, &err) != REEL_OK) fail_msg("%s: %s", name, err.text);
    return p;
}

/* With integers 1.7B's sums reach every SM in one hop, and h is rounded all the same: so it is in
 * the two hops that several columns take, whose ids are those of one. */
static void integers_take_one_hop_where_sums_are_few(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int format, hops;
        bool two_hops, h_pairs;
    } all[] = {
        { "qwen3-0.6b", INT4, 0, false, false }, { "qwen3-1.7b", INT4, 0, false, true },
        { "qwen3-1.7b", INT8, 0, false, true },  { "qwen3-1.7b", FP8, 0, true, true },
        { "qwen3-1.7b", 0, 0, true, false },     { "qwen3-4b", INT4, 0, true, true },
        { "qwen3-1.7b", Q4_1, 0, true, true },   { "qwen3-1.7b", INT4, 1, false, false },
        { "qwen3-1.7b", INT4, 2, true, true },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct plan p = plan_of(all[i].model, all[i].format, all[i].hops);
        struct reel_error err = { 0 };
        struct plan two;
        assert_int_equal(p.two_hops, all[i].two_hops);
        assert_int_equal(p.h_pairs, all[i].h_pairs);
        if (plan_columns(&two, &p, 2, false, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(two.two_hops, p.two_hops || p.h_pairs);
        assert_int_equal(two.h_pairs, p.h_pairs);
    }
}

static void narrow_weights_are_split_early_and_come_by_two_slots(void **state) {
    (void)state;
    const struct plan narrow = plan_of("qwen3-0.6b", INT4, 0), wide = plan_of("qwen3-0.6b", 0, 0);
    struct reel_error err = { 0 };
    struct plan four;
    assert_int_equal(narrow.split_from, 128);
    assert_int_equal(wide.split_from, 256); /* whose ids would be others */
    assert_int_equal(narrow.cap_layers, 2);
    assert_int_equal(plan_columns(&four, &narrow, 4, false, &err), REEL_OK);
    assert_int_equal(four.cap_layers, 1);
    assert_int_equal(four.split_from, 128);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_take_one_hop_where_sums_are_few),
        cmocka_unit_test(narrow_weights_are_split_early_and_come_by_two_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
