/* One launch: what the decode kernel may use of the epochs, reading its ids while it runs, and what
 * happens when a kernel fails, hangs or is stopped. */
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_share.h"
#include "plan/plan_layout.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cuda/run/cuda_fault.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_prefill.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Half of what 16 bits can tell apart: a word may be as old as one launch before the last. */
enum { EPOCHS_MOST = 30000, RARE_EPOCHS_MOST = 60000 };
_Static_assert(2 * EPOCHS_MOST < 1 << 16, "a word as old as two launches must not pass for new");
_Static_assert(RARE_EPOCHS_MOST < 1 << 16, "a word must not pass for new after a whole turn");
/* For a kernel that was told to leave. */
enum { HANG_GRACE_MS = 3000 };
#define NEAR_MS 0.25 /* before the end of what is ahead in the queue */

static void sleep_us(long us) {
    const struct timespec t = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&t, NULL);
}

static void pause_briefly(void) {
#if defined(__x86_64__)
    for (int i = 0; i < 16; i++)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
    for (int i = 0; i < 16; i++)
        __asm__ volatile("yield");
#endif
}

/* ---- a device that is lost ---- */

enum reel_status cuda_alive(struct backend *b, struct reel_error *err) {
    pthread_mutex_lock(&b->mutex);
    while (b->n_recovering > 0 && !b->lost) {
        pthread_mutex_unlock(&b->mutex);
        sleep_us(1000);
        pthread_mutex_lock(&b->mutex);
    }
    const bool lost = b->lost;
    pthread_mutex_unlock(&b->mutex);
    if (!lost) return REEL_OK;
    return err_set(err, REEL_E_DEVICE,
                   "%s cannot be used any more after an earlier failure (%s); %s",
                   b->gpu.facts.name, b->lost_why,
                   b->hung ? "end this program" : "close the model and open it again");
}

enum reel_status cuda_lose(struct backend *b, struct reel_error *err) {
    pthread_mutex_lock(&b->mutex);
    if (!b->lost) {
        b->lost = true;
        (void)snprintf(b->lost_why, sizeof b->lost_why, "%.*s", (int)sizeof b->lost_why - 1,
                       err ? err->text : "");
    }
    pthread_mutex_unlock(&b->mutex);
    return err ? err->status : REEL_E_DEVICE;
}

/* ---- epochs ---- */

static uint32_t epochs_of_token(const struct backend *b) {
    return (uint32_t)(EPOCHS_A_LAYER * b->plan.tape.n_layers + EPOCHS_A_TOKEN);
}

int cuda_launch_tokens(struct backend *b) {
    int by_epochs = (int)((EPOCHS_MOST - EPOCHS_A_LAUNCH) / epochs_of_token(b));
    pthread_mutex_lock(&b->mutex);
    double by_time = (double)b->tuning.launch_ms / b->token_ms;
    pthread_mutex_unlock(&b->mutex);
    int n = by_time < by_epochs ? (int)by_time : by_epochs;
    if (b->tuning.launch_tokens && n > b->tuning.launch_tokens) n = b->tuning.launch_tokens;
    if (b->tuning.profile && n > b->tuning.profile) n = b->tuning.profile;
    return n > 1 ? n : 1;
}

/* Words with 16 bits of epoch that not every token writes are cleared before old ones could pass
 * for new. `epochs` counts since then. */
static enum reel_status clear_rare_words(struct backend *b, enum plan_exchange exchange,
                                         uint64_t *epochs, uint32_t n_epochs, bool used,
                                         struct reel_error *err) {
    const struct plan_words *x = &b->plan.exchange[exchange];
    *epochs += n_epochs;
    if (!used || *epochs < RARE_EPOCHS_MOST) return REEL_OK;
    *epochs = n_epochs;
    return cuda_queue_fill(&b->gpu, b->words + (cu_address)x->offset * 8, 0, (size_t)x->words * 8,
                           err);
}

/* The same of words that every token writes which goes through the layers: launches of a prompt's
 * head alone leave them as they are, perhaps for a whole turn. */
static enum reel_status clear_layer_words(struct backend *b, uint32_t n_epochs, bool used,
                                          struct reel_error *err) {
    static const enum plan_exchange all[] = { X_OUT_SUM, X_DOWN_SUM, X_MIX,
                                              X_DELTA,   X_OUT_H,    X_DOWN_H };
    enum reel_status status = REEL_OK;
    const uint64_t before = b->layer_epochs + n_epochs;
    b->layer_epochs = used ? n_epochs : before;
    if (!used || before < RARE_EPOCHS_MOST) return REEL_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++) {
        const struct plan_words *x = &b->plan.exchange[all[i]];
        if (x->words > 0)
            status = cuda_queue_fill(&b->gpu, b->words + (cu_address)x->offset * 8, 0,
                                     (size_t)x->words * 8, err);
    }
    return status;
}

/* The first epoch of a launch. Where a 32-bit epoch could come round, or an aborted launch left
 * words that nobody will overwrite, the words are cleared first. b->mutex is held. */
static enum reel_status take_epochs(struct backend *b, const struct decode_args *args,
                                    uint32_t *epoch, struct reel_error *err) {
    uint32_t n = (uint32_t)args->n_tokens * epochs_of_token(b) + EPOCHS_A_LAUNCH;
    enum reel_status status = REEL_OK;
    if (b->dirty || b->epochs_used + n > 0xfff00000u) {
        status = cuda_queue_fill(&b->gpu, b->words, 0, (size_t)b->plan.n_words * 8, err);
        if (status != REEL_OK) return status;
        b->dirty = false;
        b->epochs_used = 0;
    }
    *epoch = b->epoch;
    n += n / 65535 + 2; /* epochs whose low half is 0 are passed over */
    b->epoch += n;
    if ((b->epoch & 0xffffu) == 0) b->epoch++;
    b->epochs_used += n;
    const bool samples = args->pick && args->sampling.temperature > 0;
    const bool splits = args->position + args->n_tokens > args->split_from;
    const bool layers = args->n_tokens > 1 || !args->start;
    status = clear_layer_words(b, n, layers, err);
    if (status == REEL_OK) status = clear_rare_words(b, X_PICK, &b->pick_epochs, n, samples, err);
    if (status != REEL_OK) return status;
    return clear_rare_words(b, X_ATTENTION, &b->split_epochs, n, splits, err);
}

/* ---- submitting ---- */

void cuda_args_start(const struct backend_state *s, struct decode_args *args) {
    const struct backend *b = s->backend;
    *args = (struct decode_args){
        .tape = cuda_pointer(b->tape),
        .embedding = cuda_pointer(b->embedding),
        .norms = cuda_pointer(b->norms),
        .qkv_vectors = cuda_pointer(s->given_biases ? s->given_biases : b->qkv_vectors),
        .rope = cuda_pointer(b->rope),
        .words = cuda_pointer(b->words),
        .kv_pages = cuda_pointer(s->pages.device),
        .delta = { .gates = cuda_pointer(b->delta_gates),
                   .constants = cuda_pointer(b->delta_constants) },
        .split_from = b->plan.split_from,
        .patience = b->tuning.patience,
        .lead = (unsigned)b->tuning.lead,
        .cap_layers = b->plan.cap_layers,
        .cap_head = b->plan.cap_head,
        .cap_kv = b->plan.cap_kv,
        .mailbox = cuda_pointer(cuda_mapped_address(s, s->mapped.mailbox)),
        .abort = cuda_pointer(s->abort),
        .profile = cuda_pointer(s->profile),
    };
}

static enum reel_status launch_decode(struct backend *b, struct decode_args *args,
                                      struct reel_error *err) {
    void *arguments[] = { args };
    struct cuda_shared_args shared = { .b = b, .decode = args };
    const struct cuda_launch launch = { .function = &b->decode,
                                        .arguments_of = cuda_share_args,
                                        .user = &shared,
                                        .blocks = plan_gpu_sms(&b->plan),
                                        .threads = b->plan.threads,
                                        .shared_bytes = b->plan.shared_bytes,
                                        .cooperative = true,
                                        .arguments = arguments };
    return cuda_launch(&b->gpu, &launch, err);
}

static void start_run(struct cuda_run *run, struct backend_state *s, struct decode_mailbox *mailbox,
                      const struct prefill_args *prefill, const struct decode_args *decode) {
    *run = (struct cuda_run){ .state = s };
    if (prefill) {
        memset(s->mapped.prefill_mailbox, 0, sizeof *s->mapped.prefill_mailbox);
        run->mailbox = s->mapped.prefill_mailbox;
        run->prefill = run->mailbox;
        run->n_tokens = prefill->decode.n_tokens;
    }
    s->profiled_tokens = 0;
    if (!decode) return;
    memset(mailbox, 0, sizeof *mailbox);
    run->mailbox = mailbox;
    if (!prefill) run->n_tokens = decode->n_tokens;
    run->decodes = decode->pick != 0;
    s->profiled_position = decode->position;
}

/* b->mutex is held. */
static void count_launches(struct cuda_run *run) {
    struct backend *b = run->state->backend;
    const double now = clock_ms();
    run->ahead = b->in_flight;
    b->in_flight += run->n_launches;
    run->behind_ms = run->ahead > 0 && b->busy_until_ms > now ? b->busy_until_ms - now : 0;
    b->busy_until_ms = now + run->behind_ms + (run->due_ms > 0 ? run->due_ms : b->token_ms);
}

double cuda_began_ms(const struct cuda_run *run) {
    struct backend *b = run->state->backend;
    pthread_mutex_lock(&b->mutex);
    const double ended_ms = run->ahead > 0 ? b->ended_ms : 0;
    pthread_mutex_unlock(&b->mutex);
    return ended_ms > run->submitted_ms ? ended_ms : run->submitted_ms;
}

/* b->mutex is held. */
static enum reel_status queue_launches(struct cuda_run *run, struct prefill_args *prefill,
                                       struct decode_args *decode, struct reel_error *err) {
    struct backend *b = run->state->backend;
    enum reel_status status = cuda_pages_queue_table(run->state, err);
    if (status == REEL_OK && prefill) {
        status = cuda_prefill_launch(b, prefill, run->state->prefill_timer, err);
        if (status == REEL_OK) run->n_launches++;
        if (status == REEL_OK)
            status = cuda_last_row_queue_copy(run->state, run->n_tokens - 1, err);
        if (status == REEL_OK) status = cuda_draft_queue_copy(run->state, run->n_tokens, err);
    }
    if (status == REEL_OK && decode) {
        status = take_epochs(b, decode, &decode->epoch, err);
        if (status == REEL_OK) status = launch_decode(b, decode, err);
        if (status == REEL_OK) run->n_launches++;
    }
    count_launches(run);
    return status;
}

/* Where a launch could not be queued on all GPUs, those that have it wait for the others in vain.
 */
static enum reel_status lose_others(struct backend *b, struct reel_error *err) {
    return b->gpu.n > 1 ? cuda_lose(b, err) : REEL_OK;
}

static enum reel_status submit(struct cuda_run *run, struct backend_state *s,
                               struct decode_mailbox *mailbox, struct prefill_args *prefill,
                               struct decode_args *decode, struct reel_error *err) {
    struct backend *b = s->backend;
    enum reel_status status = cuda_alive(b, err);
    if (status != REEL_OK) return status;
    start_run(run, s, mailbox, prefill, decode);
    if (prefill) run->due_ms = cuda_prefill_ms(b, run->n_tokens);
    pthread_mutex_lock(&b->mutex);
    status = queue_launches(run, prefill, decode, err);
    pthread_mutex_unlock(&b->mutex);
    if (status != REEL_OK) (void)lose_others(b, err);
    run->submitted_ms = run->news_ms = run->looked_ms = clock_ms();
    if (status != REEL_OK && run->n_launches > 0) { /* the first of two must be over all the same */
        run->mailbox = s->mapped.prefill_mailbox;
        (void)!cuda_finish(run, NULL, NULL);
    }
    run->over = status != REEL_OK;
    return status;
}

enum reel_status cuda_submit(struct cuda_run *run, struct backend_state *s,
                             struct prefill_args *prefill, struct decode_args *decode,
                             struct reel_error *err) {
    return submit(run, s, s->mapped.mailbox, prefill, decode, err);
}

enum reel_status cuda_submit_own(struct cuda_run *run, struct backend_state *s,
                                 struct decode_mailbox *mailbox, struct decode_args *decode,
                                 struct reel_error *err) {
    return submit(run, s, mailbox, NULL, decode, err);
}

/* ---- ends ---- */

static void end_run(struct cuda_run *run, bool good) {
    struct backend *b = run->state->backend;
    const struct decode_mailbox *m = run->mailbox;
    if (run->over) return;
    const double now = clock_ms(), ms = now - cuda_began_ms(run);
    const bool timed = good && (run->ahead == 0 || ms < now - run->submitted_ms);
    run->over = true;
    run->failed = !good;
    if (good && run->decodes && (int)m->n_evaluated <= run->n_tokens)
        run->state->profiled_tokens = (int)m->n_evaluated;
    pthread_mutex_lock(&b->mutex);
    b->in_flight -= run->n_launches;
    b->ended_ms = now;
    if (!good) b->dirty = b->short_dirty = true;
    if (timed && run->prefill)
        cuda_prefill_took(b, run->n_tokens, ms);
    else if (timed && m->n_evaluated > 0 && run->n_columns == 0)
        b->token_ms += (ms / m->n_evaluated - b->token_ms) * (m->n_evaluated >= 8 ? 0.5 : 0.1);
    pthread_mutex_unlock(&b->mutex);
}

/* A kernel that neither goes on nor ends; with what a wait in it said before, if one did. */
static enum reel_status describe_stuck(const struct cuda_run *run, struct reel_error *err) {
    struct reel_error why = { 0 };
    if (cuda_faulted_mailbox(run)) (void)cuda_describe_fault(run, &why);
    return err_set(err, REEL_E_DEVICE,
                   "%s: %s neither goes on nor ends, also when told to (%d tokens, %d ids read); "
                   "the GPU's context is lost%s%.250s",
                   run->state->backend->gpu.facts.name, cuda_kernel_name(run), run->n_tokens,
                   run->n_read, why.text[0] ? "; " : "", why.text);
}

/* Waits for all launches to be gone, but not for ever. */
static enum reel_status wait_until_idle(const struct cuda_run *run, double limit_ms,
                                        struct reel_error *err) {
    struct backend *b = run->state->backend;
    const double start = clock_ms();
    bool done = false;
    for (;;) {
        enum reel_status status = cuda_poll(&b->gpu, NULL, &done, cuda_kernel_name(run), err);
        if (status != REEL_OK || done) return status;
        if (clock_ms() - start > limit_ms) break;
        sleep_us(1000);
    }
    pthread_mutex_lock(&b->mutex);
    b->hung = true;
    pthread_mutex_unlock(&b->mutex);
    return describe_stuck(run, err);
}

static void recovering(struct backend *b, int change) {
    pthread_mutex_lock(&b->mutex);
    b->n_recovering += change;
    pthread_mutex_unlock(&b->mutex);
}

/* After a launch that did not end as it should: everything is gone, and its abort word is ready for
 * the next one; or the context is lost. What others have in the queue is waited for, and they put
 * nothing more there meanwhile. */
static enum reel_status recover_abort_word(struct cuda_run *run, double limit_ms,
                                           struct reel_error *err) {
    struct backend_state *s = run->state;
    struct backend *b = s->backend;
    end_run(run, false);
    recovering(b, 1);
    enum reel_status status = wait_until_idle(run, limit_ms, err);
    if (status == REEL_OK) status = cuda_fill(&b->gpu, s->abort, 0, sizeof(unsigned), NULL, err);
    if (status != REEL_OK) status = cuda_lose(b, err);
    recovering(b, -1);
    return status;
}

/* The kernel left without finishing: a wait gave up, or nobody knows. */
static enum reel_status end_aborted(struct cuda_run *run, struct reel_error *err) {
    enum reel_status status = recover_abort_word(run, run->state->backend->tuning.hang_ms, err);
    return status == REEL_OK ? cuda_describe_fault(run, err) : status;
}

/* Nothing was heard for too long. A word that every wait looks at may still end the launch; it goes
 * by a stream of its own and by the copy engine, which needs no SM. */
static enum reel_status end_hung(struct cuda_run *run, struct reel_error *err) {
    struct backend *b = run->state->backend;
    const double silent_ms = clock_ms() - run->news_ms;
    const char *kernel = cuda_kernel_name(run);
    enum reel_status status =
        cuda_upload(&b->gpu, run->state->abort, b->leave, sizeof *b->leave, b->rescue, err);
    if (status == REEL_OK) status = recover_abort_word(run, HANG_GRACE_MS, err);
    end_run(run, false);
    if (status != REEL_OK) return cuda_lose(b, err);
    return err_set(err, REEL_E_DEVICE, "%s: %s was silent for %.1f s; told to leave, it did",
                   b->gpu.facts.name, kernel, silent_ms * 1e-3);
}

/* With a fault described, an end is no end: a block that gave up has published garbage. */
static bool run_has_ended(const struct cuda_run *run) {
    return __atomic_load_n(&run->mailbox->end, __ATOMIC_ACQUIRE) && !cuda_faulted_mailbox(run);
}

/* Asks the driver, at most every few milliseconds of silence. */
static enum reel_status look_at_driver(struct cuda_run *run, struct reel_error *err) {
    struct backend *b = run->state->backend;
    double now = clock_ms();
    bool done = false;
    if (now - run->looked_ms < 3) return REEL_OK;
    run->looked_ms = now;
    enum reel_status status = cuda_poll(&b->gpu, NULL, &done, cuda_kernel_name(run), err);
    if (status != REEL_OK) {
        end_run(run, false);
        return cuda_lose(b, err);
    }
    if (run_has_ended(run)) return REEL_OK; /* came meanwhile */
    if (done || cuda_faulted_mailbox(run)) return end_aborted(run, err);
    double patience = (double)b->tuning.hang_ms * (run->ahead + 1) + 4 * b->tuning.launch_ms;
    return now - run->news_ms > patience ? end_hung(run, err) : REEL_OK;
}

/* Between two looks at the mailbox: spins while news is due soon or lately overdue. While what came
 * before is under way, another thread does. Ids of several sessions wake up other threads, of which
 * the system may let one wait on this thread's processor for the rest of its time slice: it is let
 * by. */
static void wait_for_news(const struct cuda_run *run, int tokens_due) {
    const struct backend *b = run->state->backend;
    double quiet_ms = clock_ms() - run->news_ms;
    double due_ms = run->behind_ms + (run->due_ms > 0 ? run->due_ms : b->token_ms * tokens_due);
    double spin_ms = b->tuning.spin_us * 1e-3;
    if (quiet_ms < due_ms - spin_ms && !run->is_waited_for)
        sleep_us(due_ms - spin_ms - quiet_ms > 1 ? 500 : 50);
    else if (quiet_ms < run->behind_ms - NEAR_MS)
        sleep_us(50);
    else if (quiet_ms < due_ms + spin_ms && run->n_columns > 0)
        sched_yield();
    else if (quiet_ms < due_ms + spin_ms)
        pause_briefly();
    else
        sleep_us(b->tuning.nap_us);
}

static bool is_cancelled(const atomic_bool *cancel) { return cancel && atomic_load(cancel); }

void cuda_stop(struct cuda_run *run) {
    const struct cuda_mapped *m = &run->state->mapped;
    __atomic_store_n(&run->mailbox->stop, 1u, __ATOMIC_RELEASE);
    for (int i = 0; i < run->n_columns; i++)
        __atomic_store_n(&run->columns[i]->mapped.mailbox->stop, 1u, __ATOMIC_RELEASE);
    if (run->prefill) __atomic_store_n(&m->prefill_mailbox->stop, 1u, __ATOMIC_RELEASE);
}

/* One turn of a loop that waits for a launch: what it waits for has not come. */
static enum reel_status wait_a_turn(struct cuda_run *run, const atomic_bool *cancel, int tokens_due,
                                    struct reel_error *err) {
    if (is_cancelled(cancel)) cuda_stop(run);
    const enum reel_status status = look_at_driver(run, err);
    if (status == REEL_OK) wait_for_news(run, tokens_due);
    return status;
}

/* ---- passes over packed texts ---- */

static enum reel_status queue_pass(struct cuda_run *run, const struct cuda_pass *pass,
                                   struct reel_error *err) {
    struct backend *b = run->state->backend;
    enum reel_status status = cuda_pages_queue_table(run->state, err);
    if (status == REEL_OK)
        status = cuda_queue_upload(&b->gpu, pass->to, pass->words, pass->n_bytes, err);
    if (status == REEL_OK) status = cuda_prefill_launch_packed(b, pass->args, err);
    run->n_launches = status == REEL_OK;
    count_launches(run);
    return status;
}

enum reel_status cuda_submit_pass(struct cuda_run *run, struct backend_state *s,
                                  const struct cuda_pass *pass, struct reel_error *err) {
    struct backend *b = s->backend;
    enum reel_status status = cuda_alive(b, err);
    if (status != REEL_OK) return status;
    *run = (struct cuda_run){ .state = s,
                              .mailbox = pass->mailbox,
                              .prefill = pass->mailbox,
                              .n_tokens = pass->args->prefill.decode.n_tokens };
    memset(pass->mailbox, 0, sizeof *pass->mailbox);
    s->profiled_tokens = 0;
    run->due_ms = cuda_prefill_ms(b, run->n_tokens);
    pthread_mutex_lock(&b->mutex);
    status = queue_pass(run, pass, err);
    pthread_mutex_unlock(&b->mutex);
    run->submitted_ms = run->news_ms = run->looked_ms = clock_ms();
    if (status == REEL_OK) return REEL_OK;
    run->over = true; /* but what is queued of it still reads pass->words */
    struct reel_error stuck = { 0 };
    if (wait_until_idle(run, b->tuning.hang_ms, &stuck) != REEL_OK) (void)cuda_lose(b, &stuck);
    return status;
}

/* ---- several sessions ---- */

/* b->mutex is held. Words are cleared before each launch: a launch is some hundred passes long, and
 * its epochs begin anew. */
static enum reel_status queue_columns(struct cuda_run *run, const struct cuda_column_launch *launch,
                                      struct reel_error *err) {
    struct backend *b = run->state->backend;
    void *arguments[] = { launch->args };
    struct cuda_shared_args shared = { .b = b, .columns = launch->args };
    const struct cuda_launch kernel = { .function = launch->function,
                                        .arguments_of = cuda_share_args,
                                        .user = &shared,
                                        .blocks = plan_gpu_sms(launch->plan),
                                        .threads = launch->plan->threads,
                                        .shared_bytes = launch->plan->shared_bytes,
                                        .cooperative = true,
                                        .arguments = arguments };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < run->n_columns && status == REEL_OK; i++)
        status = cuda_pages_queue_table(run->columns[i], err);
    if (status == REEL_OK)
        status = cuda_queue_fill(&b->gpu, launch->words, 0, (size_t)launch->plan->n_words * 8, err);
    if (status == REEL_OK) status = cuda_launch(&b->gpu, &kernel, err);
    run->n_launches = status == REEL_OK;
    count_launches(run);
    return status;
}

enum reel_status cuda_submit_columns(struct cuda_run *run, const struct cuda_column_launch *launch,
                                     struct reel_error *err) {
    struct backend *b = run->state->backend;
    enum reel_status status = cuda_alive(b, err);
    if (status != REEL_OK) return status;
    run->mailbox = launch->mailbox;
    run->n_tokens = launch->args->n_passes;
    memset(launch->mailbox, 0, sizeof *launch->mailbox);
    for (int i = 0; i < run->n_columns; i++) {
        struct backend_state *s = run->columns[i];
        memset(s->mapped.mailbox, 0, sizeof *s->mapped.mailbox);
        s->profiled_tokens = 0;
    }
    pthread_mutex_lock(&b->mutex);
    status = queue_columns(run, launch, err);
    pthread_mutex_unlock(&b->mutex);
    if (status != REEL_OK) (void)lose_others(b, err);
    run->submitted_ms = run->news_ms = run->looked_ms = clock_ms();
    run->over = status != REEL_OK;
    return status;
}

static bool read_word(struct cuda_run *run, struct decode_mailbox *m, int n, int32_t *id,
                      bool *drafted) {
    unsigned long long word = __atomic_load_n(&m->ids[n % MAILBOX_IDS], __ATOMIC_ACQUIRE);
    if ((unsigned)(word >> 32) != (unsigned)n + 1) return false;
    if (cuda_faulted_mailbox(run)) return false; /* made of garbage, perhaps */
    *id = (int32_t)((unsigned)word & ~MAILBOX_DRAFTED);
    if (drafted) *drafted = (unsigned)word & MAILBOX_DRAFTED;
    __atomic_store_n(&m->taken, (unsigned)n + 1, __ATOMIC_RELEASE);
    run->news_ms = run->looked_ms = clock_ms();
    run->behind_ms = 0;
    return true;
}

bool cuda_column_id(struct cuda_run *run, int column, int n, int32_t *id, bool *drafted) {
    return read_word(run, run->columns[column]->mapped.mailbox, n, id, drafted);
}

bool cuda_column_asks(struct cuda_run *run, int column, int n) {
    const struct decode_mailbox *m = run->columns[column]->mapped.mailbox;
    if (__atomic_load_n(&m->asks, __ATOMIC_ACQUIRE) != (unsigned)n + 1) return false;
    if (cuda_faulted_mailbox(run)) return false; /* logits of garbage, perhaps */
    run->news_ms = run->looked_ms = clock_ms();
    run->behind_ms = 0;
    return true;
}

void cuda_column_give(const struct cuda_run *run, int column, int n, int32_t id) {
    struct decode_mailbox *m = run->columns[column]->mapped.mailbox;
    const unsigned long long number = (unsigned)n + 1;
    __atomic_store_n(&m->taken, (unsigned)number, __ATOMIC_RELEASE);
    __atomic_store_n(&m->given, number << 32 | (unsigned)id, __ATOMIC_RELEASE);
}

enum reel_status cuda_columns_wait(struct cuda_run *run, bool *ended, struct reel_error *err) {
    *ended = run_has_ended(run);
    if (*ended) end_run(run, true);
    return *ended ? REEL_OK : wait_a_turn(run, NULL, 1, err);
}

/* ---- reading ---- */

/* Whether id n_read has come. */
static bool read_id(struct cuda_run *run, int32_t *id) {
    if (!read_word(run, run->mailbox, run->n_read, id, NULL)) return false;
    run->n_read++;
    return true;
}

enum reel_status cuda_next_id(struct cuda_run *run, const atomic_bool *cancel, int32_t *id,
                              struct reel_error *err) {
    *id = -1;
    while (!run->over) {
        if (read_id(run, id)) break;
        if (run_has_ended(run)) {
            if (!read_id(run, id)) end_run(run, true);
            break;
        }
        const enum reel_status status = wait_a_turn(run, cancel, 1, err);
        if (status != REEL_OK) return status;
    }
    if (*id >= run->state->backend->model->config.vocab) {
        int wrong = (int)*id;
        *id = -1;
        return err_set(err, REEL_E_DEVICE, "the decode kernel made id %d; ids are 0 to %d", wrong,
                       run->state->backend->model->config.vocab - 1);
    }
    return REEL_OK;
}

enum reel_status cuda_finish(struct cuda_run *run, const atomic_bool *cancel,
                             struct reel_error *err) {
    while (!run->over) {
        if (run_has_ended(run)) {
            end_run(run, true);
            break;
        }
        const enum reel_status status = wait_a_turn(run, cancel, run->n_tokens - run->n_read, err);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}
