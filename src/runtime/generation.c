/* One core for pushed and pulled generation: deliver() takes an id from wherever it was made
 * (passes together with other sessions, the backend's own decoding, or evaluation and a draw here)
 * and decides what it means. */
#include "runtime/generation.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/struct_size.h"
#include "runtime/guesses.h"
#include "runtime/session.h"

#include <limits.h>
#include <string.h>

enum reel_status generation_open(struct generation *g, size_t max_token_bytes, int draft_ids,
                                 struct reel_error *err) {
    size_t room = DETOKENIZER_ROOM(max_token_bytes) + 16;
    enum reel_status status = mem_zeroed(&g->characters, room, 1, "a token's text", err);
    if (status == REEL_OK)
        status = mem_zeroed(&g->text, room + STOP_TEXT_BYTES, 1, "a token's text", err);
    if (status == REEL_OK && draft_ids > 0) status = drafter_open(&g->drafter, draft_ids, err);
    return status;
}

void generation_close(struct generation *g) {
    passes_leave(&g->column);
    drafter_close(&g->drafter);
    mem_free(g->characters);
    mem_free(g->text);
}

/* ---- starting ---- */

static enum reel_status check_set(const struct reel_session *s, const struct reel_generation *set,
                                  struct reel_error *err) {
    int vocab = s->model->model.config.vocab;
    if (set->max_tokens < 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "max_tokens is %d; allowed is 1 or more, or 0 for until the context is full",
                       set->max_tokens);
    if (set->n_stop_ids < 0 || (set->n_stop_ids > 0 && !set->stop_ids))
        return err_set(err, REEL_E_ARGUMENT, "n_stop_ids is %d with %s list", set->n_stop_ids,
                       set->stop_ids ? "a" : "no");
    for (int i = 0; i < set->n_stop_ids; i++)
        if (set->stop_ids[i] < 0 || set->stop_ids[i] >= vocab)
            return err_set(err, REEL_E_ARGUMENT, "stop id %d is %d; ids are 0 to %d", i,
                           (int)set->stop_ids[i], vocab - 1);
    if (set->n_top_logprobs < 0 || set->n_top_logprobs > REEL_MAX_TOP_LOGPROBS)
        return err_set(err, REEL_E_ARGUMENT, "n_top_logprobs is %d; allowed are 0 to %d",
                       set->n_top_logprobs, REEL_MAX_TOP_LOGPROBS);
    return guesses_check(s, set, err);
}

static void choose_stop_ids(struct generation *g, const struct model_config *config) {
    g->stop_ids = g->set.stop_ids ? g->set.stop_ids : config->stop_ids;
    g->n_stop_ids = g->set.stop_ids ? g->set.n_stop_ids : config->n_stop_ids;
    if (g->set.ignore_stop_ids) g->n_stop_ids = 0;
}

enum reel_status reel_generation_start(struct reel_session *s, const struct reel_generation *given,
                                       struct reel_error *err) {
    struct generation *g = s ? &s->generation : NULL; /* session_idle refuses NULL */
    struct reel_generation set;
    double start = clock_ms();
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status == REEL_OK) status = err_if_null(err, "generation", (const void *const[]){ given });
    if (status == REEL_OK) status = struct_read(&set, sizeof set, given, "reel_generation", err);
    if (status == REEL_OK) status = check_set(s, &set, err);
    if (status == REEL_OK && s->length == 0)
        status = err_set(err, REEL_E_STATE, "the session is empty; give it a prompt first");
    if (status == REEL_OK)
        status = stop_text_start(&g->stop, set.stop_strings, set.n_stop_strings, err);
    if (status == REEL_OK) status = sampler_start(s->sampler, set.sampling, err);
    if (status == REEL_OK && guesses_ask_layer(set.speculation)) {
        status = guesses_follow(s, set.speculation, err);
        set.speculation = REEL_SPECULATION_MTP; /* from here on they are one */
    }
    if (status != REEL_OK) return status;
    for (int i = 0; i < s->length; i++)
        sampler_saw_prompt(s->sampler, s->ids[i]);
    g->set = set;
    g->set.logprobs = set.logprobs || set.n_top_logprobs > 0;
    choose_stop_ids(g, &s->model->model.config);
    g->own_loop = !s->model->ops->decode || g->set.logprobs;
    g->joins = s->model->passes;
    g->joined = false;
    g->failed = false;
    g->speculates = set.speculation != REEL_SPECULATION_OFF && s->model->backend_info.drafts &&
                    g->joins && (!s->model->ops->decode || !g->set.logprobs);
    if (s->draft) draft_session_begin(s->draft);
    if (g->speculates) guesses_begin(s);
    g->costs.column_share = (double)s->model->backend_info.column_share;
    pass_costs_begin(&g->costs);
    g->drafted = false;
    g->n_ahead = g->next_ahead = 0;
    g->detokenizer = detokenizer_start(s->model->model.tokenizer);
    g->result = (struct reel_generation_result){ .size = sizeof g->result, .stop_string = -1 };
    if (s->length == s->max_context) g->result.reason = REEL_STOP_CONTEXT;
    g->start_ms = start;
    g->active = true;
    session_begin(s);
    return REEL_OK;
}

/* ---- one token ---- */

static bool is_stop_id(const struct generation *g, int32_t id) {
    for (int i = 0; i < g->n_stop_ids; i++)
        if (g->stop_ids[i] == id) return true;
    return false;
}

/* Adds the text of one id, as far as it is certain, to token.text. */
static void add_text(struct generation *g, const struct model *model, int32_t id) {
    const struct reel_tokenizer *tok = model->tokenizer;
    size_t n = 0;
    const char *bytes = tok ? tokenizer_bytes(tok, id, &n) : NULL;
    if (!bytes || (tokenizer_is_control(tok, id) && !chat_is_answer_word(&model->chat, bytes, n)))
        return;
    n = detokenizer_push(&g->detokenizer, bytes, n, g->characters);
    g->token.text_bytes =
        stop_text_push(&g->stop, g->characters, n, g->text, &g->result.stop_string);
}

/* Adds what was held back. Its last characters may still complete a stop string. */
static void end_text(struct generation *g) {
    char *end = g->text + g->token.text_bytes;
    size_t n = detokenizer_finish(&g->detokenizer, g->characters);
    int match = -1;
    size_t n_text = stop_text_push(&g->stop, g->characters, n, end, &match);
    if (match < 0) n_text += stop_text_finish(&g->stop, end + n_text);
    g->token.text_bytes += n_text;
}

static enum reel_stop_reason stop_reason(const struct reel_session *s, int32_t id) {
    const struct generation *g = &s->generation;
    if (is_stop_id(g, id)) return REEL_STOP_ID;
    if (g->result.stop_string >= 0) return REEL_STOP_STRING;
    if (g->set.max_tokens && g->result.n_tokens == g->set.max_tokens) return REEL_STOP_MAX_TOKENS;
    if (s->length == s->max_context) return REEL_STOP_CONTEXT;
    return REEL_STOP_NONE;
}

/* The session takes the id; token and the reason to stop are filled in. */
static void deliver(struct reel_session *s, int32_t id) {
    struct generation *g = &s->generation;
    g->token.size = sizeof g->token;
    g->token.id = id;
    g->token.text = g->text;
    g->token.text_bytes = 0;
    session_append(s, id);
    if (g->result.n_tokens++ == 0) g->result.first_token_ms = clock_ms() - g->start_ms;
    if (!is_stop_id(g, id)) add_text(g, &s->model->model, id);
    g->result.reason = stop_reason(s, id);
    if (g->result.reason != REEL_STOP_NONE && g->result.reason != REEL_STOP_STRING) end_text(g);
}

static enum reel_status draw(struct reel_session *s, int32_t *id, struct reel_error *err) {
    struct generation *g = &s->generation;
    enum reel_status status = session_need_logits(s, err);
    if (status != REEL_OK) return status;
    *id = sampler_draw(s->sampler, s->logits, s->length);
    if (*id < 0)
        return err_set(err, REEL_E_DEVICE,
                       "no id can be drawn for position %d: each logit is NaN or forbidden",
                       s->length);
    g->token.n_top = 0;
    if (g->set.logprobs)
        g->token.n_top = sampler_logprobs(s->sampler, s->logits, *id, &g->token.logprob, g->top,
                                          g->set.n_top_logprobs);
    g->token.top = g->token.n_top ? g->top : NULL;
    sampler_saw_generated(s->sampler, *id);
    return REEL_OK;
}

/* ---- ids that were made ahead ---- */

/* The session is about to take this one. */
static int32_t take(struct reel_session *s, const struct made_id *made) {
    struct generation *g = &s->generation;
    g->result.n_drafted += made->n_drafts;
    g->result.n_accepted += made->drafted;
    g->token.logprob = made->logprob;
    g->token.n_top = made->n_top;
    g->token.top = made->n_top ? g->top : NULL;
    memcpy(g->top, made->top, sizeof g->top);
    s->n_evaluated = s->length; /* it was made from the id before it */
    return made->id;
}

static bool has_ahead(const struct generation *g) { return g->next_ahead < g->n_ahead; }

static int32_t take_ahead(struct reel_session *s) {
    struct generation *g = &s->generation;
    return take(s, &g->ahead[g->next_ahead++]);
}

/* ---- decoding by the backend ---- */

/* Whether the backend could make the next ids itself: it begins with the last one there is, be that
 * evaluated already or not. */
static bool backend_can_begin(const struct reel_session *s) {
    const int first = s->length - 1;
    return !s->has_logits && s->n_evaluated >= first && session_resume_at(s, first) == first &&
           s->ids[first] >= 0;
}

static bool backend_decodes(const struct reel_session *s) {
    return !s->generation.own_loop && backend_can_begin(s);
}

int generation_tokens_left(const struct reel_session *s) {
    const struct generation *g = &s->generation;
    int room = s->max_context - s->length;
    int wanted = g->set.max_tokens ? g->set.max_tokens - g->result.n_tokens : INT_MAX;
    return wanted < room ? wanted : room;
}

static int32_t draw_for_backend(void *user, const float *logits, int64_t position) {
    struct reel_session *s = user;
    return sampler_draw(s->sampler, logits, position);
}

/* Ends a decoding when others wait for their turn, or would decode together with this session: the
 * next one goes on from there. */
static bool enough_for_now(void *user) {
    struct reel_session *s = user;
    const bool over = turn_is_over(&s->turn);
    if (over) turn_hand_on(&s->turn);
    return over || (s->generation.joins && passes_are_wanted(s->model->passes));
}

static struct backend_decode decode_of(struct reel_session *s, int max_tokens,
                                       bool (*on_id)(void *user, int32_t id)) {
    return (struct backend_decode){ .position = s->length - 1,
                                    .id = s->ids[s->length - 1],
                                    .max_tokens = max_tokens,
                                    .sampling = sampler_sampling(s->sampler),
                                    .stop_ids = s->generation.stop_ids,
                                    .n_stop_ids = s->generation.n_stop_ids,
                                    .on_id = on_id,
                                    .enough = enough_for_now,
                                    .draw = draw_for_backend,
                                    .user = s,
                                    .cancel = &s->cancel };
}

static void saw_draft(void *user) { ((struct reel_session *)user)->generation.drafted = true; }

/* An id that the backend decoded; whether it was a draft. */
static bool saw_id(struct reel_session *s, int32_t id) {
    struct generation *g = &s->generation;
    const bool drafted = g->drafted;
    sampler_saw_generated(s->sampler, id);
    if (g->speculates) (void)drafter_saw(&g->drafter, id);
    g->drafted = false;
    return drafted;
}

static enum reel_status run_decode(struct reel_session *s, int max_tokens,
                                   bool (*on_id)(void *user, int32_t id), struct reel_error *err) {
    struct backend_decode decode = decode_of(s, max_tokens, on_id);
    if (s->generation.speculates) {
        decode.expect = guesses_expect;
        decode.draft = guesses_between_launches;
        decode.guessed = guesses_of_layer;
        decode.drafted = saw_draft;
        decode.took = guesses_saw_passes;
        decode.most_drafts = s->generation.set.most_drafts;
        decode.drafts_wait = s->generation.set.speculation != REEL_SPECULATION_AUTO;
    }
    s->generation.token.n_top = 0;
    s->generation.token.top = NULL;
    enum reel_status status = session_take_turn(s, err);
    if (status != REEL_OK) return status;
    status = s->model->ops->decode(s->state, &decode, err);
    turn_give(&s->turn);
    session_go_back(s);
    return status;
}

static bool keep_ahead(void *user, int32_t id) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    g->ahead[g->n_ahead++] = (struct made_id){ .id = id, .drafted = saw_id(s, id) };
    return g->n_ahead < GENERATION_AHEAD;
}

/* Lets the backend make a few ids. None made means that the loop here has to. */
static enum reel_status decode_ahead(struct reel_session *s, struct reel_error *err) {
    struct generation *g = &s->generation;
    int left = generation_tokens_left(s);
    g->n_ahead = g->next_ahead = 0;
    enum reel_status status =
        run_decode(s, left < GENERATION_AHEAD ? left : GENERATION_AHEAD, keep_ahead, err);
    bool made = g->n_ahead > 0 && status != REEL_E_CANCELLED; /* a failure will come again */
    bool refused = g->n_ahead == 0 && (status == REEL_OK || status == REEL_E_UNSUPPORTED);
    if (refused) g->own_loop = true;
    if (!made && !refused) return status;
    err_clear(err);
    return REEL_OK;
}

/* ---- in passes, which take drafts ---- */

/* The callbacks of a column. With other sessions they run on the thread of the passes; meanwhile
 * the session's own thread leaves the sampler, the drafter, the settings and the state alone. */
static int32_t draw_for_column(void *user, const float *logits, int64_t position) {
    struct reel_session *s = user;
    const struct generation *g = &s->generation;
    struct made_id *made = &s->generation.column.next;
    const int32_t id = sampler_draw(s->sampler, logits, position);
    if (id >= 0 && g->set.logprobs)
        made->n_top = sampler_logprobs(s->sampler, logits, id, &made->logprob, made->top,
                                       g->set.n_top_logprobs);
    return id;
}

static bool saw_decoded(void *user, int32_t id) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    sampler_saw_generated(s->sampler, id);
    g->column.next.drafted = g->speculates && drafter_saw(&g->drafter, id);
    return !is_stop_id(g, id);
}

/* ---- a pass of this session alone, with drafts ---- */

static int draft_alone(void *user, int32_t *ids, int most) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    if (g->layer_guesses > 0) {
        const struct pass_room room = { most, &g->costs, 1, 1, false, NULL };
        const double start = clock_ms();
        guesses_in_turn(s, &g->guess, g->layer_guesses, &room);
        g->guess_ms = clock_ms() - start;
    }
    const int n = int_min(g->guess.n, most);
    memcpy(ids, g->guess.ids, (size_t)n * sizeof *ids);
    drafter_takes(&g->drafter, &g->guess, n);
    g->column.next.n_drafts = n;
    return n;
}

static bool keep_drafted(void *user, int32_t id) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    const bool go_on = saw_decoded(s, id);
    g->column.next.id = id;
    g->ahead[g->n_ahead++] = g->column.next;
    g->column.next.n_drafts = 0;
    return go_on;
}

static bool one_pass(void *user) {
    (void)user;
    return true;
}

static bool never_enough(void *user) {
    (void)user;
    return false;
}

/* Fills in the drafts that are worth a pass, or says that the draft layer is to be asked. A draft
 * model is asked here, before the turn at this session's model. False: there are none. */
static bool guess_alone(struct reel_session *s) {
    struct generation *g = &s->generation;
    if (!g->speculates || s->model->ops->decode || g->joined || !backend_can_begin(s) ||
        generation_tokens_left(s) < 2)
        return false;
    g->guess_ms = 0;
    const int most = int_min(s->model->backend_info.drafts, generation_tokens_left(s) - 1);
    const struct pass_room room = { most, &g->costs, 1, 1, false, NULL };
    g->layer_guesses = guesses_before_turn(s, &g->guess, &room);
    return g->layer_guesses > 0 || g->guess.n > 0;
}

/* What a pass cost that made the last n ids. One that may have waited for others says nothing. */
static void note_cost(struct reel_session *s, int n_columns, int n_ids, double since_ms) {
    if (s->generation.speculates && n_ids > 0 && !turns_are_shared(s->model->turns))
        pass_costs_saw(&s->generation.costs, n_columns, 1, n_ids, clock_ms() - since_ms);
}

/* One pass over the last id and the drafts that guess_alone found. */
static enum reel_status run_drafts(struct reel_session *s, struct reel_error *err) {
    struct generation *g = &s->generation;
    const double start = clock_ms();
    struct backend_decode decode = decode_of(s, generation_tokens_left(s), keep_drafted);
    struct backend_column column = { .state = s->state, .decode = &decode };
    decode.draw = draw_for_column;
    decode.draft = draft_alone;
    decode.enough = never_enough;
    g->n_ahead = g->next_ahead = 0;
    g->column.next = (struct made_id){ 0 };
    enum reel_status status = session_take_turn(s, err);
    if (status != REEL_OK) return status;
    s->model->ops->step(s->model->backend,
                        &(struct backend_batch){ .columns = &column, .n = 1, .enough = one_pass });
    turn_give(&s->turn);
    session_go_back(s);
    if (g->n_ahead == 0) return err_set(err, column.status, "%s", column.err.text);
    note_cost(s, 1 + g->ahead[0].n_drafts, g->n_ahead, start + g->guess_ms);
    return REEL_OK; /* a failure behind the first id will come again */
}

/* ---- together with other sessions ---- */

/* Joins the sessions that decode at this time, if there are any. Without them its turns go before
 * those of prompts, as the turns of the passes do, so that it waits for one prompt and not for all.
 */
static void join(struct reel_session *s) {
    struct generation *g = &s->generation;
    s->turn.ahead = false;
    if (g->joined || !g->joins || !backend_can_begin(s)) return;
    if (g->speculates) guesses_catch_up(s);
    g->column.state = s->state;
    g->column.decode = decode_of(s, generation_tokens_left(s), saw_decoded);
    g->column.decode.draw = draw_for_column;
    g->column.decode.host_draws = g->set.logprobs;
    g->column.guess = g->speculates ? guesses_for_pass : NULL;
    g->column.ahead = g->pushed ? PASSES_AHEAD : GENERATION_AHEAD;
    g->joined = passes_join(s->model->passes, &g->column);
    s->turn.ahead = g->column.only;
}

/* Ids that were not taken are as if never made: draws depend on nothing but the position. */
static void leave(struct reel_session *s) {
    passes_leave(&s->generation.column);
    if (s->generation.joined) {
        session_go_back(s);
        if (s->generation.speculates)
            drafter_follow(&s->generation.drafter, s->ids,
                           s->length); /* which may have been ahead */
    }
    s->generation.joined = false;
    s->turn.ahead = false;
}

/* The next id of the column, or -1 when the session has to go on by itself. */
static enum reel_status take_made(struct reel_session *s, int32_t *id, struct reel_error *err) {
    struct generation *g = &s->generation;
    struct made_id made;
    *id = -1;
    if (passes_take(&g->column, &made)) {
        *id = take(s, &made);
        return REEL_OK;
    }
    leave(s);
    if (session_cancelled(s)) return REEL_E_CANCELLED;
    const enum reel_status status = g->column.status;
    if (status == REEL_E_UNSUPPORTED) g->joins = false;
    if (status == REEL_OK || status == REEL_E_UNSUPPORTED) return REEL_OK;
    return err_set(err, status, "%s", g->column.err.text);
}

/* ---- pulled ---- */

/* An id that this session makes alone, of the loop here. */
static enum reel_status make_id(struct reel_session *s, int32_t *id, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (guess_alone(s)) {
        status = run_drafts(s, err);
        if (status == REEL_OK) *id = take_ahead(s);
        return status;
    }
    const bool pass = !s->has_logits;
    const double start = clock_ms(); /* behind guesses that came to nothing */
    status = draw(s, id, err);
    if (status == REEL_OK && s->generation.speculates) drafter_saw(&s->generation.drafter, *id);
    if (status == REEL_OK && pass) note_cost(s, 1, 1, start);
    return status;
}

static enum reel_status next_id(struct reel_session *s, int32_t *id, struct reel_error *err) {
    struct generation *g = &s->generation;
    if (!has_ahead(g)) join(s);
    if (g->joined) {
        enum reel_status status = take_made(s, id, err);
        if (status != REEL_OK || *id >= 0) return status;
    }
    if (!has_ahead(g) && backend_decodes(s)) {
        enum reel_status status = decode_ahead(s, err);
        if (status != REEL_OK) return status;
    }
    if (!has_ahead(g)) return make_id(s, id, err);
    *id = take_ahead(s);
    return REEL_OK;
}

/* Cancellation is a reason to stop, and so is memory that has run out behind the first token;
 * everything else is a failure that only finish ends. */
static enum reel_status stop_on_failure(struct generation *g, enum reel_status status,
                                        struct reel_error *err) {
    const bool full = status == REEL_E_MEMORY && g->result.n_tokens > 0;
    if (status != REEL_E_CANCELLED && !full) {
        g->failed = true;
        return status;
    }
    g->result.reason = full ? REEL_STOP_MEMORY : REEL_STOP_CANCELLED;
    err_clear(err);
    return REEL_OK;
}

enum reel_status reel_generation_next(struct reel_session *s, const struct reel_token **token,
                                      struct reel_error *err) {
    int32_t id = -1;
    err_clear(err);
    if (token) *token = NULL;
    enum reel_status status = err_if_null(err, "session token", (const void *const[]){ s, token });
    if (status != REEL_OK) return status;
    struct generation *g = &s->generation;
    if (!g->active || g->failed)
        return err_set(err, REEL_E_STATE,
                       g->active ? "this generation failed earlier; finish it"
                                 : "no generation is open on this session");
    if (g->pushed)
        return err_set(err, REEL_E_STATE,
                       "reel_generate is running on this session; its tokens go to on_token");
    if (g->result.reason != REEL_STOP_NONE) return REEL_OK;
    status = model_handle_is_here(s->model, err);
    if (status == REEL_OK) status = session_cancelled(s) ? REEL_E_CANCELLED : next_id(s, &id, err);
    if (!g->joined) leave(s); /* between calls it decodes nothing */
    if (status != REEL_OK) return stop_on_failure(g, status, err);
    deliver(s, id);
    *token = &g->token;
    return REEL_OK;
}

/* Ids that were made ahead and not taken may have been evaluated: a recurrent state is beyond then.
 */
static void finish(struct reel_session *s) {
    struct generation *g = &s->generation;
    leave(s);
    session_go_back(s);
    g->active = false;
    g->result.n_passes = g->result.n_tokens - g->result.n_accepted;
    if (s->draft && s->draft->failed) g->result.draft_problem = s->draft->why.text;
    g->result.total_ms = clock_ms() - g->start_ms;
}

static enum reel_status tell(const struct reel_session *s, struct reel_generation_result *result,
                             struct reel_error *err) {
    const struct reel_generation_result *own = &s->generation.result;
    return result ? struct_write(result, own, sizeof *own, "reel_generation_result", err) : REEL_OK;
}

enum reel_status reel_generation_finish(struct reel_session *s,
                                        struct reel_generation_result *result,
                                        struct reel_error *err) {
    err_clear(err);
    enum reel_status status = err_if_null(err, "session", (const void *const[]){ s });
    if (status != REEL_OK || !s->generation.active || s->generation.pushed) return status;
    finish(s);
    return tell(s, result, err);
}

/* ---- pushed ---- */

static bool push(struct reel_session *s, int32_t id) {
    struct generation *g = &s->generation;
    deliver(s, id);
    if (!g->set.on_token) return g->result.reason == REEL_STOP_NONE;
    turn_lend(&s->turn); /* where a backend decodes; the loop here holds none between its calls */
    const bool go_on = g->set.on_token(g->set.user, &g->token);
    if (!go_on && g->result.reason == REEL_STOP_NONE) g->result.reason = REEL_STOP_CALLBACK;
    return g->result.reason == REEL_STOP_NONE && turn_resume(&s->turn);
}

static bool push_decoded(void *user, int32_t id) {
    struct reel_session *s = user;
    s->generation.result.n_accepted += saw_id(s, id);
    s->n_evaluated = s->length;
    return push(s, id);
}

static enum reel_status push_some(struct reel_session *s, struct reel_error *err) {
    struct generation *g = &s->generation;
    int32_t id = -1;
    if (session_cancelled(s)) return REEL_E_CANCELLED;
    if (has_ahead(g)) {
        push(s, take_ahead(s));
        return REEL_OK;
    }
    join(s);
    if (g->joined) {
        enum reel_status status = take_made(s, &id, err);
        if (status == REEL_OK && id >= 0) push(s, id);
        return status;
    }
    if (backend_decodes(s)) {
        int before = g->result.n_tokens;
        enum reel_status status = run_decode(s, generation_tokens_left(s), push_decoded, err);
        if (g->result.n_tokens > before) return status;
        if (status != REEL_OK && status != REEL_E_UNSUPPORTED) return status;
        g->own_loop = true; /* also when it made nothing without a reason */
        err_clear(err);
    }
    enum reel_status status = make_id(s, &id, err);
    if (status == REEL_OK) push(s, id);
    return status;
}

enum reel_status reel_generate(struct reel_session *s, const struct reel_generation *generation,
                               struct reel_generation_result *result, struct reel_error *err) {
    err_clear(err);
    enum reel_status status = REEL_OK;
    if (result) status = struct_check(result, sizeof *result, "reel_generation_result", err);
    if (status == REEL_OK) status = reel_generation_start(s, generation, err);
    if (status != REEL_OK) return status;
    struct generation *g = &s->generation;
    g->pushed = true;
    while (status == REEL_OK && g->result.reason == REEL_STOP_NONE) {
        status = push_some(s, err);
        if (status != REEL_OK) status = stop_on_failure(g, status, err);
    }
    g->pushed = false;
    finish(s);
    const enum reel_status told = tell(s, result, NULL); /* its size was looked at above */
    return status == REEL_OK ? told : status;
}
