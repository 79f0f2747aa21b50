/* POST /v1/completions: text goes on where a prompt ends. A request may have several prompts; their
 * answers come in order, `n` to a prompt. */
#include "server/handlers.h"
#include "server/id_lists.h"
#include "server/json_out.h"
#include "server/logprobs.h"
#include "server/prompt_scores.h"
#include "server/text_request.h"

#include "base/clock.h"
#include "base/memory.h"

#include "server/api_error.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define DEFAULT_TOKENS 16 /* OpenAI's */

struct completion {
    struct text_request text;
    struct id_lists prompts;
    bool echo, seeded;
    int64_t created;
    int choice; /* of all prompts */
    int n_tokens;
    struct buffer piece;         /* of a stream, the text since the last event; else the answer */
    struct logprobs_lists lists; /* the same of its tokens */
    size_t offset;               /* characters of the answer so far */
    struct prompt_score *scores; /* of the prompt at hand */
    struct buffer out;           /* an event, or the whole body */
    int n_prompt, n_reused, n_generated;
    struct text_outcome sum; /* of all answers */
    enum reel_status status; /* of writing: memory */
};

static void note(struct completion *c, enum reel_status status) {
    if (c->status == REEL_OK) c->status = status;
}
static void put(struct completion *c, const char *text) {
    note(c, buffer_text(&c->out, text, NULL));
}

static size_t characters(const char *text, size_t n_bytes) {
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* ---- the prompt, echoed ---- */

/* The bytes of `text` that a token stands for. Normalisation may have changed a text before its
 * tokens were made; the offsets behind such a place are near, not exact. */
static size_t covered(const char *text, size_t left, const struct reel_tokenizer *tok, int32_t id) {
    size_t n = 0;
    const char *bytes = reel_token_bytes(tok, id, &n);
    if (!bytes) return 0;
    if (n <= left && memcmp(text, bytes, n) == 0) return n;
    if (reel_token_is_control(tok, id)) return 0; /* put around the text */
    if (n && bytes[0] == ' ' && n - 1 <= left && memcmp(text, bytes + 1, n - 1) == 0) return n - 1;
    return n < left ? n : left;
}

static void echo_text(struct completion *c, int prompt, const int32_t *ids) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(c->text.model->model);
    if (c->prompts.texts[prompt]) {
        note(c, buffer_text(&c->piece, c->prompts.texts[prompt], NULL));
        return;
    }
    for (int i = 0; i < c->prompts.lengths[prompt]; i++) {
        size_t n = 0;
        const char *bytes = reel_token_bytes(tok, ids[i], &n);
        if (bytes) note(c, buffer_append(&c->piece, bytes, n, NULL));
    }
}

static void echo(struct completion *c, int prompt, const int32_t *ids) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(c->text.model->model);
    size_t at = 0;
    echo_text(c, prompt, ids);
    for (int i = 0; i < c->prompts.lengths[prompt] && c->text.logprobs; i++) {
        const struct prompt_score *s = &c->scores[i];
        note(c, logprobs_lists_add(&c->lists, tok, ids[i], i ? &s->logprob : NULL, s->top, s->n_top,
                                   c->offset, NULL));
        if (c->status != REEL_OK) return;
        const size_t n = covered(c->piece.bytes + at, c->piece.size - at, tok, ids[i]);
        c->offset += characters(c->piece.bytes + at, n);
        at += n;
    }
}

/* ---- answers ---- */

static void put_head(struct completion *c) {
    note(c, buffer_printf(&c->out, NULL,
                          "{\"id\":\"cmpl-%s\",\"object\":\"text_completion\",\"created\":%" PRId64
                          ",\"model\":",
                          exchange_id(c->text.x), c->created));
    note(c, json_out_string(&c->out, c->text.model->name, NULL));
    put(c, ",\"choices\":[");
}

static void put_choice(struct completion *c, const char *finish) {
    note(c, buffer_printf(&c->out, NULL, "{\"index\":%d,\"text\":", c->choice));
    note(c, json_out_text(&c->out, c->piece.size ? c->piece.bytes : "", c->piece.size, NULL));
    c->piece.size = 0;
    put(c, ",\"logprobs\":");
    if (c->text.logprobs) {
        note(c, logprobs_lists_put(&c->out, &c->lists, NULL));
    } else {
        put(c, "null");
    }
    put(c, ",\"finish_reason\":");
    note(c, json_out_string(&c->out, finish, NULL));
    put(c, "}");
}

static bool send(struct completion *c) {
    if (!exchange_begun(c->text.x)) exchange_begin(c->text.x, 200, "text/event-stream");
    put(c, "\n\n");
    bool sent = c->status == REEL_OK && exchange_put(c->text.x, c->out.bytes, c->out.size);
    c->out.size = 0;
    return sent;
}

static void put_timings(struct completion *c) {
    put(c, ",");
    note(c, text_timings(&c->out, &c->sum));
}

/* With `ends` it is the last event that has choices, and the last of all where none with the usage
 * follows. */
static bool send_event(struct completion *c, const char *finish, bool ends) {
    put(c, "data: ");
    put_head(c);
    put_choice(c, finish);
    put(c, c->text.include_usage ? "],\"usage\":null" : "]");
    if (ends && !c->text.include_usage) put_timings(c);
    put(c, "}");
    return send(c);
}

static bool on_token(void *user, const struct reel_token *token) {
    struct completion *c = user;
    const struct reel_tokenizer *tok = reel_model_tokenizer(c->text.model->model);
    size_t n = 0;
    note(c, buffer_append(&c->piece, token->text, token->text_bytes, NULL));
    if (c->text.logprobs) {
        const char *bytes = reel_token_bytes(tok, token->id, &n);
        note(c, logprobs_lists_add(&c->lists, tok, token->id, &token->logprob, token->top,
                                   token->n_top, c->offset, NULL));
        if (bytes && !reel_token_is_control(tok, token->id)) c->offset += characters(bytes, n);
    }
    const bool last = ++c->n_tokens == c->text.max_tokens; /* its event says why it ended */
    if (!c->text.stream || last || (!c->piece.size && !c->text.logprobs))
        return c->status == REEL_OK;
    return send_event(c, NULL, false);
}

static void end_choice(struct completion *c, const struct text_outcome *outcome) {
    const char *finish = c->text.no_tokens ? "length" : text_finish_reason(outcome->reason);
    if (c->text.stream) {
        send_event(c, finish, c->choice + 1 == c->prompts.n * c->text.n);
        return;
    }
    if (c->choice == 0) put_head(c);
    if (c->choice) put(c, ",");
    put_choice(c, finish);
}

static void put_end(struct completion *c) {
    put(c, "],");
    note(c, text_usage(&c->out, c->n_prompt, c->n_reused, c->n_generated));
    put_timings(c);
    put(c, "}");
}

static void end_all(struct completion *c) {
    if (!c->text.stream) {
        put_end(c);
        return;
    }
    if (c->text.include_usage) {
        put(c, "data: ");
        put_head(c);
        put_end(c);
        send(c);
    }
    put(c, "data: [DONE]");
    send(c);
}

/* ---- running ---- */

/* The scores of the prompt at hand; it is evaluated whole, as nothing else keeps its logits. */
static enum reel_status score_prompt(struct completion *c, struct reel_session *session,
                                     const int32_t *ids, int n_ids, struct reel_error *err) {
    mem_free(c->scores);
    c->scores = NULL;
    enum reel_status status =
        mem_zeroed(&c->scores, (size_t)n_ids, sizeof *c->scores, "a prompt's scores", err);
    if (status == REEL_OK)
        status = prompt_scores(c->scores, session, c->text.x, c->text.model, ids, n_ids,
                               c->text.n_top, err);
    return status;
}

static enum reel_status run_one(struct completion *c, struct reel_session *session, int prompt,
                                int nth, const int32_t *ids, struct text_outcome *outcome,
                                struct reel_error *err) {
    const int n_ids = c->prompts.lengths[prompt];
    const bool scored = c->echo && c->text.logprobs && nth == 0;
    enum reel_status status = REEL_OK;
    c->choice = prompt * c->text.n + nth;
    c->n_tokens = 0;
    c->offset = 0;
    const double start = clock_ms();
    if (scored) status = score_prompt(c, session, ids, n_ids, err);
    if (status != REEL_OK) return status;
    const double score_ms = clock_ms() - start;
    if (c->echo) {
        echo(c, prompt, ids);
        if (c->text.stream && !c->text.no_tokens) send_event(c, NULL, false);
    }
    /* Prompts that are the same get other answers, unless a seed says which. */
    status = text_run(&c->text, session, ids, (size_t)n_ids, c->seeded ? nth : c->choice, on_token,
                      c, outcome, err);
    if (scored) { /* what text_run found there was evaluated here */
        exchange_figures(c->text.x)->n_reused -= outcome->n_reused;
        outcome->n_reused = 0;
        outcome->prompt_ms += score_ms;
    }
    return status;
}

static enum reel_status run_all(struct completion *c, struct reel_session *session,
                                struct text_outcome *outcome, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    size_t at = 0;
    for (int i = 0; i < c->prompts.n && status == REEL_OK; i++) {
        for (int nth = 0; nth < c->text.n && status == REEL_OK; nth++) {
            status = run_one(c, session, i, nth, c->prompts.ids + at, outcome, err);
            c->n_generated += outcome->n_generated;
            if (nth == 0) c->n_reused += outcome->n_reused;
            text_outcome_add(&c->sum, outcome);
            if (status == REEL_OK) end_choice(c, outcome);
        }
        at += (size_t)c->prompts.lengths[i];
        c->n_prompt += c->prompts.lengths[i];
    }
    return status;
}

static bool run(struct completion *c) {
    struct session_lease lease;
    struct text_outcome outcome = { 0 };
    struct reel_error err = { 0 };
    for (int i = 0; i < c->prompts.n; i++)
        if (!text_fits(&c->text, (size_t)c->prompts.lengths[i])) return false;
    enum reel_status status = session_lease_take(&lease, c->text.model, c->text.x, c->prompts.ids,
                                                 (size_t)c->prompts.lengths[0], &err);
    if (status == REEL_OK) {
        status = run_all(c, lease.session, &outcome, &err);
        session_lease_give(&lease, c->text.model, c->text.x);
    }
    if (status == REEL_OK) {
        end_all(c);
    } else {
        api_error_from(c->text.x, &err);
    }
    return status == REEL_OK;
}

/* ---- the request ---- */

static bool read_logprobs(struct completion *c, const json_t *json) {
    int64_t n = -1;
    if (!field_int(c->text.x, json, "logprobs", 0, REEL_MAX_TOP_LOGPROBS, &n)) return false;
    c->text.logprobs = n >= 0;
    c->text.n_top = n > 0 ? (int)n : 0;
    return true;
}

static bool read_prompts(struct completion *c, const json_t *json) {
    bool special = true;
    const char *suffix = NULL;
    if (!field_text(c->text.x, json, "suffix", &suffix) ||
        !field_bool(c->text.x, json, "add_special_tokens", &special))
        return false;
    if (suffix && suffix[0])
        return field_refuse(c->text.x, "suffix", "is not supported: text goes on at its end alone");
    return id_lists_read(&c->prompts, c->text.x, json, "prompt", c->text.model,
                         REEL_ENCODE_CONTROL | (special ? REEL_ENCODE_SPECIAL : 0u));
}

static bool read_request(struct completion *c, struct exchange *x, const json_t *json) {
    const json_t *seed = json_object_get(json, "seed");
    const json_t *predict = json_object_get(json, "n_predict");
    const char *name = NULL;
    c->text.x = x;
    c->text.prompt_field = "prompt";
    c->seeded = seed && !json_is_null(seed);
    if (!field_text(x, json, "model", &name)) return false;
    c->text.model = exchange_need_model(x, name, false);
    if (!c->text.model || !text_request_read(&c->text, x, json)) return false;
    if (c->text.max_tokens == 0 && !json_is_number(predict)) c->text.max_tokens = DEFAULT_TOKENS;
    return field_bool(x, json, "echo", &c->echo) && read_logprobs(c, json) && read_prompts(c, json);
}

void handle_completions(struct exchange *x) {
    struct completion c = { .created = (int64_t)time(NULL) };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    bool done = read_request(&c, x, json) && run(&c);
    if (done && c.status != REEL_OK) api_error(x, 503, NULL, NULL, "out of memory");
    if (done && !c.text.stream && c.status == REEL_OK)
        exchange_reply_buffer(x, 200, "application/json", &c.out);
    buffer_release(&c.piece);
    buffer_release(&c.out);
    logprobs_lists_release(&c.lists);
    mem_free(c.scores);
    id_lists_release(&c.prompts);
    text_request_release(&c.text);
    json_decref(json);
}
