/* One turn of a chat: what the session holds is made equal to the rendered conversation; a context
 * that is full ends the answer with its reason and nothing is shifted out. */
#include "cli/chat.h"
#include "cli/terminal.h"

#include <limits.h>
#include <string.h>

static enum reel_status context_full(const struct chat *c, int needed, struct reel_error *err) {
    int held = reel_session_max_context(c->session);
    return err_set(err, REEL_E_CONTEXT,
                   "the context is full: the conversation has %d tokens, %d fit (/reset begins "
                   "anew, -c makes more room)",
                   needed, held);
}

static enum reel_status render(const struct chat *c, const struct reel_chat_options *chat,
                               int32_t **ids, int *n, struct reel_error *err) {
    size_t n_ids = 0;
    enum reel_status status = reel_chat_ids(c->model, c->conversation.messages,
                                            c->conversation.n_messages, chat, ids, &n_ids, err);
    if (status != REEL_OK) return status;
    *n = n_ids > INT_MAX ? INT_MAX : (int)n_ids;
    return *n < reel_session_max_context(c->session) ? REEL_OK : context_full(c, *n, err);
}

/* With less than a tenth of the context left the next answer may not fit. */
static void tell_room(const struct chat *c) {
    const int all = reel_session_max_context(c->session);
    const int left = all - reel_session_length(c->session);
    if (left < all / 10)
        fprintf(stderr,
                "[the context is nearly full: %d of %d positions are left; /reset begins anew, -c "
                "makes more room]\n",
                left, all);
}

/* What the reader should know beyond the text itself. */
static enum reel_status tell_reason(const struct chat *c, const struct answer *a,
                                    struct reel_error *err) {
    if (a->reason == REEL_STOP_CONTEXT) return context_full(c, a->n_prompt + a->n_tokens, err);
    if (a->reason == REEL_STOP_CANCELLED)
        fputs("[interrupted]\n", stderr);
    else if (a->reason == REEL_STOP_MAX_TOKENS && c->max_tokens)
        fputs("[token limit]\n", stderr);
    tell_room(c);
    return REEL_OK;
}

static enum reel_status keep_answer(struct chat *c, const struct reel_chat_options *chat,
                                    const struct answer *a, struct reel_error *err) {
    struct reel_answer parts = { .size = sizeof parts };
    enum reel_status status =
        reel_chat_read_answer(c->model, chat, a->text.bytes, a->text.size, &parts, err);
    if (status == REEL_OK) status = conversation_add_answer(&c->conversation, &parts, err);
    reel_answer_release(&parts);
    return status;
}

/* For answer_request.put. What is typed meanwhile is for the next line. */
static void show(void *user, const char *text, size_t n_bytes) {
    struct chat *c = user;
    think_view_put(&c->view, text, n_bytes);
    line_reader_listen(&c->reader);
}

static enum reel_status show_answer(struct chat *c, struct answer *a,
                                    const struct answer_request *request, bool inside,
                                    struct reel_error *err) {
    think_view_start(&c->view, inside);
    enum reel_status status = answer_make(a, c->session, request, err);
    think_view_finish(&c->view);
    if (!c->view.page && status == REEL_OK) putchar('\n');
    fflush(stdout);
    return status;
}

static enum reel_status answer_turn(struct chat *c, struct reel_error *err) {
    int32_t *ids = NULL;
    struct answer a = { 0 };
    const struct reel_chat_options chat = { .size = sizeof chat, .thinking = c->thinking };
    struct answer_request request = { .sampling = &c->sampling,
                                      .speculation = c->speculation,
                                      .most_drafts = c->most_drafts,
                                      .max_tokens = c->max_tokens,
                                      .progress = &c->progress,
                                      .put = show,
                                      .user = c };
    enum reel_status status = render(c, &chat, &ids, &request.n_ids, err);
    request.ids = ids;
    if (status == REEL_OK)
        status = show_answer(c, &a, &request, reel_chat_opens_thinking(c->model, &chat), err);
    reel_free(ids);
    if (status != REEL_OK) return status;
    status = keep_answer(c, &chat, &a, err);
    if (status == REEL_OK) status = tell_reason(c, &a, err);
    answer_release(&a);
    c->last = a;
    c->n_answers++;
    c->sampling.seed++; /* the same question twice may get two answers */
    return status;
}

static enum reel_status answer_listening(struct chat *c, struct reel_error *err) {
    interrupt_take();
    enum reel_status status = answer_turn(c, err);
    interrupt_take();
    return status;
}

enum reel_status chat_ask(struct chat *c, const char *text, struct reel_error *err) {
    int before = c->conversation.n_messages;
    enum reel_status status = conversation_add(&c->conversation, "user", text, err);
    if (status == REEL_OK) status = answer_listening(c, err);
    if (c->conversation.n_messages == before + 1) conversation_drop(&c->conversation);
    return status;
}

enum reel_status chat_ask_again(struct chat *c, struct reel_error *err) {
    struct conversation *messages = &c->conversation;
    struct reel_message old = { 0 };
    const bool answered = conversation_take_answer(messages, &old);
    const int before = messages->n_messages;
    enum reel_status status = REEL_OK;
    if (before == 0 || strcmp(messages->messages[before - 1].role, "user") != 0)
        status = err_set(err, REEL_E_ARGUMENT, "/regen: there is no question to answer again");
    if (status == REEL_OK && answered && c->sampling.temperature <= 0)
        fputs("[temperature 0: the answer stays the same; /set temp 0.7 lets it differ]\n", stderr);
    if (status == REEL_OK) status = answer_listening(c, err);
    if (answered && messages->n_messages == before)
        conversation_put_back(messages, &old);
    else if (answered)
        conversation_release_message(&old);
    return status;
}
