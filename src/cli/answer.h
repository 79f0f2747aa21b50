/* One answer of a model: the prompt evaluated, tokens streamed, times taken. */
#ifndef REEL_CLI_ANSWER_H
#define REEL_CLI_ANSWER_H

#include "base/buffer.h"

#include "cli/progress.h"

#include <jansson.h>
#include <stdio.h>

struct answer_request {
    const int32_t *ids; /* the whole timeline up to here; what the session holds is reused */
    int n_ids;
    const struct reel_sampling *sampling;
    enum reel_speculation speculation;
    int most_drafts;
    int max_tokens; /* 0: until the context is full */
    const char *const *stop_strings;
    int n_stop_strings;
    bool ignore_stop_ids;
    struct progress *progress; /* the one the session was opened with, or NULL */
    void (*put)(void *user, const char *text, size_t n_bytes); /* NULL: nobody watches */
    void *user;
    bool logprobs; /* each token comes with its log-probability, */
    int n_top;     /* and with those of the N likeliest; 0 to REEL_MAX_TOP_LOGPROBS */
    bool (*token)(void *user, const struct reel_token *token); /* false ends it; NULL: none */
    void *token_user;
};

struct answer {
    struct buffer text;
    enum reel_stop_reason reason;
    int n_prompt; /* ids in the prompt */
    int n_reused; /* of them, held from before */
    int n_tokens;
    int n_passes, n_drafted, n_accepted; /* as in reel_generation_result */
    char draft_problem[500];             /* likewise; "": none */
    double prompt_ms;                    /* evaluating what was new */
    double first_token_ms;               /* from the start, prompt included */
    double generate_ms;                  /* all tokens, prompt not included */
    double tokens_per_s;                 /* after the first token; 0 below two tokens */
};

/* Ctrl-C ends it: with REEL_E_CANCELLED while the prompt is evaluated, with reason
 * REEL_STOP_CANCELLED later. */
enum reel_status answer_make(struct answer *a, struct reel_session *session,
                             const struct answer_request *request, struct reel_error *err);
void answer_release(struct answer *a);

const char *answer_reason(enum reel_stop_reason reason);     /* "the context is full" */
const char *answer_reason_key(enum reel_stop_reason reason); /* "context", for JSON */

/* Adds "draft_problem" to a JSON object where there is one. False where memory is short. */
bool answer_problem_to_json(json_t *object, const struct answer *a);

/* One line of figures; no newline. */
void answer_print_figures(FILE *out, const struct answer *a);

#endif
