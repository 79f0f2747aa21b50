/* The part of a GPU's plan that is about a speech model's audio tower. */
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Qwen3-ASR-0.6B */
static struct model_config speech(void) {
    return (struct model_config){ .family = MODEL_QWEN3_ASR,
                                  .hidden = 1024,
                                  .n_layers = 28,
                                  .n_heads = 16,
                                  .n_kv_heads = 8,
                                  .head_dim = 128,
                                  .rotary_dim = 128,
                                  .intermediate = 3072,
                                  .vocab = 151936,
                                  .max_context = 65536,
                                  .rms_eps = 1e-6f,
                                  .qk_norm = true,
                                  .tied = true,
                                  .rope_theta = 1e6,
                                  .audio = { .n_layers = 18,
                                             .hidden = 896,
                                             .n_heads = 14,
                                             .intermediate = 3584,
                                             .n_bins = 128,
                                             .n_channels = 480,
                                             .window_chunks = 8,
                                             .output_dim = 1024 } };
}

static struct plan plan_of(const struct model_config *config, const char *gpu) {
    static const struct plan_options none;
    struct reel_error err = { 0 };
    struct plan p;
    if (plan_make(&p, config, plan_known_gpu(gpu), &none, &err) != REEL_OK)
        fail_msg("%s", err.text);
    return p;
}

static void the_tower_has_its_weights_and_whole_windows(void **state) {
    (void)state;
    const struct model_config config = speech();
    const struct plan p = plan_of(&config, "h200");
    const struct plan_encoder *e = &p.encoder;
    assert_null(e->none);
    assert_int_equal(e->most_chunks % 8, 0);
    assert_true(e->chunks <= e->most_chunks);
    /* of 186,376,192 parameters all but the first convolution, biases and norms; channels padded
     * from 480 to 512 */
    const uint64_t products = 2ull * 480 * 9 * 512 + 896ull * 7680 + 896ull * 896 + 1024ull * 896 +
                              18ull * (4 * 896 * 896 + 2 * 896 * 3584);
    assert_int_equal(enc_weights_at(&e->shape, ENC_PRODUCTS, 0), 2 * products);
    /* the parts of the scratch memory lie one behind the other */
    const uint64_t at[] = { e->features, e->taps2, e->taps3, e->binned,       e->h, e->x, e->qkv,
                            e->attended, e->wide,  e->out,   e->scratch_bytes };
    for (size_t i = 1; i < sizeof at / sizeof *at; i++)
        assert_true(at[i] > at[i - 1]);
    assert_int_equal(e->out + 1024ull * 4 * 520, e->scratch_bytes);
}

static void products_are_cut_by_what_they_cost(void **state) {
    (void)state;
    const struct model_config config = speech();
    const struct plan p = plan_of(&config, "h200");
    /* many columns want wide items, few rows the two halves of k */
    assert_int_equal(plan_encoder_cut(&p, ENC_CONV2, 8000).blocks, 2);
    assert_int_equal(plan_encoder_cut(&p, ENC_OUT, 390).split_k, 1);
}

static void what_the_kernels_cannot_do_is_said(void **state) {
    (void)state;
    struct model_config config = speech();
    struct plan p = plan_of(&config, "t4"); /* prompts go token by token there */
    assert_int_equal(p.encoder.shape.layers, 0);
    assert_string_equal(p.encoder.none, p.prefill_none);
    config.audio.n_heads = 28; /* of 32 entries: fine */
    p = plan_of(&config, "h200");
    assert_null(p.encoder.none);
    config.audio.n_heads = 16; /* of 56 */
    p = plan_of(&config, "h200");
    assert_non_null(strstr(p.encoder.none, "multiple of 16"));
    config = speech();
    config.audio.window_chunks = 10;
    p = plan_of(&config, "h200");
    assert_non_null(strstr(p.encoder.none, "windows"));
    config = speech();
    config.audio.n_layers = 0;
    p = plan_of(&config, "h200");
    assert_null(p.encoder.none);
    assert_int_equal(p.encoder.scratch_bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tower_has_its_weights_and_whole_windows),
        cmocka_unit_test(products_are_cut_by_what_they_cost),
        cmocka_unit_test(what_the_kernels_cannot_do_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
