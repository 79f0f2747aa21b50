#include "server/chat_run.h"

#include "base/memory.h"

#include "server/api_error.h"

#include <string.h>

struct chat_answer_run {
    struct text_request *request;
    const struct chat_writer *writer;
    void *user;
    int n_tokens, n_calls;
};

static bool on_token(void *user, const struct reel_token *token) {
    struct chat_answer_run *run = user;
    const int most = run->request->max_tokens;
    if (token->text_bytes)
        run->writer->piece(run->user, CHAT_CONTENT, 0, token->text, token->text_bytes);
    return run->writer->token(run->user, token, ++run->n_tokens == most);
}

static enum reel_status run_choices(struct text_request *r, struct reel_session *session,
                                    const int32_t *ids, size_t n_ids,
                                    const struct chat_writer *writer, void *user,
                                    struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < r->n && status == REEL_OK; i++) {
        struct chat_answer_run run = { r, writer, user, 0, 0 };
        struct text_outcome outcome;
        writer->begin(user, i);
        status = text_run(r, session, ids, n_ids, i, on_token, &run, &outcome, err);
        if (status == REEL_OK)
            writer->end(user, i, &outcome,
                        run.n_calls ? "tool_calls" : text_finish_reason(outcome.reason));
    }
    return status;
}

bool chat_run(struct text_request *r, const struct chat_prompt *prompt,
              const struct chat_writer *writer, void *user) {
    struct reel_error err = { 0 };
    struct session_lease lease;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (!chat_prompt_ids(prompt, r->x, r->model, &ids, &n_ids)) return false;
    if (!text_fits(r, n_ids)) {
        reel_free(ids);
        return false;
    }
    enum reel_status status = session_lease_take(&lease, r->model, r->x, ids, n_ids, &err);
    if (status == REEL_OK) {
        status = run_choices(r, lease.session, ids, n_ids, writer, user, &err);
        session_lease_give(&lease, r->model, r->x);
    }
    reel_free(ids);
    if (status != REEL_OK) api_error_from(r->x, &err);
    return status == REEL_OK;
}
