#include "runtime/guesses.h"

#include "base/clock.h"
#include "base/numbers.h"

#include <string.h>

/* Each further guess of a draft layer or model takes another reading of it. */
enum { READ_FOR_DRAFTS = 3 };

/* What counts as made by a draft model in a generation and in a pass in which it is not asked. */
#define HOPE_AT_START 1.0F
#define HOPE_A_PASS   (1 / 32.0F)

/* ---- what is allowed ---- */

enum reel_status guesses_check_kind(enum reel_speculation kind, struct reel_error *err) {
    if ((int)kind >= REEL_SPECULATION_AUTO && (int)kind <= REEL_SPECULATION_EAGLE3) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "speculation is %d; allowed are %d to %d", (int)kind,
                   REEL_SPECULATION_AUTO, REEL_SPECULATION_EAGLE3);
}

static const char *name_of(const struct reel_model *model) {
    return model->model.name ? model->model.name : "the model";
}

/* Whether sessions are to be ready for guesses of a layer or head that nobody has asked for by
 * kind. On a GPU a layer takes memory and programs of its own: somebody has to have named it. */
static bool may_follow(const struct reel_model *model) {
    return model->backend_info.guesses &&
           (!model->ops->decode || model->model.weights.draft.kind == DRAFT_EAGLE3);
}

bool guesses_ask_layer(enum reel_speculation kind) {
    return kind == REEL_SPECULATION_MTP || kind == REEL_SPECULATION_EAGLE3;
}

/* A head takes the place of the model's own layer. */
static enum reel_status check_layer(const struct reel_model *model, enum reel_speculation kind,
                                    struct reel_error *err) {
    const bool head = model->model.weights.draft.kind == DRAFT_EAGLE3;
    if (kind == REEL_SPECULATION_EAGLE3 && !head)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s was opened without an EAGLE-3 head (draft_head); speculation may be "
                       "\"auto\", \"ngram\", \"mtp\", \"draft\" or \"off\"",
                       name_of(model));
    if (kind == REEL_SPECULATION_MTP && head)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s was opened with an EAGLE-3 head, which guesses in place of its own "
                       "layer; speculation may be \"auto\", \"ngram\", \"eagle3\", \"draft\" or "
                       "\"off\"",
                       name_of(model));
    return REEL_OK;
}

enum reel_status guesses_follow(struct reel_session *s, enum reel_speculation kind,
                                struct reel_error *err) {
    const struct reel_model *model = s->model;
    const bool may = kind == REEL_SPECULATION_AUTO && may_follow(model);
    if (!guesses_ask_layer(kind) && !may) return REEL_OK;
    if (check_layer(model, kind, err) != REEL_OK) return err->status;
    if (model->backend_info.guesses) {
        enum reel_status status = model->ops->guess_begin(s->state, err);
        s->layer_follows = status == REEL_OK;
        return status;
    }
    if (model->model.weights.draft.n_parameters)
        return err_set(
            err, REEL_E_UNSUPPORTED,
            "%s has a draft layer that does not run on this device; it runs on the CPU's "
            "fast paths%s",
            name_of(model),
            kind == REEL_SPECULATION_EAGLE3 ? " and, of a model without Gated DeltaNets, on one GPU"
                                            : " and on one GPU");
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s has no draft layer that runs (tensors \"mtp.*\" of one layer, or "
                   "\"blk.N.nextn.*\" in a GGUF file); speculation may be \"auto\", \"ngram\", "
                   "\"draft\" or \"off\"",
                   name_of(model));
}

static enum reel_status check_drafts(const struct reel_session *s, struct reel_error *err) {
    if (s->model->backend_info.drafts) return REEL_OK;
    return err_set(
        err, REEL_E_UNSUPPORTED,
        "%s takes no drafts on this device; speculation runs on the CPU, on its fast paths",
        name_of(s->model));
}

enum reel_status guesses_check_model(const struct reel_session *s, struct reel_error *err) {
    enum reel_status status = check_drafts(s, err);
    if (status != REEL_OK || s->draft) return status;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "no model guesses for this session of %s: draft_model names one when a session "
                   "is opened; speculation may be \"auto\", \"ngram\", \"mtp\" or \"off\"",
                   name_of(s->model));
}

enum reel_status guesses_check(const struct reel_session *s, const struct reel_generation *set,
                               struct reel_error *err) {
    enum reel_status status = guesses_check_kind(set->speculation, err);
    if (status == REEL_OK && set->speculation == REEL_SPECULATION_NGRAM)
        status = check_drafts(s, err);
    if (status == REEL_OK && set->speculation == REEL_SPECULATION_DRAFT)
        status = guesses_check_model(s, err);
    if (status != REEL_OK) return status;
    if (set->most_drafts < 0 || set->most_drafts > REEL_MAX_DRAFTS)
        return err_set(err, REEL_E_ARGUMENT, "most_drafts is %d; allowed are 1 to %d, or 0 for all",
                       set->most_drafts, REEL_MAX_DRAFTS);
    return REEL_OK;
}

void guesses_begin(struct reel_session *s) {
    struct generation *g = &s->generation;
    drafter_follow(&g->drafter, s->ids, s->length);
    g->asked = g->layer_is_lost = false;
    g->guess_ms = 0;
    if (s->draft) drafter_hope(&g->drafter, GUESS_BY_MODEL, HOPE_AT_START);
    if (s->layer_follows) drafter_hope(&g->drafter, GUESS_BY_LAYER, HOPE_AT_START);
}

/* How many guesses of a layer or a model a pass may take, */
static int most_guesses(const struct generation *g, const struct pass_room *room) {
    const int most = int_min(room->most, GUESS_MOST);
    return g->set.most_drafts > 0 ? int_min(most, g->set.most_drafts) : most;
}

/* and how many of them are worth asking for. */
static struct pass_choice choose_for(const struct reel_session *s, const struct pass_room *room,
                                     enum guess_source source, const struct guess_cost *cost,
                                     int least) {
    const int most = most_guesses(&s->generation, room);
    float chance[GUESS_MOST];
    for (int i = 0; i < most; i++)
        chance[i] = drafter_step_chance(&s->generation.drafter, source, i);
    return pass_costs_choose(room->costs, room->n_columns, room->expected, chance, most, cost,
                             least);
}

/* ---- the draft layer ---- */

static void set_layer_chances(const struct drafter *d, struct guess *guess) {
    guess->source = GUESS_BY_LAYER;
    for (int i = 0; i < guess->n; i++)
        guess->chance[i] = drafter_step_chance(d, GUESS_BY_LAYER, i);
}

/* Of a pass of one, that a guess of it is taken for until one was timed. */
#define LAYER_SHARE 0.125
/* How much of what a guess took counts towards what guesses take. */
#define LAYER_FOLLOWS 0.1

/* It was asked, and n guesses took so long. */
static void saw_layer(struct generation *g, struct pass_costs *costs, int n, double ms) {
    g->layer_is_lost = n == 0;
    if (g->set.speculation != REEL_SPECULATION_AUTO) return;
    pass_costs_pay(costs, ms);
    if (n == 0) return;
    const double one = ms / n;
    g->layer_ms += g->layer_ms > 0 ? LAYER_FOLLOWS * (one - g->layer_ms) : one;
}

/* What it tells of what follows the drafter's last id: the session's, or that of its column, which
 * is ahead of it. */
static void guess_by_layer(struct reel_session *s, struct guess *guess, int most,
                           const struct pass_room *room) {
    struct generation *g = &s->generation;
    const struct drafter *d = &g->drafter;
    const int32_t last = d->n > 0 ? d->ids[d->n - 1] : -1;
    const double start = clock_ms();
    *guess = (struct guess){ 0 };
    if (last >= 0 && most > 0)
        guess->n = s->model->ops->guess(s->state, d->n - 1, last, guess->ids, most, NULL);
    set_layer_chances(d, guess);
    saw_layer(g, room->costs, guess->n, clock_ms() - start);
}

/* Whether the settings leave the choice to it, and it may know what stands before. */
static bool layer_can(const struct reel_session *s) {
    const struct generation *g = &s->generation;
    return g->set.speculation == REEL_SPECULATION_AUTO && s->layer_follows && !g->layer_is_lost;
}

static struct pass_choice choose_for_layer(const struct reel_session *s,
                                           const struct pass_room *room) {
    const struct guess_cost cost = { s->generation.layer_ms, LAYER_SHARE };
    return choose_for(s, room, GUESS_BY_LAYER, &cost, 0);
}

void guesses_of_layer(void *user, const int32_t *ids, int n, double ms) {
    struct generation *g = &((struct reel_session *)user)->generation;
    struct guess guess = { .n = n };
    g->guess_ms = ms;
    saw_layer(g, &g->costs, n, ms);
    if (n == 0) return;
    memcpy(guess.ids, ids, (size_t)n * sizeof *ids);
    set_layer_chances(&g->drafter, &guess);
    drafter_takes(&g->drafter, &guess, n);
}

/* ---- the draft model ---- */

/* Ids behind that a draft model may be while other sessions wait for its guesses. */
enum { NEAR = 64 };
/* Of a guess's time, that reading an id of a prompt is taken for until it was measured. */
#define READ_SHARE 0.125

/* Whether so many ids behind, it can save in this generation what catching up takes. With
 * REEL_SPECULATION_DRAFT it is asked whatever that takes. */
static bool pays_to_read(const struct reel_session *s, const struct pass_choice *model, int behind,
                         const struct pass_room *room) {
    const struct draft_session *d = s->draft;
    const double one =
        pass_costs_choose(room->costs, room->n_columns, room->expected, NULL, 0, NULL, 0).speed;
    if (behind <= NEAR || s->generation.set.speculation == REEL_SPECULATION_DRAFT) return true;
    if (one <= 0 || model->speed <= one) return false;
    const double saves = generation_tokens_left(s) * (1 / one - 1 / model->speed);
    const double guess_ms = d->step_ms > 0 ? d->step_ms : d->share / one;
    return saves > behind * (d->read_ms > 0 ? d->read_ms : READ_SHARE * guess_ms);
}

/* Whether the settings leave the choice to it, and it could guess now. */
static bool model_can(const struct reel_session *s) {
    const enum reel_speculation kind = s->generation.set.speculation;
    return s->draft && (kind == REEL_SPECULATION_AUTO || kind == REEL_SPECULATION_DRAFT) &&
           draft_session_can(s->draft, s->generation.drafter.n);
}

/* How many guesses of it are worth asking for. */
static struct pass_choice choose_for_model(const struct reel_session *s,
                                           const struct pass_room *room) {
    const struct generation *g = &s->generation;
    const bool always = g->set.speculation == REEL_SPECULATION_DRAFT;
    const struct guess_cost cost = { s->draft->step_ms, s->draft->share };
    const int most = most_guesses(g, room);
    if (most < 1) return (struct pass_choice){ 0 };
    if (always && g->set.most_drafts > 0) return (struct pass_choice){ most, 0 };
    struct pass_choice choice = choose_for(s, room, GUESS_BY_MODEL, &cost, always ? 1 : 0);
    if (always && choice.speed <= 0) choice.n = int_min(most, READ_FOR_DRAFTS);
    return choice;
}

/* Whether it is worth asking where it stands. While others wait it is not to read a prompt. */
static bool is_within_reach(const struct reel_session *s, const struct pass_choice *model,
                            const struct pass_room *room) {
    const struct drafter *d = &s->generation.drafter;
    const int behind = draft_session_behind(s->draft, d->ids, d->n);
    return room->is_shared ? behind <= NEAR : pays_to_read(s, model, behind, room);
}

static bool is_model_better(const struct reel_session *s, const struct pass_choice *model,
                            const struct pass_choice *own) {
    const bool always = s->generation.set.speculation == REEL_SPECULATION_DRAFT;
    return model->n > 0 && (always || model->speed > own->speed);
}

/* Asks it. What it takes to read the prompt of a generation is not laid at its door: it would have
 * to pay for that before it could begin. */
static void guess_by_model(struct reel_session *s, struct guess *guess, int most,
                           const struct pass_room *room) {
    struct generation *g = &s->generation;
    struct draft_session *draft = s->draft;
    const struct drafter *d = &g->drafter;
    *guess = (struct guess){ .source = GUESS_BY_MODEL };
    if (room->turn) turn_lend(room->turn);
    guess->n = draft_session_guess(draft, d->ids, d->n, s->sampler, guess->ids, most);
    if (room->turn) (void)turn_resume(room->turn); /* that of passes cannot be cancelled */
    for (int i = 0; i < guess->n; i++)
        guess->chance[i] = drafter_step_chance(d, GUESS_BY_MODEL, i);
    pass_costs_pay(room->costs, draft->took_ms - (g->asked ? 0 : draft->caught_up_ms));
    g->asked = true;
}

/* ---- all ---- */

/* Guesses from the session's own ids, as far as they are worth a pass. */
static struct pass_choice guess_by_ids(struct reel_session *s, struct guess *guess,
                                       const struct pass_room *room) {
    struct generation *g = &s->generation;
    const int wanted = g->set.most_drafts ? g->set.most_drafts : room->most;
    drafter_guess(&g->drafter, guess, int_min(wanted, room->most));
    if (g->set.speculation == REEL_SPECULATION_NGRAM) return (struct pass_choice){ guess->n, 0 };
    return pass_costs_choose(room->costs, room->n_columns, room->expected, guess->chance, guess->n,
                             NULL, 0);
}

/* How many guesses of the draft layer a pass takes, of `most`. */
static int wanted_of_layer(const struct generation *g, int most) {
    return int_min(g->set.most_drafts ? g->set.most_drafts : READ_FOR_DRAFTS, most);
}

/* Whoever makes ids come fastest guesses, but for the layer: returns how many guesses that is to be
 * asked for, or 0. */
int guesses_before_turn(struct reel_session *s, struct guess *guess, const struct pass_room *room) {
    struct generation *g = &s->generation;
    struct pass_choice best = { 0 };
    bool by_layer = false;
    *guess = (struct guess){ 0 };
    if (g->set.speculation == REEL_SPECULATION_MTP) return wanted_of_layer(g, room->most);
    if (g->set.speculation != REEL_SPECULATION_DRAFT) best = guess_by_ids(s, guess, room);
    guess->n = best.n;
    if (layer_can(s)) {
        const struct pass_choice layer = choose_for_layer(s, room);
        by_layer = layer.n > 0 && layer.speed > best.speed;
        if (by_layer)
            best = layer;
        else
            drafter_hope(&g->drafter, GUESS_BY_LAYER, HOPE_A_PASS);
    }
    if (model_can(s)) {
        const struct pass_choice model = choose_for_model(s, room);
        if (is_model_better(s, &model, &best) && is_within_reach(s, &model, room)) {
            guess_by_model(s, guess, model.n, room);
            by_layer = false;
        } else {
            drafter_hope(&g->drafter, GUESS_BY_MODEL, HOPE_A_PASS);
        }
    }
    if (by_layer) return best.n;
    drafter_takes(&g->drafter, guess, guess->n);
    return 0;
}

void guesses_in_turn(struct reel_session *s, struct guess *guess, int n,
                     const struct pass_room *room) {
    guess_by_layer(s, guess, int_min(n, room->most), room);
    drafter_takes(&s->generation.drafter, guess, guess->n);
}

void guesses_for_pass(void *user, struct guess *guess, const struct pass_room *room) {
    const int n = guesses_before_turn(user, guess, room);
    if (n > 0) guesses_in_turn(user, guess, n, room);
}

/* ---- a backend that decodes by itself ---- */

static struct pass_room room_alone(struct generation *g, int most) {
    return (struct pass_room){ most, &g->costs, 1, 1, false, NULL };
}

/* All that the session's own ids say is followed, to learn how often such guesses are right; which
 * ids become drafts is known to the passes alone. */
static struct pass_choice expect_ids(struct generation *g, struct backend_expected *expected,
                                     int ahead, int room) {
    const int wanted = g->set.most_drafts ? int_min(g->set.most_drafts, room) : room;
    struct guess guess;
    float before = 1;
    drafter_guess(&g->drafter, &guess, BACKEND_MOST_EXPECTED);
    drafter_takes(&g->drafter, &guess, guess.n);
    expected->n = guess.n;
    memcpy(expected->ids, guess.ids, (size_t)guess.n * sizeof *guess.ids);
    const int most = int_min(guess.n - ahead, wanted);
    if (most <= 0) return (struct pass_choice){ 0 };
    if (g->set.speculation == REEL_SPECULATION_NGRAM) return (struct pass_choice){ most, 0 };
    for (int i = 0; i < ahead; i++)
        before *= guess.chance[i];
    guess.chance[ahead] *= before;
    return pass_costs_choose(&g->costs, 1, 1, guess.chance + ahead, most, NULL, 0);
}

/* The layer is to be asked for so many. */
static void expect_layer(struct backend_expected *expected, int n) {
    expected->asks = expected->of_layer = n > 0;
    expected->worth = n;
}

void guesses_expect(void *user, struct backend_expected *expected, int ahead) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    const int most = s->model->backend_info.drafts;
    struct pass_choice best = { 0 };
    if (g->set.speculation == REEL_SPECULATION_MTP) {
        expect_layer(expected, g->layer_is_lost ? 0 : wanted_of_layer(g, most));
        return;
    }
    if (g->set.speculation != REEL_SPECULATION_DRAFT) best = expect_ids(g, expected, ahead, most);
    expected->worth = best.n;
    expected->asks = false;
    const struct pass_room room = room_alone(g, most);
    if (layer_can(s)) {
        const struct pass_choice layer = choose_for_layer(s, &room);
        if (layer.n > 0 && layer.speed > best.speed)
            best = layer, expect_layer(expected, layer.n);
        else
            drafter_hope(&g->drafter, GUESS_BY_LAYER, HOPE_A_PASS);
    }
    if (!model_can(s)) return;
    const struct pass_choice model = choose_for_model(s, &room);
    if (is_model_better(s, &model, &best) && is_within_reach(s, &model, &room)) {
        expected->asks = true, expected->of_layer = false;
        expected->worth = model.n;
    } else {
        drafter_hope(&g->drafter, GUESS_BY_MODEL, HOPE_A_PASS);
    }
}

/* The draft model computes in the session's turn. */
static void guess_between(struct reel_session *s, struct guess *guess,
                          const struct pass_room *room) {
    const int n = choose_for_model(s, room).n;
    turn_lend(&s->turn);
    if (n > 0) guess_by_model(s, guess, n, room);
    if (!turn_resume(&s->turn)) guess->n = 0;
}

int guesses_between_launches(void *user, int32_t *ids, int most) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    const struct pass_room room = room_alone(g, most);
    struct guess guess = { 0 };
    const double start = clock_ms();
    guess_between(s, &guess, &room);
    drafter_takes(&g->drafter, &guess, guess.n);
    memcpy(ids, guess.ids, (size_t)guess.n * sizeof *ids);
    g->guess_ms = clock_ms() - start;
    return guess.n;
}

void guesses_saw_passes(void *user, const struct backend_taken *taken) {
    struct reel_session *s = user;
    struct generation *g = &s->generation;
    /* guesses were between the launches; such as came to nothing had a launch without drafts behind
     */
    const bool guessed = taken->columns > 1 || taken->n_passes == 0;
    const double ms = taken->ms - (guessed ? g->guess_ms : 0);
    g->guess_ms = 0;
    g->result.n_drafted += taken->n_drafted;
    if (turns_are_shared(s->model->turns)) return; /* they may have waited for others */
    pass_costs_saw_some(&g->costs, taken->columns, taken->n_passes, taken->n_ids, ms);
}

void guesses_catch_up(struct reel_session *s) {
    struct generation *g = &s->generation;
    const struct drafter *d = &g->drafter;
    const struct pass_room room = room_alone(g, s->model->backend_info.drafts);
    if (!model_can(s) || generation_tokens_left(s) < 2) return;
    const int behind = draft_session_behind(s->draft, d->ids, d->n);
    if (behind <= NEAR) return;
    const struct pass_choice model = choose_for_model(s, &room);
    if (model.n > 0 && pays_to_read(s, &model, behind, &room))
        draft_session_read(s->draft, d->ids, d->n);
}
