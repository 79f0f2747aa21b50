/* Models and the sessions that requests take turns with. */
#include "server/server_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include "server/api_error.h"
#include "server/prefixes.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DEFAULT_CONTEXT 16384
#define LOOK_MS         200 /* how often who waits looks after its client */
#define SHARED_LEAST    64  /* ids of a common prefix that are worth copying a session for */

struct slot {
    struct reel_session *session; /* NULL: not opened yet */
    bool busy;
    bool failed;      /* it could not be opened: there is no memory for it */
    size_t asked_for; /* ids of the prompt that it is busy with */
    uint64_t last_use;
    double idle_since_ms;
    bool saved;                    /* what it holds was offered to the kept prefixes */
    const struct exchange *client; /* whose thread works with it; that thread's alone; or NULL */
};

/* While a prompt is evaluated. A cancel that came before the call began was meant for no call. */
static bool still_wanted(void *user, const char *stage, uint64_t done, uint64_t total) {
    const struct slot *slot = user;
    (void)stage;
    (void)done;
    (void)total;
    return !slot->client || !exchange_is_gone(slot->client);
}

static enum reel_status open_session(struct slot *slot, struct reel_session **session,
                                     const struct served_model *m, int context,
                                     struct reel_error *err) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = context,
                                                  .progress = still_wanted,
                                                  .progress_user = slot,
                                                  .speculation = m->speculation,
                                                  .draft_model = m->draft };
    return reel_session_open(session, m->model, &options, err);
}

/* Who waits; on the stack of its thread. */
struct waiter {
    struct waiter *next;
    pthread_cond_t free;
    bool gone;
    bool (*look)(void *user); /* or NULL */
    void *look_user;
};

struct session_pool {
    struct server *server;
    struct served_model *served;
    pthread_mutex_t lock;
    struct waiter *first, **last; /* first come, first served */
    int n_waiting, n_busy;
    uint64_t uses;
    int context;
    bool over;
    int n_slots;
    struct slot slots[];
};

/* ---- names ---- */

struct served_model *server_models(struct server *server, int *n) {
    *n = server->models ? server->options.n_models : 0;
    return server->models;
}

static bool is_called(const struct served_model *m, const char *name) {
    if (strcmp(m->name, name) == 0) return true;
    for (int i = 0; i < m->n_aliases; i++)
        if (strcmp(m->aliases[i], name) == 0) return true;
    return false;
}

struct served_model *server_find_model(struct server *server, const char *name, bool hears) {
    struct served_model *only = NULL;
    int n_ready = 0;
    for (int i = 0; i < server->options.n_models; i++) {
        struct served_model *m = &server->models[i];
        if (name && name[0]) {
            if (is_called(m, name)) return m;
            continue;
        }
        if (atomic_load(&m->state) == SERVED_READY && m->hears != hears) continue;
        only = m;
        n_ready++;
    }
    return n_ready == 1 ? only : NULL;
}

static void list_names(struct server *server, char *out, size_t room) {
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < server->options.n_models && n + 1 < room; i++) {
        int more = snprintf(out + n, room - n, "%s%s", i ? ", " : "", server->models[i].name);
        n += more > 0 ? (size_t)more : 0;
    }
}

struct served_model *exchange_need_model(struct exchange *x, const char *name, bool hears) {
    struct server *server = exchange_server(x);
    struct served_model *m = server_find_model(server, name, hears);
    char names[300];
    if (!m) {
        list_names(server, names, sizeof names);
        api_error(x, name && name[0] ? 404 : 400, "model", "model_not_found",
                  name && name[0] ? "there is no model '%.100s'; there are: %s"
                                  : "name a model%.0s; there are: %s",
                  name ? name : "", names);
        return NULL;
    }
    exchange_figures(x)->model = m->name;
    switch (atomic_load(&m->state)) {
    case SERVED_LOADING:
        api_error(x, 503, "model", "model_loading", "the model %s is loading", m->name);
        return NULL;
    case SERVED_FAILED:
        api_error(x, 500, "model", "model_failed", "the model %s could not be opened: %s", m->name,
                  m->why);
        return NULL;
    default:
        break;
    }
    if (m->hears == hears) return m;
    api_error(x, 400, "model", NULL,
              m->hears ? "%s is a speech model; ask it at /v1/audio/transcriptions or /v1/realtime"
                       : "%s is a text model; it does not hear",
              m->name);
    return NULL;
}

/* ---- loading ---- */

enum reel_status models_open(struct server *s, struct reel_error *err) {
    const struct server_options *o = &s->options;
    enum reel_status status =
        mem_zeroed(&s->models, (size_t)o->n_models, sizeof *s->models, "a server's models", err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < o->n_models; i++) {
        struct served_model *m = &s->models[i];
        m->name = o->models[i].name;
        m->aliases = o->models[i].aliases;
        m->n_aliases = o->models[i].n_aliases;
        atomic_init(&m->state, SERVED_LOADING);
        for (int j = 0; j < i; j++)
            if (is_called(&s->models[j], m->name))
                return err_set(err, REEL_E_ARGUMENT,
                               "two models are called %s; NAME=MODEL names one", m->name);
    }
    return REEL_OK;
}

static int context_of(const struct server *server, const struct reel_model_info *info) {
    int context = server->options.context;
    if (context == 0) context = DEFAULT_CONTEXT;
    return context < info->max_context ? context : info->max_context;
}

static enum reel_status pool_open(struct server *server, struct served_model *m,
                                  struct reel_error *err) {
    struct session_pool *p = NULL;
    const int n = server->options.sessions;
    size_t bytes = sizeof *p + (size_t)n * sizeof *p->slots;
    enum reel_status status = mem_zeroed(&p, 1, bytes, "a model's sessions", err);
    if (status != REEL_OK) return status;
    p->server = server;
    p->served = m;
    p->last = &p->first;
    p->n_slots = n;
    m->context = p->context = context_of(server, &m->info);
    pthread_mutex_init(&p->lock, NULL);
    m->pool = p;
    if (m->hears) return REEL_OK;
    return open_session(&p->slots[0], &p->slots[0].session, m, p->context, err);
}

/* Whether the draft model guesses for this one: a session tells. A model of another vocabulary goes
 * without, as one server may have several; so does one that hears or embeds. */
static enum reel_status choose_draft(struct server *server, struct served_model *m,
                                     struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    struct reel_session_options options = { .size = sizeof options,
                                            .max_context = 1,
                                            .draft_model = server->draft };
    struct reel_session *session = NULL;
    struct reel_error why = { 0 };
    if (!server->draft) return REEL_OK;
    if (m->hears || m->embeds) {
        if (m->speculation == REEL_SPECULATION_DRAFT) m->speculation = REEL_SPECULATION_AUTO;
        return REEL_OK;
    }
    if (m->info.most_drafts == 0)
        err_set(&why, REEL_E_UNSUPPORTED, "it takes no drafts here");
    else
        (void)!reel_session_open(&session, m->model, &options, &why);
    reel_session_close(session);
    if (why.status != REEL_OK && why.status != REEL_E_MISMATCH && why.status != REEL_E_UNSUPPORTED)
        return err_set(err, why.status, "%s", why.text);
    enum reel_status status = reel_model_get_info(server->draft, &info, err);
    if (status != REEL_OK) return status;
    if (why.status != REEL_OK) {
        server_log(server, SERVER_LOG_WARNING, "%s: %s; it goes without a draft model", m->name,
                   why.text);
        if (m->speculation == REEL_SPECULATION_DRAFT) m->speculation = REEL_SPECULATION_AUTO;
        return REEL_OK;
    }
    m->draft = server->draft;
    m->draft_kv_bytes = info.kv_token_bytes;
    server_log(server, SERVER_LOG_INFO,
               "%s guesses for %s: %.1f MB of weights, and %.1f KB of each position of a session",
               info.name, m->name, (double)info.weight_bytes / 1e6,
               (double)info.kv_token_bytes / 1e3);
    return REEL_OK;
}

static enum reel_status load_one(struct server *server, int index, struct reel_error *err) {
    const struct server_model *given = &server->options.models[index];
    struct served_model *m = &server->models[index];
    struct reel_model_info info = { .size = sizeof info };
    struct reel_embed_info embed = { .size = sizeof embed };
    enum reel_status status = given->open(given->user, &m->model, err);
    if (status == REEL_OK) status = reel_model_get_info(m->model, &info, err);
    if (status != REEL_OK) return status;
    m->info = info;
    m->hears = strcmp(info.family, "qwen3_asr") == 0;
    m->embeds = reel_model_get_embed_info(m->model, &embed, NULL) == REEL_OK && embed.stated;
    m->created = (int64_t)time(NULL);
    m->speculation = server->options.speculation;
    m->most_drafts = server->options.most_drafts;
    if ((m->speculation == REEL_SPECULATION_NGRAM && info.most_drafts == 0) ||
        ((m->speculation == REEL_SPECULATION_MTP || m->speculation == REEL_SPECULATION_EAGLE3) &&
         info.draft_layers == 0)) {
        const bool ngram = m->speculation == REEL_SPECULATION_NGRAM;
        m->speculation = REEL_SPECULATION_OFF;
        server_log(server, SERVER_LOG_WARNING, "%s: %s; it goes without", m->name,
                   ngram ? "takes no drafts here" : "has no draft layer that runs here");
    }
    status = choose_draft(server, m, err);
    if (status == REEL_OK) status = pool_open(server, m, err);
    if (status == REEL_OK) atomic_store(&m->state, SERVED_READY);
    return status;
}

static enum reel_status load_draft(struct server *server, struct reel_error *err) {
    struct reel_error why = { 0 };
    const struct server_options *o = &server->options;
    if (!o->open_draft) return REEL_OK;
    enum reel_status status = o->open_draft(o->draft_user, &server->draft, &why);
    return status == REEL_OK ? status : err_set(err, status, "the draft model: %s", why.text);
}

enum reel_status server_load(struct server *server, struct reel_error *err) {
    enum reel_status drafts = load_draft(server, err);
    if (drafts != REEL_OK) return drafts;
    for (int i = 0; i < server->options.n_models; i++) {
        struct served_model *m = &server->models[i];
        struct reel_error why = { 0 };
        double start = clock_ms();
        if (atomic_load(&server->draining))
            return err_set(err, REEL_E_CANCELLED, "the server ends before its models are loaded");
        enum reel_status status = load_one(server, i, &why);
        if (status != REEL_OK) {
            snprintf(m->why, sizeof m->why, "%.299s", why.text);
            atomic_store(&m->state, SERVED_FAILED);
            return err_set(err, status, "%s: %s", m->name, why.text);
        }
        server_log(server, SERVER_LOG_INFO, "%s is ready: %s, %s, loaded in %.1f s", m->name,
                   m->info.backend, m->info.backend_path, (clock_ms() - start) / 1e3);
    }
    return REEL_OK;
}

void models_end(struct server *s) {
    for (int i = 0; s->models && i < s->options.n_models; i++) {
        struct session_pool *p = s->models[i].pool;
        if (!p) continue;
        pthread_mutex_lock(&p->lock);
        p->over = true;
        for (struct waiter *w = p->first; w; w = w->next)
            pthread_cond_signal(&w->free);
        for (int j = 0; j < p->n_slots; j++)
            if (p->slots[j].busy) reel_session_cancel(p->slots[j].session);
        pthread_mutex_unlock(&p->lock);
    }
}

void models_close(struct server *s, void (*close)(void *user, struct reel_model *model)) {
    for (int i = 0; s->models && i < s->options.n_models; i++) {
        struct served_model *m = &s->models[i];
        struct session_pool *p = m->pool;
        for (int j = 0; p && j < p->n_slots; j++)
            reel_session_close(p->slots[j].session);
        if (p) pthread_mutex_destroy(&p->lock);
        mem_free(p);
        if (m->model && close) close(s->options.models[i].user, m->model);
    }
    if (s->draft && close) close(s->options.draft_user, s->draft);
    mem_free(s->models);
}

/* ---- leases ---- */

static int common_prefix(const struct reel_session *session, const int32_t *ids, size_t n_ids) {
    const int32_t *held = reel_session_ids(session);
    int n = reel_session_length(session), common = 0;
    while (common < n && (size_t)common < n_ids && held[common] == ids[common])
        common++;
    return common;
}

/* What the lock decides: the session to work with, and one to copy a long prefix from. */
struct choice {
    int slot, copy_from; /* -1: none */
};

/* The free session that shares most, unless that would throw away more than it keeps: then one that
 * was not opened yet, or was not used for longest. */
static struct choice choose(struct session_pool *p, const int32_t *ids, size_t n_ids) {
    int best = -1, oldest = -1, fresh = -1, most = -1;
    for (int i = 0; i < p->n_slots; i++) {
        struct slot *slot = &p->slots[i];
        if (slot->busy || slot->failed) continue;
        if (!slot->session) {
            if (fresh < 0) fresh = i;
            continue;
        }
        int common = common_prefix(slot->session, ids, n_ids);
        if (common > most) {
            most = common;
            best = i;
        }
        if (oldest < 0 || slot->last_use < p->slots[oldest].last_use) oldest = i;
    }
    if (best < 0) return (struct choice){ fresh, -1 };
    const int length = reel_session_length(p->slots[best].session);
    if (most >= length / 2) return (struct choice){ best, -1 };
    const int other = fresh >= 0 ? fresh : oldest;
    return (struct choice){ other, other != best && most >= SHARED_LEAST ? best : -1 };
}

/* At least one session is free. The lock is held. */
static bool some_free(const struct session_pool *p) {
    for (int i = 0; i < p->n_slots; i++)
        if (!p->slots[i].busy && !p->slots[i].failed) return true;
    return false;
}

struct line_place {
    struct session_pool *pool;
    struct waiter *waiter;
};

static void waiter_left(void *user) {
    struct line_place *both = user;
    pthread_mutex_lock(&both->pool->lock);
    both->waiter->gone = true;
    pthread_cond_signal(&both->waiter->free);
    pthread_mutex_unlock(&both->pool->lock);
}

static void wake_next(struct session_pool *p) {
    if (p->first && some_free(p)) pthread_cond_signal(&p->first->free);
}

static void leave_line(struct session_pool *p, const struct waiter *own) {
    struct waiter **at = &p->first;
    while (*at != own)
        at = &(*at)->next;
    *at = own->next;
    if (!*at) p->last = at;
    p->n_waiting--;
}

/* The lock is held on both sides. */
static void wait_a_while(struct session_pool *p, struct waiter *own) {
    struct timespec until;
    if (!own->look) {
        pthread_cond_wait(&own->free, &p->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&own->free, &p->lock, &until) != ETIMEDOUT) return;
    pthread_mutex_unlock(&p->lock);
    const bool stays = own->look(own->look_user);
    pthread_mutex_lock(&p->lock);
    if (!stays) own->gone = true;
}

/* The lock is held on both sides; it is given up while waiting. */
static enum reel_status stand_in_line(struct session_pool *p, struct waiter *own,
                                      struct reel_error *err) {
    const int most = p->server->options.queue;
    if (p->n_waiting >= most)
        return err_set(err, REEL_E_LIMIT, "%d requests wait for %s already (--queue)", most,
                       p->served->name);
    own->next = NULL;
    *p->last = own;
    p->last = &own->next;
    p->n_waiting++;
    while (!p->over && !own->gone && !(p->first == own && some_free(p)))
        wait_a_while(p, own);
    leave_line(p, own);
    if (!p->over && !own->gone) return REEL_OK;
    wake_next(p);
    return err_set(err, REEL_E_CANCELLED,
                   p->over ? "the server is ending" : "the client left while it waited");
}

/* Outside of the lock: the slot is ours. */
static enum reel_status open_slot(struct session_pool *p, struct choice choice, const int32_t *ids,
                                  size_t n_ids, struct reel_error *err) {
    struct slot *slot = &p->slots[choice.slot];
    enum reel_status status = REEL_OK;
    if (p->served->hears) return REEL_OK; /* the slot alone is wanted */
    if (!slot->session) {
        struct reel_session *session = NULL;
        status = open_session(slot, &session, p->served, p->context, err);
        pthread_mutex_lock(&p->lock);
        slot->session = session;
        pthread_mutex_unlock(&p->lock);
    }
    if (status == REEL_OK && choice.copy_from >= 0)
        status = reel_session_copy(slot->session, p->slots[choice.copy_from].session, err);
    if (status == REEL_OK && p->server->prefixes)
        prefixes_restore(p->server->prefixes, p->served, slot->session,
                         common_prefix(slot->session, ids, n_ids), ids, n_ids);
    return status;
}

static void free_slot(struct session_pool *p, int index) {
    p->slots[index].busy = false;
    p->slots[index].last_use = ++p->uses;
    p->slots[index].idle_since_ms = clock_ms();
    p->n_busy--;
    wake_next(p);
}

/* ---- keeping prefixes ---- */

/* The lock is held. One that nobody has used for a while, while nobody waits. */
static int worth_saving(const struct session_pool *p, double idle_ms) {
    const double now = clock_ms();
    for (int i = 0; i < p->n_slots && !p->n_waiting; i++) {
        const struct slot *slot = &p->slots[i];
        if (slot->busy || slot->saved || !slot->session) continue;
        if (now - slot->idle_since_ms >= idle_ms &&
            reel_session_length(slot->session) >= PREFIX_LEAST)
            return i;
    }
    return -1;
}

static bool save_one(struct session_pool *p, double idle_ms) {
    pthread_mutex_lock(&p->lock);
    const int index = worth_saving(p, idle_ms);
    struct slot *slot = index >= 0 ? &p->slots[index] : NULL;
    if (slot) {
        slot->busy = slot->saved = true;
        slot->asked_for = (size_t)reel_session_length(slot->session);
        p->n_busy++;
    }
    pthread_mutex_unlock(&p->lock);
    if (!slot) return false;
    prefixes_save(p->server->prefixes, p->served, slot->session);
    pthread_mutex_lock(&p->lock);
    slot->busy = false; /* as it was: nobody has used it */
    p->n_busy--;
    wake_next(p);
    pthread_mutex_unlock(&p->lock);
    return true;
}

void models_save_idle(struct server *s, double idle_ms) {
    for (int i = 0; s->models && i < s->options.n_models; i++) {
        struct served_model *m = &s->models[i];
        if (atomic_load(&m->state) != SERVED_READY || m->hears) continue;
        while (save_one(m->pool, idle_ms)) {
        }
    }
}

/* ---- taking and giving ---- */

static void session_left(void *user) { reel_session_cancel(user); }

static enum reel_status take(struct session_lease *lease, struct session_pool *p,
                             struct waiter *own, const int32_t *ids, size_t n_ids,
                             struct reel_error *err) {
    struct choice choice = { -1, -1 };
    pthread_mutex_lock(&p->lock);
    enum reel_status status = stand_in_line(p, own, err);
    if (status == REEL_OK) {
        choice = choose(p, ids, n_ids);
        p->slots[choice.slot].busy = true;
        p->slots[choice.slot].asked_for = n_ids;
        p->slots[choice.slot].saved = false;
        p->n_busy++;
        if (choice.copy_from >= 0) {
            p->slots[choice.copy_from].busy = true;
            p->n_busy++;
        }
        wake_next(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (status != REEL_OK) return status;
    status = open_slot(p, choice, ids, n_ids, err);
    pthread_mutex_lock(&p->lock);
    if (choice.copy_from >= 0) free_slot(p, choice.copy_from);
    if (status != REEL_OK) {
        p->slots[choice.slot].failed = !p->slots[choice.slot].session;
        free_slot(p, choice.slot);
    }
    lease->session = p->slots[choice.slot].session;
    lease->index = status == REEL_OK ? choice.slot : -1;
    pthread_mutex_unlock(&p->lock);
    return status;
}

static void init_on_monotonic_clock(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static enum reel_status take_in_turn(struct session_lease *lease, struct served_model *m,
                                     struct exchange *x, struct waiter own, const int32_t *ids,
                                     size_t n_ids, struct reel_error *err) {
    struct session_pool *p = m->pool;
    struct line_place place = { p, &own };
    const double start = clock_ms();
    enum reel_status status = REEL_OK;
    *lease = (struct session_lease){ .index = -1 };
    init_on_monotonic_clock(&own.free);
    exchange_on_gone(x, waiter_left, &place);
    for (;;) { /* a session that there is no memory for is not tried again */
        status = take(lease, p, &own, ids, n_ids, err);
        if (status != REEL_E_MEMORY || lease->session) break;
    }
    exchange_on_gone(x, NULL, NULL);
    pthread_cond_destroy(&own.free);
    lease->waited_ms = clock_ms() - start;
    exchange_figures(x)->queue_ms = lease->waited_ms;
    if (status != REEL_OK) return status;
    p->slots[lease->index].client = x;
    exchange_on_gone(x, session_left, lease->session);
    return REEL_OK;
}

enum reel_status session_lease_take(struct session_lease *lease, struct served_model *m,
                                    struct exchange *x, const int32_t *ids, size_t n_ids,
                                    struct reel_error *err) {
    return take_in_turn(lease, m, x, (struct waiter){ 0 }, ids, n_ids, err);
}

enum reel_status session_lease_take_looking(struct session_lease *lease, struct served_model *m,
                                            struct exchange *x, bool (*look)(void *user),
                                            void *user, struct reel_error *err) {
    return take_in_turn(lease, m, x, (struct waiter){ .look = look, .look_user = user }, NULL, 0,
                        err);
}

void session_lease_give(struct session_lease *lease, struct served_model *m, struct exchange *x) {
    if (lease->index < 0) return;
    exchange_on_gone(x, NULL, NULL);
    m->pool->slots[lease->index].client = NULL;
    pthread_mutex_lock(&m->pool->lock);
    free_slot(m->pool, lease->index);
    pthread_mutex_unlock(&m->pool->lock);
    lease->index = -1;
}

bool session_pool_is_over(struct served_model *m) {
    pthread_mutex_lock(&m->pool->lock);
    const bool over = m->pool->over;
    pthread_mutex_unlock(&m->pool->lock);
    return over;
}

void session_pool_figures(struct served_model *m, struct pool_figures *figures) {
    *figures = (struct pool_figures){ 0 };
    if (atomic_load(&m->state) != SERVED_READY) return;
    struct session_pool *p = m->pool;
    pthread_mutex_lock(&p->lock);
    figures->n_busy = p->n_busy;
    figures->n_waiting = p->n_waiting;
    for (int i = 0; i < p->n_slots; i++) {
        if (!p->slots[i].session) continue;
        figures->n_sessions++;
        figures->most_positions += (size_t)p->context;
        /* the length of a busy one is its thread's */
        figures->n_positions += p->slots[i].busy ? p->slots[i].asked_for
                                                 : (size_t)reel_session_length(p->slots[i].session);
    }
    pthread_mutex_unlock(&p->lock);
}
