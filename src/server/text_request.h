/* What all routes that generate text share: fields of the request, and the run itself. */
#ifndef REEL_SERVER_TEXT_REQUEST_H
#define REEL_SERVER_TEXT_REQUEST_H

#include "server/fields.h"
#include "server/models.h"

enum { TEXT_MOST_STOPS = 16, TEXT_MOST_STOP_IDS = 64, TEXT_MOST_CHOICES = 16 };

struct text_request {
    struct exchange *x;
    struct served_model *model;
    const char *prompt_field; /* for refusals of the prompt; NULL: "messages" */
    struct reel_sampling sampling;
    double temperature, top_p;    /* as they were asked for, to be repeated */
    struct reel_logit_bias *bias; /* owned */
    int max_tokens;               /* 0: until the context is full */
    const char *stops[TEXT_MOST_STOPS];
    int n_stops;
    int32_t stop_ids[TEXT_MOST_STOP_IDS]; /* the model's own among them */
    int n_stop_ids;                       /* 0: the model's own alone */
    int n;                                /* answers to one prompt */
    bool no_tokens;                       /* max_tokens 0: the prompt alone */
    bool stream, include_usage, ignore_eos, logprobs;
    bool anew; /* the prompt is evaluated whole, whatever the session holds (cache_prompt false) */
    /* chat_run takes answers apart that are sent whole, too, and tells calls when they are
     * complete: for dialects that cannot take a call back. */
    bool in_pieces;
    bool one_call; /* an answer ends behind its first call */
    int n_top;
    int n_prompt; /* ids of the prompt, set by chat_run before the first answer begins */
};

/* Reads them from the object: sampling, stop, stop_token_ids, seed, n, max_tokens under all its
 * names, min_tokens, stream, ignore_eos, cache_prompt, parallel_tool_calls; and refuses what asks
 * for constrained output. The model is r->model already. Answers 400 and gives false for a value
 * that is not allowed. */
bool text_request_read(struct text_request *r, struct exchange *x, const json_t *json);
void text_request_release(struct text_request *r);

struct text_outcome {
    int n_prompt, n_reused, n_generated;
    int n_answers;             /* with tokens; of a sum there may be several */
    int n_drafted, n_accepted; /* as in reel_generation_result */
    enum reel_stop_reason reason;
    int stop; /* index of the stop text that came up, or -1 */
    double prompt_ms, generate_ms;
};

/* Generates one answer to the ids on the session. `token` is called for each; false ends it. With
 * `choice` above 0 the seed is another. A client that left gives REEL_E_CANCELLED. */
enum reel_status text_run(const struct text_request *r, struct reel_session *session,
                          const int32_t *ids, size_t n_ids, int choice,
                          bool (*token)(void *user, const struct reel_token *token), void *user,
                          struct text_outcome *outcome, struct reel_error *err);

/* Whether this many ids leave room for an answer; else answers 400, context_length_exceeded. */
bool text_fits(const struct text_request *r, size_t n_ids);

const char *text_finish_reason(enum reel_stop_reason reason); /* "stop", "length" */

/* What several answers took: all figures but the reason and the stop text are added. */
void text_outcome_add(struct text_outcome *sum, const struct text_outcome *o);

/* "timings":{...} as llama.cpp's server names its figures; no comma around it. */
enum reel_status text_timings(struct buffer *out, const struct text_outcome *o);
/* "usage":{...} in OpenAI's form; n_generated is of all answers. */
enum reel_status text_usage(struct buffer *out, int n_prompt, int n_reused, int n_generated);

#endif
