/* The tokenizer's own end of an answer joins the ids that config.json names. */
#include "model/stop_ids.h"
#include "support/small_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum reel_status add(struct model_config *config, const char *tokenizer_config,
                            struct reel_error *err) {
    struct buffer json = { 0 };
    struct model_source source = { 0 };
    struct reel_tokenizer *tok = NULL;
    small_tokenizer_json(&json);
    const struct reel_memory_file files[] = {
        { "tokenizer.json", json.bytes, json.size },
        { "tokenizer_config.json", tokenizer_config,
          tokenizer_config ? strlen(tokenizer_config) : 0 },
    };
    assert_int_equal(
        model_source_open_memory(&source, "memory", files, tokenizer_config ? 2 : 1, err), REEL_OK);
    assert_int_equal(tokenizer_load(&tok, &source, NULL, NULL, NULL), REEL_OK);
    struct model_config looked_up = *config; /* as it is done where no tokenizer is built */
    enum reel_status status = stop_ids_add_tokenizers(config, &source, tok, err);
    assert_int_equal(stop_ids_add_tokenizers(&looked_up, &source, NULL, NULL), status);
    assert_int_equal(looked_up.n_stop_ids, config->n_stop_ids);
    assert_memory_equal(looked_up.stop_ids, config->stop_ids, sizeof config->stop_ids);
    tokenizer_close(tok);
    model_source_release(&source);
    buffer_release(&json);
    return status;
}

static void the_tokenizers_end_joins_the_configs(void **state) {
    (void)state;
    static const char *const configs[] = { "{\"eos_token\": \"<|end|>\"}",
                                           "{\"eos_token\": {\"content\": \"<|end|>\"}}" };
    for (int i = 0; i < 2; i++) {
        struct model_config config = { .vocab = 300, .n_stop_ids = 1, .stop_ids = { 7 } };
        assert_int_equal(add(&config, configs[i], NULL), REEL_OK);
        assert_int_equal(config.n_stop_ids, 2);
        assert_int_equal(config.stop_ids[0], 7);
        assert_int_equal(config.stop_ids[1], 261);
    }
}

static void an_end_that_is_known_unknown_or_not_given_adds_nothing(void **state) {
    (void)state;
    static const char *const configs[] = { "{\"eos_token\": \"<|end|>\"}",
                                           "{\"eos_token\": \"hello\"}",
                                           "{\"eos_token\": \"<|other|>\"}",
                                           "{\"eos_token\": null}",
                                           "{\"eos_token\": 261}",
                                           "{}",
                                           NULL };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct model_config config = { .vocab = 300, .n_stop_ids = 1, .stop_ids = { 261 } };
        assert_int_equal(add(&config, configs[i], NULL), REEL_OK);
        assert_int_equal(config.n_stop_ids, 1);
    }
    struct model_config small = { .vocab = 261 };
    assert_int_equal(add(&small, configs[0], NULL), REEL_OK);
    assert_int_equal(small.n_stop_ids, 0);
    struct model_config full = { .vocab = 300, .n_stop_ids = MODEL_MAX_STOP_IDS };
    assert_int_equal(add(&full, configs[0], NULL), REEL_OK);
    assert_int_equal(full.n_stop_ids, MODEL_MAX_STOP_IDS);
}

static void without_a_tokenizer_the_config_s_own_list_is_looked_up(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int n;
    } rows[] = {
        { "5", 1 }, { "299", 1 }, { "300", 0 }, { "-1", 0 }, { "99999999999999999999", 0 }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200];
        struct model_config config = { .vocab = 300 };
        struct model_source source = { 0 };
        int n = snprintf(text, sizeof text,
                         "{\"eos_token\": \"<|end|>\", \"added_tokens_decoder\": "
                         "{\"1\": {\"content\": \"x\"}, \"%s\": {\"content\": \"<|end|>\"}}}",
                         rows[i].key);
        const struct reel_memory_file file = { "tokenizer_config.json", text, (size_t)n };
        assert_int_equal(model_source_open_memory(&source, "memory", &file, 1, NULL), REEL_OK);
        assert_int_equal(stop_ids_add_tokenizers(&config, &source, NULL, NULL), REEL_OK);
        assert_int_equal(config.n_stop_ids, rows[i].n);
        if (rows[i].n) assert_int_equal(config.stop_ids[0], atoi(rows[i].key));
        model_source_release(&source);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tokenizers_end_joins_the_configs),
        cmocka_unit_test(an_end_that_is_known_unknown_or_not_given_adds_nothing),
        cmocka_unit_test(without_a_tokenizer_the_config_s_own_list_is_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
