/* A libreel whose tokens cost nothing, or a time that is set, to see what Python adds to them: the
 * real library, but a generation's tokens come from here. It lies before libreel.so, which it is
 * linked to.
 *
 * A token's text is the monotonic clock in nanoseconds when it was made, its id its number. */
#include "reel.h"

#include <stdio.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { SESSIONS = 256 };

static struct slot {
    struct reel_session *session;
    struct reel_token token;
    char text[32];
    int n, most;
} slots[SESSIONS];

static long token_ns;

API void paced_set(long ns);
API double paced_loop(struct reel_session *session, int n);

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Sessions do not start at the same time here. */
static struct slot *slot_of(struct reel_session *session) {
    struct slot *free_slot = NULL;
    for (int i = 0; i < SESSIONS; i++) {
        if (slots[i].session == session) return &slots[i];
        if (!free_slot && !slots[i].session) free_slot = &slots[i];
    }
    free_slot->session = session;
    return free_slot;
}

void paced_set(long ns) { token_ns = ns; }

API enum reel_status reel_generation_start(struct reel_session *session,
                                           const struct reel_generation *generation,
                                           struct reel_error *err) {
    (void)err;
    struct slot *s = slot_of(session);
    s->n = 0;
    s->most = generation->max_tokens;
    return REEL_OK;
}

API enum reel_status reel_generation_next(struct reel_session *session,
                                          const struct reel_token **token, struct reel_error *err) {
    (void)err;
    struct slot *s = slot_of(session);
    *token = NULL;
    if (s->n == s->most) return REEL_OK;
    if (token_ns) { /* by the clock, so that what the caller takes is seen on top */
        struct timespec wait = { .tv_nsec = token_ns };
        nanosleep(&wait, NULL);
    }
    const long made = now_ns();
    s->token = (struct reel_token){ .size = sizeof s->token, .id = s->n++, .text = s->text };
    s->token.text_bytes = (size_t)snprintf(s->text, sizeof s->text, "%ld", made);
    *token = &s->token;
    return REEL_OK;
}

API enum reel_status reel_generation_finish(struct reel_session *session,
                                            struct reel_generation_result *result,
                                            struct reel_error *err) {
    (void)err;
    struct slot *s = slot_of(session);
    if (result) {
        result->reason = REEL_STOP_MAX_TOKENS;
        result->n_tokens = s->n;
        result->stop_string = -1;
    }
    s->session = NULL;
    return REEL_OK;
}

/* The same n tokens taken in C: seconds. */
double paced_loop(struct reel_session *session, int n) {
    const struct reel_token *token = NULL;
    struct reel_generation generation = { .size = sizeof generation, .max_tokens = n };
    const long start = now_ns();
    if (reel_generation_start(session, &generation, NULL) != REEL_OK) return -1;
    do {
        if (reel_generation_next(session, &token, NULL) != REEL_OK) return -1;
    } while (token);
    reel_generation_finish(session, NULL, NULL);
    return (double)(now_ns() - start) * 1e-9;
}
