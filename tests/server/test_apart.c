/* Many clients at once, each with prompts of its own, some of which leave in the middle: every
 * answer is the one that the model makes alone. What is left in a session of another's prompt, or
 * goes to the wrong client, would show. */
#include "cli/demo_model.h"
#include "reel.h"
#include "tests/support/http_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/served.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_PROMPTS = 48, N_CLIENTS = 6, MOST_TOKENS = 16, LEAST_TOKENS = 4 };
/* Positions that are evaluated alone and with others are rounded in another order, so tokens are
 * compared as far as the likeliest leads by this much, of natural logarithms. */
#define LEAD 0.25f

struct question {
    char prompt[900];
    char answer[600];
    int n_tokens; /* of the answer; less than LEAST_TOKENS: it is not asked */
};

static struct question questions[N_PROMPTS];
static struct served served;

/* Some begin alike for long, and go apart then: those are copied from session to session. */
static void write_prompt(char out[900], int i) {
    static const char *const names[] = { "Anna", "Mr. Bell", "Emma", "Captain Wood" };
    static const char *const deeds[] = { "went to the door and",      "had never been so",
                                         "looked at her sister, who", "was very happy to",
                                         "could not believe that",    "wrote a letter to" };
    static const char same[] =
        "It is a truth universally acknowledged, that a single man in possession of a good "
        "fortune, must be in want of a wife. However little known the feelings or views of such a "
        "man may be on his first entering a neighbourhood, this truth is so well fixed in the "
        "minds of the surrounding families, that he is considered as the rightful property of "
        "some one or other of their daughters. ";
    snprintf(out, 900, "%s%s %s", i % 2 ? same : "", names[i / 2 % 4], deeds[i / 8 % 6]);
}

/* ---- alone ---- */

static bool on_token(void *user, const struct reel_token *token) {
    struct question *q = user;
    const bool leads = token->n_top == 2 && token->top[0].logprob - token->top[1].logprob >= LEAD;
    if (!leads) return false;
    strncat(q->answer, token->text, token->text_bytes);
    q->n_tokens++;
    return true;
}

static void answer_alone(const struct reel_model *model, struct question *q) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = 256 };
    const struct reel_generation generation = { .size = sizeof generation,
                                                .max_tokens = MOST_TOKENS,
                                                .ignore_stop_ids = true,
                                                .n_top_logprobs = 2,
                                                .on_token = on_token,
                                                .user = q };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    int32_t ids[256];
    size_t n = 0;
    enum reel_status status = reel_session_open(&session, model, &options, &err);
    if (status == REEL_OK)
        status = reel_encode(reel_model_tokenizer(model), q->prompt, strlen(q->prompt),
                             REEL_ENCODE_SPECIAL, ids, 256, &n, &err);
    if (status == REEL_OK) status = reel_session_sync(session, ids, (int)n, NULL, &err);
    if (status == REEL_OK) status = reel_generate(session, &generation, NULL, &err);
    if (status != REEL_OK) fail_msg("%s", err.text);
    reel_session_close(session);
}

static void answer_all_alone(void) {
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .n_threads = 1 };
    struct reel_model *model = NULL;
    int n = 0, n_asked = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    assert_int_equal(reel_model_open_memory(&model, "demo", files, n, &options, NULL), REEL_OK);
    for (int i = 0; i < N_PROMPTS; i++) {
        write_prompt(questions[i].prompt, i);
        answer_alone(model, &questions[i]);
        n_asked += questions[i].n_tokens >= LEAST_TOKENS;
    }
    reel_model_close(model);
    if (n_asked < N_PROMPTS / 6) fail_msg("%d answers can be compared", n_asked);
}

/* ---- together ---- */

struct client {
    int index;
    int n_whole, n_left;
    const char *wrong; /* or NULL */
    char text[1200];
};

static char *body_of(const struct question *q, bool stream) {
    json_t *json = json_pack("{s:s,s:i,s:i,s:b,s:b}", "prompt", q->prompt, "max_tokens",
                             q->n_tokens, "temperature", 0, "ignore_eos", 1, "stream", stream);
    char *body = json_dumps(json, 0);
    json_decref(json);
    return body;
}

/* Leaves after some bytes of the answer, none perhaps. */
static void leave(struct client *c, const char *body, unsigned *seed) {
    char some[300];
    int fd = http_connect(served.port);
    if (fd < 0) return;
    (void)http_send_request(fd, &(struct http_request){ .path = "/v1/completions", .body = body });
    if (rand_r(seed) % 2) {
        nanosleep(&(struct timespec){ 0, rand_r(seed) % 4000000 }, NULL);
    } else {
        (void)recv(fd, some, sizeof some, 0);
    }
    close(fd);
    c->n_left++;
}

static void add_text(struct client *c, const char *bytes, size_t n) {
    json_t *json = json_loadb(bytes, n, 0, NULL);
    const char *text = json_string_value(
        json_object_get(json_array_get(json_object_get(json, "choices"), 0), "text"));
    const size_t had = strlen(c->text);
    snprintf(c->text + had, sizeof c->text - had, "%s", text ? text : "(none)");
    json_decref(json);
}

static void stay(struct client *c, const char *body, const struct question *q, bool stream) {
    struct http_answer answer;
    http_ask(&answer, served.port,
             &(struct http_request){ .path = "/v1/completions", .body = body });
    const char *at = answer.body.bytes ? answer.body.bytes : "";
    c->text[0] = '\0';
    c->n_whole++;
    if (!stream) add_text(c, at, strlen(at));
    for (const char *end; stream && (end = strstr(at, "\n\n")); at = end + 2)
        if (strncmp(at, "data: {", 7) == 0) add_text(c, at + 6, (size_t)(end - at) - 6);
    if (answer.code != 200 || strcmp(c->text, q->answer) != 0) c->wrong = q->answer;
    http_answer_release(&answer);
}

static void *ask_on(void *user) {
    struct client *c = user;
    unsigned seed = (unsigned)c->index + 1;
    const int rounds = getenv("REEL_SOAK") ? 40 : sanitized_briefly() ? 1 : 3;
    for (int i = 0; i < rounds * N_PROMPTS && !c->wrong; i++) {
        /* each client has questions of its own */
        const struct question *q = &questions[(c->index + i * N_CLIENTS) % N_PROMPTS];
        if (q->n_tokens < LEAST_TOKENS) continue;
        const bool leaves = rand_r(&seed) % 3 == 0, stream = leaves || rand_r(&seed) % 2;
        char *body = body_of(q, stream);
        if (leaves)
            leave(c, body, &seed);
        else
            stay(c, body, q, stream);
        free(body);
    }
    return NULL;
}

static void answers_beside_each_other_are_those_made_alone(void **state) {
    (void)state;
    for (int sessions = 1; sessions <= 5; sessions += 2) {
        struct client clients[N_CLIENTS] = { 0 };
        pthread_t threads[N_CLIENTS];
        int n_whole = 0, n_left = 0;
        served = (struct served){ .options = { .sessions = sessions, .context = 256 } };
        if (!served_open(&served)) fail_msg("%s", served.err.text);
        for (int i = 0; i < N_CLIENTS; i++) {
            clients[i].index = i;
            assert_int_equal(pthread_create(&threads[i], NULL, ask_on, &clients[i]), 0);
        }
        for (int i = 0; i < N_CLIENTS; i++) {
            pthread_join(threads[i], NULL);
            n_whole += clients[i].n_whole;
            n_left += clients[i].n_left;
        }
        for (int i = 0; i < N_CLIENTS; i++)
            if (clients[i].wrong)
                fail_msg("'%s' instead of '%s'", clients[i].text, clients[i].wrong);
        assert_true(n_whole > N_CLIENTS && n_left > 0);
        assert_true(server_drain(served.server, 5)); /* nobody is left */
        served_close(&served);
    }
}

static int enter(void **state) {
    (void)state;
    answer_all_alone();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_beside_each_other_are_those_made_alone),
    };
    return cmocka_run_group_tests_name("answers apart", tests, enter, NULL);
}
