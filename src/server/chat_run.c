#include "server/chat_run.h"

#include "base/memory.h"

#include "server/api_error.h"

#include <string.h>

/* A stream's text is taken apart while it is written; of an answer that is sent whole the writer
 * gets the text as it is, unless the request wants pieces. Arguments go out as they come: where
 * they turn out to be no JSON the client has a call cut off, all of its text as content, and a
 * finish that names no call. A request that wants pieces gets calls that are complete. */
struct chat_answer_run {
    struct text_request *request;
    const struct chat_writer *writer;
    void *user;
    struct reel_answer_reader *reader; /* NULL: none is needed, or it has told all */
    bool counts;                       /* the reader is there to count calls alone */
    int n_tokens, n_calls;
    enum reel_status status; /* of the reader */
    struct reel_error *err;
};

/* The one call that there may be was made. */
static bool has_called(const struct chat_answer_run *run) {
    return run->request->one_call && run->n_calls > 0;
}

static bool on_piece(void *user, const struct reel_answer_piece *piece) {
    static const enum chat_piece kinds[] = {
        [REEL_ANSWER_REASONING] = CHAT_REASONING, [REEL_ANSWER_CONTENT] = CHAT_CONTENT,
        [REEL_ANSWER_CALL] = CHAT_CALL_BEGIN,     [REEL_ANSWER_ARGUMENTS] = CHAT_CALL_ARGUMENTS,
        [REEL_ANSWER_CALL_END] = CHAT_CALL_END,
    };
    struct chat_answer_run *run = user;
    if (has_called(run)) return true; /* what its last token held beside it */
    run->n_calls += piece->kind == REEL_ANSWER_CALL_END && !piece->broken;
    if (!run->counts)
        run->writer->piece(run->user, kinds[piece->kind], piece->call, piece->text,
                           piece->text_bytes);
    return true;
}

static void close_reader(struct chat_answer_run *run) {
    reel_answer_reader_close(run->reader);
    run->reader = NULL;
}

/* What the reader held back belongs before the answer's end. */
static void finish_reader(struct chat_answer_run *run) {
    if (!run->reader) return;
    if (run->status == REEL_OK) run->status = reel_answer_reader_finish(run->reader, run->err);
    close_reader(run);
}

static bool on_token(void *user, const struct reel_token *token) {
    struct chat_answer_run *run = user;
    bool last = ++run->n_tokens == run->request->max_tokens;
    if (run->writer->comes) run->writer->comes(run->user, token);
    if (run->reader)
        run->status =
            reel_answer_reader_push(run->reader, token->text, token->text_bytes, run->err);
    if ((!run->reader || run->counts) && token->text_bytes)
        run->writer->piece(run->user, CHAT_CONTENT, 0, token->text, token->text_bytes);
    last = last || has_called(run);
    if (last) finish_reader(run);
    return run->status == REEL_OK && run->writer->token(run->user, token, last) && !has_called(run);
}

static enum reel_status run_answer(struct chat_answer_run *run, struct reel_session *session,
                                   const int32_t *ids, size_t n_ids, int choice,
                                   const struct reel_chat_options *options) {
    struct text_request *r = run->request;
    const struct reel_answer_reader_options reading = {
        .size = sizeof reading,
        .chat = options,
        .whole_calls = r->in_pieces,
        .on_piece = on_piece,
        .user = run,
    };
    struct text_outcome outcome;
    enum reel_status status = REEL_OK;
    run->counts = !r->stream && !r->in_pieces;
    if (!run->counts || r->one_call)
        status = reel_answer_reader_open(&run->reader, r->model->model, &reading, run->err);
    if (status != REEL_OK) return status;
    run->writer->begin(run->user, choice);
    status = text_run(r, session, ids, n_ids, choice, on_token, run, &outcome, run->err);
    if (status == REEL_OK) finish_reader(run);
    close_reader(run);
    if (status == REEL_OK) status = run->status;
    if (status == REEL_OK)
        run->writer->end(run->user, choice, &outcome,
                         run->n_calls ? "tool_calls" : text_finish_reason(outcome.reason));
    return status;
}

static enum reel_status run_choices(struct text_request *r, struct reel_session *session,
                                    const int32_t *ids, size_t n_ids,
                                    const struct reel_chat_options *options,
                                    const struct chat_writer *writer, void *user,
                                    struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < r->n && status == REEL_OK; i++) {
        struct chat_answer_run run = { .request = r, .writer = writer, .user = user, .err = err };
        status = run_answer(&run, session, ids, n_ids, i, options);
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
    r->n_prompt = (int)n_ids;
    enum reel_status status = session_lease_take(&lease, r->model, r->x, ids, n_ids, &err);
    if (status == REEL_OK) {
        status = run_choices(r, lease.session, ids, n_ids, &prompt->options, writer, user, &err);
        session_lease_give(&lease, r->model, r->x);
    }
    reel_free(ids);
    if (status != REEL_OK) api_error_from(r->x, &err);
    return status == REEL_OK;
}
