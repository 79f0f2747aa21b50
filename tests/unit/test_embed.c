/* Texts to vectors over the fake backend: which share a pass, where their vectors go, what is
 * refused; and what a checkpoint's files say of embedding. */
#include "base/memory.h"
#include "support/model_bytes.h"
#include "support/session_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 5000, MOST_IDS = 40 * MANY };

static int32_t ids[MOST_IDS];
static int lengths[MANY];
static float out[MANY * FAKE_HIDDEN];

/* n texts of 1 to `longest` ids, all different. */
static void make_texts(int n, int longest) {
    uint32_t x = 12345;
    int at = 0;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        lengths[i] = 1 + (int)(x >> 8) % longest;
        for (int j = 0; j < lengths[i]; j++) {
            x = x * 1664525u + 1013904223u;
            ids[at++] = (int32_t)((x >> 8) % FAKE_VOCAB);
        }
    }
    assert_true(at <= MOST_IDS);
}

static struct reel_embed of_texts(int n) {
    return (struct reel_embed){ .size = sizeof(struct reel_embed),
                                .ids = ids,
                                .lengths = lengths,
                                .n_texts = n,
                                .out = out,
                                .out_floats = MANY * FAKE_HIDDEN };
}

static void start(struct fixture *f, bool embeds) {
    *f = (struct fixture){ .set = { .embeds = embeds } };
    f->model = fake_model_open(&f->set, &f->err);
    assert_non_null(f->model);
    f->session = open_session(f, 600);
}

static void assert_vectors(int n, int dimensions, bool normalised) {
    for (int i = 0, at = 0; i < n; at += lengths[i++]) {
        float want[FAKE_HIDDEN];
        double squares = 0;
        fake_hidden(ids + at, lengths[i], want);
        for (int j = 0; j < dimensions; j++)
            squares += (double)want[j] * want[j];
        for (int j = 0; j < dimensions; j++) {
            const double w = normalised ? want[j] / sqrt(squares) : want[j];
            if (!(fabs(out[i * dimensions + j] - w) <= 1e-6 * (normalised ? 1 : 8)))
                fail_msg("text %d, value %d: %g, not %g", i, j, (double)out[i * dimensions + j], w);
        }
    }
}

static void require(struct fixture *f, const struct reel_embed *embed) {
    if (reel_session_embed(f->session, embed, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
    assert_true(error_empty(&f->err));
    assert_int_equal(reel_session_length(f->session), 0);
}

static void vectors_come_in_the_order_of_the_texts(void **state) {
    (void)state;
    for (int embeds = 0; embeds < 2; embeds++) {
        struct fixture f;
        start(&f, embeds);
        make_texts(300, 40);
        const struct reel_embed embed = of_texts(300);
        sync_to(&f, f.session, prompt, N_PROMPT); /* what the session held is gone */
        const int n_evals = f.set.n_evals;
        require(&f, &embed);
        assert_vectors(300, FAKE_HIDDEN, true);
        assert_int_equal(f.set.n_evals - n_evals, embeds ? 0 : 300);
        assert_goes_on(&f, (sync_to(&f, f.session, prompt, N_PROMPT), f.session), 3);
        fixture_stop(&f);
    }
}

static void short_texts_fill_passes(void **state) {
    (void)state;
    struct fixture f;
    start(&f, true);
    make_texts(MANY, 1);
    for (int i = 0; i < MANY; i++)
        lengths[i] = 3;
    for (int i = 0; i < 3 * MANY; i++)
        ids[i] = i % FAKE_VOCAB;
    const struct reel_embed embed = of_texts(MANY);
    require(&f, &embed);
    assert_vectors(MANY, FAKE_HIDDEN, true);
    assert_int_equal(f.set.n_embeds, 3 * MANY / 600); /* 200 texts fill the session's 600 */
    assert_int_equal(f.set.n_embedded, 200);
    fixture_stop(&f);
}

static void a_text_as_long_as_the_session_has_its_own_pass(void **state) {
    (void)state;
    struct fixture f;
    start(&f, true);
    make_texts(3, 1);
    lengths[0] = 600, lengths[1] = 1, lengths[2] = 599;
    for (int i = 0; i < 1200; i++)
        ids[i] = (i * 7) % FAKE_VOCAB;
    const struct reel_embed embed = of_texts(3);
    require(&f, &embed);
    assert_vectors(3, FAKE_HIDDEN, true);
    assert_int_equal(f.set.n_embeds, 2);
    fixture_stop(&f);
}

static void the_first_dimensions_are_normalised_by_themselves(void **state) {
    (void)state;
    struct fixture f;
    start(&f, true);
    make_texts(20, 9);
    struct reel_embed embed = of_texts(20);
    for (int dimensions = 1; dimensions <= FAKE_HIDDEN; dimensions++)
        for (int raw = 0; raw < 2; raw++) {
            embed.dimensions = dimensions;
            embed.no_normalise = raw;
            embed.out_floats = (size_t)(20 * dimensions);
            require(&f, &embed);
            assert_vectors(20, dimensions, !raw);
        }
    fixture_stop(&f);
}

static void a_backend_that_declines_gets_the_texts_one_by_one(void **state) {
    (void)state;
    struct fixture f;
    start(&f, true);
    f.set.refuses_embed = true;
    make_texts(50, 30);
    const struct reel_embed embed = of_texts(50);
    require(&f, &embed);
    assert_vectors(50, FAKE_HIDDEN, true);
    assert_int_equal(f.set.n_evals, 50);
    fixture_stop(&f);
}

static void what_cannot_be_embedded_is_refused(void **state) {
    (void)state;
    struct fixture f;
    start(&f, true);
    make_texts(4, 5);
    struct reel_embed bad[8];
    static const enum reel_status want[8] = { REEL_E_ARGUMENT, REEL_E_ARGUMENT, REEL_E_ARGUMENT,
                                              REEL_E_ARGUMENT, REEL_E_ARGUMENT, REEL_E_CONTEXT,
                                              REEL_E_ARGUMENT, REEL_E_ARGUMENT };
    static const int empty[] = { 2, 0 }, longer[] = { 601 };
    static const int32_t beyond[] = { 1, FAKE_VOCAB };
    for (int i = 0; i < 8; i++)
        bad[i] = of_texts(4);
    bad[0].n_texts = 0;
    bad[1].dimensions = FAKE_HIDDEN + 1;
    bad[2].out_floats = 4 * FAKE_HIDDEN - 1;
    bad[3].out = NULL;
    bad[4].lengths = empty, bad[4].n_texts = 2;
    bad[5].lengths = longer, bad[5].n_texts = 1;
    bad[6].ids = beyond, bad[6].lengths = empty, bad[6].n_texts = 1;
    bad[7].size = 3;
    sync_to(&f, f.session, prompt, N_PROMPT);
    for (int i = 0; i < 8; i++) {
        const enum reel_status status = reel_session_embed(f.session, &bad[i], &f.err);
        if (status != want[i]) fail_msg("%d: %s: %s", i, reel_status_name(status), f.err.text);
    }
    assert_holds(f.session, prompt, N_PROMPT); /* a refused argument changes nothing */
    struct reel_embed good = of_texts(4);
    f.model->model.embed.refused = (char[]){ "1_Pooling/config.json: the mean" };
    assert_int_equal(reel_session_embed(f.session, &good, &f.err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(f.err.text, "the mean"));
    f.model->model.embed.refused = NULL;
    require(&f, &good);
    fixture_stop(&f);
}

struct heard {
    uint64_t last, total;
    int calls, stop_at;
};

static bool hear(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct heard *h = user;
    assert_string_equal(stage, "embedding");
    assert_true(done >= h->last && done <= total);
    h->last = done;
    h->total = total;
    return ++h->calls != h->stop_at;
}

static void progress_is_of_the_whole_call_and_failures_leave_nothing(void **state) {
    (void)state;
    for (int embeds = 0; embeds < 2; embeds++) {
        struct fixture f;
        struct heard heard = { 0 };
        const struct reel_session_options options = {
            .size = sizeof options, .max_context = 100, .progress = hear, .progress_user = &heard
        };
        start(&f, embeds);
        reel_session_close(f.session);
        assert_int_equal(reel_session_open(&f.session, f.model, &options, &f.err), REEL_OK);
        make_texts(200, 40);
        const struct reel_embed embed = of_texts(200);
        int total = 0;
        for (int i = 0; i < 200; i++)
            total += lengths[i];
        require(&f, &embed);
        assert_int_equal(heard.total, total);
        assert_true(heard.calls > 30);
        assert_true(embeds ? heard.last == heard.total : heard.last < heard.total);
        heard = (struct heard){ .stop_at = 7 };
        assert_int_equal(reel_session_embed(f.session, &embed, &f.err), REEL_E_CANCELLED);
        heard = (struct heard){ 0 };
        f.set.fail_embed = f.set.fail_eval = 5;
        assert_int_equal(reel_session_embed(f.session, &embed, &f.err), REEL_E_DEVICE);
        assert_int_equal(reel_session_length(f.session), 0);
        heard = (struct heard){ 0 };
        require(&f, &embed);
        assert_vectors(200, FAKE_HIDDEN, true);
        fixture_stop(&f);
    }
}

/* ---- what files say -------------------------------------------------------------------------- */

#define MODULE(type, path)                                                                         \
    "{\"idx\":0,\"name\":\"0\",\"path\":\"" path "\",\"type\":\"s.m." type "\"}"
#define MODULES "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling") "]"
#define LAST                                                                                       \
    "{\"pooling_mode_cls_token\":false,\"pooling_mode_mean_tokens\":false,"                        \
    "\"pooling_mode_lasttoken\":true,\"include_prompt\":true}"

static enum reel_status load(struct embed_config *config, const char *modules, const char *pooling,
                             const char *prompts, struct reel_error *err) {
    struct reel_memory_file files[3];
    struct model_source source = { 0 };
    int n = 0;
    if (modules) files[n++] = (struct reel_memory_file){ "modules.json", modules, strlen(modules) };
    if (pooling)
        files[n++] = (struct reel_memory_file){ "1_Pooling/config.json", pooling, strlen(pooling) };
    if (prompts)
        files[n++] = (struct reel_memory_file){ "config_sentence_transformers.json", prompts,
                                                strlen(prompts) };
    if (n == 0) files[n++] = (struct reel_memory_file){ "config.json", "{}", 2 };
    assert_int_equal(model_source_open_memory(&source, "m", files, n, err), REEL_OK);
    enum reel_status status = embed_config_load(config, &source, NULL, err);
    model_source_release(&source);
    return status;
}

static void pooling_other_than_the_last_token_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *modules, *pooling, *refused; /* NULL: it is not */
        bool stated;
    } cases[] = {
        { NULL, NULL, NULL, false },
        { MODULES, LAST, NULL, true },
        { MODULES, "{\"pooling_mode\":\"lasttoken\"}", NULL, true },
        { MODULES, "{\"pooling_mode\":\"cls\"}", "pooling_mode is \"cls\"", true },
        { MODULES, "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_lasttoken\":true}",
          "pooling_mode_mean_tokens is true", true },
        { MODULES, "{}", "pooling_mode_lasttoken is not true", true },
        { MODULES, NULL, "it is not there", true },
        { "[" MODULE("Transformer", "") "]", LAST, "no pooling", true },
        { "[" MODULE("Pooling", "2_Pooling") "]", LAST, "\"2_Pooling\"", true },
        { "[" MODULE("Transformer", "0_T") "," MODULE("Pooling", "1_Pooling") "]", LAST, "\"0_T\"",
          true },
        { "[" MODULE("Pooling", "1_Pooling") "," MODULE("Dense", "2_Dense") "]", LAST,
          "\"s.m.Dense\"", true },
        { "[" MODULE("Pooling", "1_Pooling") "," MODULE("Normalize", "2_Normalize") "]", LAST, NULL,
          true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct embed_config config;
        struct reel_error err = { 0 };
        if (load(&config, cases[i].modules, cases[i].pooling, NULL, &err) != REEL_OK)
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(config.stated, cases[i].stated);
        const enum reel_status status = embed_config_allows(&config, &err);
        assert_int_equal(status, cases[i].refused ? REEL_E_UNSUPPORTED : REEL_OK);
        if (cases[i].refused && !strstr(err.text, cases[i].refused))
            fail_msg("%zu: \"%s\" does not say %s", i, err.text, cases[i].refused);
        embed_config_release(&config);
    }
}

static void prompts_are_read_and_broken_files_refused(void **state) {
    (void)state;
    struct embed_config config;
    struct reel_error err = { 0 };
    static const char good[] =
        "{\"prompts\":{\"query\":\"Instruct: x\\nQuery:\",\"document\":\"\"},"
        "\"default_prompt_name\":\"document\"}";
    static const char *const broken[][2] = {
        { "[]", "{\"prompts\":{\"query\":1}}" },
        { NULL, "{\"default_prompt_name\":\"x\",\"prompts\":{\"query\":\"\"}}" },
        { NULL, "{" },
        { "{}", NULL },
        { "[1]", NULL },
        { "[{\"path\":\"\"}]", NULL },
    };
    assert_int_equal(load(&config, MODULES, LAST, good, &err), REEL_OK);
    assert_int_equal(config.n_prompts, 2);
    assert_string_equal(config.prompts[0].name, "query");
    assert_string_equal(config.prompts[0].text, "Instruct: x\nQuery:");
    assert_int_equal(config.default_prompt, 1);
    embed_config_release(&config);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const enum reel_status status = load(&config, broken[i][0], LAST, broken[i][1], &err);
        if (status != REEL_E_FORMAT) fail_msg("%zu: %s", i, reel_status_name(status));
    }
}

static void a_gguf_file_has_a_pooling_type(void **state) {
    (void)state;
    static const struct {
        int type; /* -1: none */
        const char *refused;
        bool stated;
    } cases[] = {
        { -1, NULL, false }, { 0, NULL, false },    { 1, "qwen3.pooling_type is 1 (mean)", true },
        { 3, NULL, true },   { 4, "(rank)", true }, { 9, "is 9 (?)", true }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = { 0 };
        struct model_source source = { 0 };
        struct tensor_file tensors = { 0 };
        struct gguf gguf = { 0 };
        struct embed_config config;
        struct reel_error err = { 0 };
        bytes_gguf_header(&b, 3, 0, cases[i].type < 0 ? 1 : 2);
        bytes_gguf_text(&b, "general.architecture", "qwen3");
        if (cases[i].type >= 0) bytes_gguf_u32(&b, "qwen3.pooling_type", (uint32_t)cases[i].type);
        bytes_pad(&b, 32);
        const struct reel_memory_file file = { "m.gguf", b.data, b.n };
        assert_int_equal(model_source_open_memory(&source, "m.gguf", &file, 1, &err), REEL_OK);
        if (gguf_open(&gguf, &tensors, &source, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(embed_config_load(&config, &source, &gguf, &err), REEL_OK);
        assert_int_equal(config.stated, cases[i].stated);
        assert_int_equal(embed_config_allows(&config, &err),
                         cases[i].refused ? REEL_E_UNSUPPORTED : REEL_OK);
        if (cases[i].refused) assert_non_null(strstr(err.text, cases[i].refused));
        embed_config_release(&config);
        tensor_file_release(&tensors);
        gguf_release(&gguf);
        model_source_release(&source);
        bytes_release(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_come_in_the_order_of_the_texts),
        cmocka_unit_test(short_texts_fill_passes),
        cmocka_unit_test(a_text_as_long_as_the_session_has_its_own_pass),
        cmocka_unit_test(the_first_dimensions_are_normalised_by_themselves),
        cmocka_unit_test(a_backend_that_declines_gets_the_texts_one_by_one),
        cmocka_unit_test(what_cannot_be_embedded_is_refused),
        cmocka_unit_test(progress_is_of_the_whole_call_and_failures_leave_nothing),
        cmocka_unit_test(pooling_other_than_the_last_token_is_refused_by_name),
        cmocka_unit_test(a_gguf_file_has_a_pooling_type),
        cmocka_unit_test(prompts_are_read_and_broken_files_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
