#include "cli/answer.h"

#include "base/clock.h"
#include "cli/progress.h"
#include "cli/terminal.h"

struct listener {
    const struct answer_request *request;
    struct answer *answer;
    enum reel_status status; /* of collecting the text */
    struct reel_error *err;
};

static bool on_token(void *user, const struct reel_token *token) {
    struct listener *l = user;
    l->status = buffer_append(&l->answer->text, token->text, token->text_bytes, l->err);
    if (l->status != REEL_OK) return false;
    if (l->request->token && !l->request->token(l->request->token_user, token)) return false;
    if (l->request->put && token->text_bytes)
        l->request->put(l->request->user, token->text, token->text_bytes);
    /* A press that came between two calls into the library reached no running call. */
    return !interrupt_pending() && !ferror(stdout);
}

static enum reel_status evaluate_prompt(struct answer *a, struct reel_session *session,
                                        const struct answer_request *request,
                                        struct reel_error *err) {
    double start = clock_ms();
    if (request->progress) progress_start(request->progress);
    enum reel_status status =
        reel_session_sync(session, request->ids, request->n_ids, &a->n_reused, err);
    a->prompt_ms = clock_ms() - start;
    if (request->progress) progress_end(request->progress);
    a->n_prompt = request->n_ids;
    if (status == REEL_E_CANCELLED || (status == REEL_OK && interrupt_pending()))
        return err_set(err, REEL_E_CANCELLED, "interrupted while reading the prompt");
    return status;
}

static enum reel_status generate(struct answer *a, struct reel_session *session,
                                 const struct answer_request *request, struct reel_error *err) {
    struct listener listener = { .request = request, .answer = a, .err = err };
    struct reel_generation generation = {
        .size = sizeof generation,
        .sampling = request->sampling,
        .max_tokens = request->max_tokens,
        .ignore_stop_ids = request->ignore_stop_ids,
        .stop_strings = request->stop_strings,
        .n_stop_strings = request->n_stop_strings,
        .logprobs = request->logprobs,
        .n_top_logprobs = request->n_top,
        .on_token = on_token,
        .user = &listener,
        .speculation = request->speculation,
        .most_drafts = request->most_drafts,
    };
    struct reel_generation_result result = { .size = sizeof result };
    enum reel_status status = reel_generate(session, &generation, &result, err);
    if (listener.status != REEL_OK) status = listener.status;
    a->reason = result.reason;
    if (a->reason == REEL_STOP_CALLBACK && interrupt_pending()) a->reason = REEL_STOP_CANCELLED;
    a->n_tokens = result.n_tokens;
    a->n_passes = result.n_passes;
    a->n_drafted = result.n_drafted;
    a->n_accepted = result.n_accepted;
    if (result.draft_problem)
        snprintf(a->draft_problem, sizeof a->draft_problem, "%.499s", result.draft_problem);
    a->first_token_ms = a->prompt_ms + result.first_token_ms;
    a->generate_ms = result.total_ms;
    double rest_ms = result.total_ms - result.first_token_ms;
    if (a->n_tokens > 1 && rest_ms > 0) a->tokens_per_s = (a->n_tokens - 1) * 1e3 / rest_ms;
    return status;
}

enum reel_status answer_make(struct answer *a, struct reel_session *session,
                             const struct answer_request *request, struct reel_error *err) {
    *a = (struct answer){ 0 };
    interrupt_target(session);
    enum reel_status status = evaluate_prompt(a, session, request, err);
    if (status == REEL_OK) status = buffer_append(&a->text, "", 0, err);
    if (status == REEL_OK) status = generate(a, session, request, err);
    interrupt_target(NULL);
    if (status != REEL_OK) answer_release(a);
    return status;
}

void answer_release(struct answer *a) { buffer_release(&a->text); }

const char *answer_reason(enum reel_stop_reason reason) {
    switch (reason) {
    case REEL_STOP_NONE:
        return "still running";
    case REEL_STOP_ID:
        return "end of text";
    case REEL_STOP_STRING:
        return "stop string";
    case REEL_STOP_MAX_TOKENS:
        return "token limit";
    case REEL_STOP_CONTEXT:
        return "the context is full";
    case REEL_STOP_CALLBACK:
        return "output failed";
    case REEL_STOP_CANCELLED:
        return "interrupted";
    case REEL_STOP_MEMORY:
        return "memory is full";
    }
    return "unknown";
}

const char *answer_reason_key(enum reel_stop_reason reason) {
    switch (reason) {
    case REEL_STOP_NONE:
        return "none";
    case REEL_STOP_ID:
        return "stop_id";
    case REEL_STOP_STRING:
        return "stop_string";
    case REEL_STOP_MAX_TOKENS:
        return "max_tokens";
    case REEL_STOP_CONTEXT:
        return "context";
    case REEL_STOP_CALLBACK:
        return "callback";
    case REEL_STOP_CANCELLED:
        return "cancelled";
    case REEL_STOP_MEMORY:
        return "memory";
    }
    return "unknown";
}

bool answer_problem_to_json(json_t *object, const struct answer *a) {
    return !a->draft_problem[0] ||
           json_object_set_new(object, "draft_problem", json_string(a->draft_problem)) == 0;
}

void answer_print_figures(FILE *out, const struct answer *a) {
    int fresh = a->n_prompt - a->n_reused;
    fprintf(out, "prompt %d tokens", a->n_prompt);
    if (a->n_reused) fprintf(out, " (%d reused)", a->n_reused);
    fprintf(out, ", %.1f ms", a->prompt_ms);
    if (fresh > 1 && a->prompt_ms > 0) fprintf(out, ", %.1f t/s", fresh * 1e3 / a->prompt_ms);
    fprintf(out, " | answer %d tokens, %.1f ms", a->n_tokens, a->generate_ms);
    if (a->tokens_per_s > 0) fprintf(out, ", %.1f t/s", a->tokens_per_s);
    if (a->n_drafted)
        fprintf(out, ", %.2f a pass (%d of %d drafts right)", (double)a->n_tokens / a->n_passes,
                a->n_accepted, a->n_drafted);
    if (a->n_tokens) fprintf(out, ", first after %.1f ms", a->first_token_ms);
    if (a->draft_problem[0])
        fprintf(out, " | the draft model guessed no more: %s", a->draft_problem);
    fprintf(out, " | %s", answer_reason(a->reason));
}
