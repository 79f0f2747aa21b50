/* Sampling through the whole GPU backend on the fake GPU: what the device draws while it decodes is
 * what the host draws from the same device's logits, one position at a time. */
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const int32_t prompt[] = { 5, 17, 250, 3, 99 };
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 10 };

struct listener {
    int32_t ids[N_NEW];
    int n;
};
static bool on_token(void *user, const struct reel_token *token) {
    struct listener *l = user;
    if (l->n < N_NEW) l->ids[l->n++] = token->id;
    return true;
}

/* With log-probabilities asked for the runtime draws by itself. */
static struct listener generate(struct reel_model *model, const struct reel_sampling *sampling,
                                bool on_host) {
    struct reel_error err = { 0 };
    struct reel_session *session = NULL;
    struct listener l = { .n = 0 };
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = N_PROMPT + N_NEW };
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = sampling,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .logprobs = on_host,
                                       .on_token = on_token,
                                       .user = &l };
    enum reel_status status = reel_session_open(&session, model, &options, &err);
    if (status == REEL_OK) status = reel_session_sync(session, prompt, N_PROMPT, NULL, &err);
    if (status == REEL_OK) status = reel_generate(session, &g, NULL, &err);
    if (status != REEL_OK) fail_msg("%s\n%s", err.text, sim_gpu_current().cuda->report);
    reel_session_close(session);
    return l;
}

static const struct reel_logit_bias biases[] = { { 7, 3.0f }, { 250, -100.0f }, { 31, 1.5f } };
#define SET .size = sizeof(struct reel_sampling)
static const struct reel_sampling settings[] = {
    { SET, .temperature = 0 },
    { SET, .temperature = 1.2f, .seed = 1 },
    { SET, .temperature = 0.9f, .min_p = 0.2f, .seed = 2 },
    { SET, .temperature = 1.5f, .top_k = 20, .seed = 3 },
    { SET, .temperature = 1.0f, .top_k = 15, .top_p = 0.8f, .seed = 4 },
    { SET, .temperature = 2.0f, .top_p = 0.95f, .seed = 5 }, /* searched for */
    { SET, .temperature = 2.0f, .top_k = 200, .seed = 6 },   /* the host has to draw */
    { SET, .temperature = 1.0f, .top_p = 0.7f, .repetition_penalty = 1.3f, .presence_penalty = 0.4f,
      .frequency_penalty = 0.3f, .seed = 7, .bias = biases, .n_bias = 3 },
    { SET, .temperature = 0, .repetition_penalty = 1.5f, .frequency_penalty = 0.5f },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void the_device_draws_what_the_host_draws(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&m, "q3-a");
    if (sim_model_load(&m, "n_groups=2,group_sms=2,warps=4", &err) != REEL_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct listener host = generate(m.gpu, &settings[i], true);
        gpu.cuda->n_launches = 0;
        const struct listener device = generate(m.gpu, &settings[i], false);
        if (settings[i].top_k < 100) /* the prompt's, and one for all new ids */
            assert_true(gpu.cuda->n_launches < N_NEW / 2);
        assert_int_equal(host.n, N_NEW);
        assert_int_equal(device.n, N_NEW);
        for (int k = 0; k < N_NEW; k++)
            if (host.ids[k] != device.ids[k])
                fail_msg("settings %d, id %d: the device drew %d, the host %d", i, k,
                         (int)device.ids[k], (int)host.ids[k]);
    }
    sim_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_device_draws_what_the_host_draws) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
