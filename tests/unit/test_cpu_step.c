/* Several states in one pass: whatever decodes beside a column, the column's logits and ids are bit
 * for bit those of decoding it alone. */
#include "cpu/cpu_path.h"
#include "plan/checkpoints.h"
#include "runtime/backend.h"
#include "support/random_model.h"
#include "support/sanitized.h"
#include "support/shares.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, MAX_IDS = 12, MAX_POSITIONS = 620 };

/* Positions before the first id that is decoded: within and beyond a panel, a chunk, and one, two
 * and three splits of attention. */
static const int lengths[MOST] = { 3, 17, 40, 270, 1, 64, 600, 33 };

/* ---- one session ----------------------------------------------------------------------------- */

/* What a session was given and what came of it. */
struct tale {
    struct backend_state *state;
    struct backend_decode decode;
    struct backend_column column;
    int start; /* position of the last id of the prompt */
    int vocab, n_ids, max_ids;
    int32_t ids[MAX_IDS];
    float *logits; /* [MAX_IDS, vocab] that the ids were drawn from */
    int refuse_at; /* on_id says false to this many-th id; 0: to none */
    int none_at;   /* draw finds none for this many-th; 0: always one */
    atomic_bool cancel;
    int cancel_at; /* on_id sets `cancel` with this many-th id */
    pthread_t caller;
    const int32_t *truth; /* [n_truth] ids that it makes alone, for drafts; NULL: it has none */
    int n_truth;
    bool all_right;
    int n_asked, n_drafts;
};

/* A different bit anywhere gives another id. */
static int32_t draw(void *user, const float *logits, int64_t position) {
    struct tale *t = user;
    uint64_t hash = 14695981039346656037u + (uint64_t)position;
    const size_t n = (size_t)t->vocab;
    assert_true(pthread_equal(pthread_self(), t->caller));
    assert_true(t->n_ids < MAX_IDS);
    assert_int_equal(position, t->start + t->n_ids + 1);
    memcpy(t->logits + (size_t)t->n_ids * n, logits, n * sizeof *logits);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    if (t->none_at == t->n_ids + 1) return -1;
    return (int32_t)((hash >> 20) % (uint64_t)t->vocab);
}

static bool on_id(void *user, int32_t id) {
    struct tale *t = user;
    t->ids[t->n_ids++] = id;
    if (t->cancel_at == t->n_ids) atomic_store(&t->cancel, true);
    return t->refuse_at != t->n_ids;
}

/* From call to call one more of the ids is right, up to all; then none again. */
static int draft(void *user, int32_t *ids, int most) {
    struct tale *t = user;
    assert_in_range(most, 1, MOST - 1);
    assert_true(most <= t->max_ids - t->n_ids - 1);
    const int n = t->all_right ? most : 1 + t->n_asked % most;
    const int n_right = t->all_right ? n : t->n_asked % (n + 1);
    for (int i = 0; i < n; i++) {
        const int at = t->n_ids + i;
        const int32_t id = at < t->n_truth ? t->truth[at] : 0;
        ids[i] = i < n_right ? id : (id + 1) % t->vocab;
    }
    t->n_asked++;
    t->n_drafts += n;
    return n;
}

static struct tale *new_tale(struct backend *b, int vocab) {
    struct tale *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->vocab = vocab;
    t->caller = pthread_self();
    t->logits = calloc(MAX_IDS * (size_t)vocab, sizeof *t->logits);
    assert_non_null(t->logits);
    assert_int_equal(cpu_backend.state_open(&t->state, b, MAX_POSITIONS, NULL), REEL_OK);
    return t;
}

static void free_tale(struct tale *t) {
    cpu_backend.state_close(t->state);
    free(t->logits);
    free(t);
}

static int32_t prompt_id(int column, int position, int vocab) {
    return (int32_t)((column * 7919 + position * 104729 + position / 3) % vocab);
}

/* Reads the prompt: all of it where `whole`, so that its last id is decoded once more. */
static void read_prompt(struct tale *t, int column, bool whole) {
    int32_t ids[MAX_POSITIONS];
    const int n = lengths[column];
    for (int i = 0; i < n; i++)
        ids[i] = prompt_id(column, i, t->vocab);
    const struct backend_eval eval = { .n = whole ? n : n - 1, .ids = ids };
    if (eval.n > 0) assert_int_equal(cpu_backend.eval(t->state, &eval, NULL), REEL_OK);
    t->start = n - 1;
    t->decode.id = ids[n - 1];
    t->max_ids = 1 + column * 5 % MAX_IDS;
    t->n_ids = 0;
}

/* The column that goes on from the last id there is. */
static void go_on(struct tale *t) {
    t->decode = (struct backend_decode){
        .position = t->start + t->n_ids,
        .id = t->n_ids ? t->ids[t->n_ids - 1] : t->decode.id,
        .max_tokens = t->max_ids - t->n_ids,
        .on_id = on_id,
        .draw = draw,
        .draft = t->truth ? draft : NULL,
        .user = t,
        .cancel = &t->cancel,
    };
    t->column = (struct backend_column){ .state = t->state, .decode = &t->decode };
}

/* Decoding as the runtime's loop does it: one position, one draw on the host. */
static void decode_alone(struct tale *t) {
    float *logits = malloc((size_t)t->vocab * sizeof *logits);
    int32_t id = t->decode.id;
    assert_non_null(logits);
    for (bool more = true; more && t->n_ids < t->max_ids;) {
        const struct backend_eval eval = { .position = t->start + t->n_ids,
                                           .n = 1,
                                           .ids = &id,
                                           .output = REEL_OUTPUT_LAST_LOGITS,
                                           .out = logits };
        assert_int_equal(cpu_backend.eval(t->state, &eval, NULL), REEL_OK);
        id = draw(t, logits, eval.position + 1);
        more = on_id(t, id);
    }
    free(logits);
}

/* ---- together -------------------------------------------------------------------------------- */

/* Steps until all of the tales are over, each step with those that are left. */
static void decode_together(struct backend *b, struct tale *const *tales, int n) {
    struct backend_column columns[MOST];
    struct tale *who[MOST];
    memcpy(who, tales, (size_t)n * sizeof *who);
    for (int left = n, next; left > 0; left = next) {
        for (int i = 0; i < left; i++) {
            go_on(who[i]);
            columns[i] = who[i]->column;
        }
        cpu_backend.step(b, &(struct backend_batch){ .columns = columns, .n = left });
        next = 0;
        for (int i = 0; i < left; i++) {
            who[i]->column = columns[i];
            if (!columns[i].over) who[next++] = who[i];
        }
        assert_true(next < left);
    }
}

static struct backend *open_backend(const struct small_model *m, const char *path, int n_threads) {
    struct backend *b = NULL;
    const struct backend_options options = { .cpu_path = path, .n_threads = n_threads };
    assert_int_equal(cpu_backend.open(&b, &m->model, &options, NULL), REEL_OK);
    return b;
}

static void assert_same(const struct tale *got, const struct tale *want, const char *what) {
    assert_int_equal(got->column.status, REEL_OK);
    assert_int_equal(got->n_ids, want->n_ids);
    const size_t row = (size_t)want->vocab;
    for (int i = 0; i < want->n_ids; i++)
        if (memcmp(got->logits + (size_t)i * row, want->logits + (size_t)i * row,
                   row * sizeof(float)) != 0 ||
            got->ids[i] != want->ids[i])
            fail_msg("%s, id %d: not what it is alone", what, i);
}

/* The states have evaluated what they should: up to before the last id, and nothing beyond. */
static void assert_evaluated(struct tale *t, int n) {
    const int32_t id = 1;
    struct backend_eval eval = { .position = n + 1, .n = 1, .ids = &id };
    assert_int_equal(cpu_backend.eval(t->state, &eval, NULL), REEL_E_STATE);
    eval.position = n;
    assert_int_equal(cpu_backend.eval(t->state, &eval, NULL), REEL_OK);
}

/* Tales of columns first, first + 1 ... by passes of n. */
static void compare(struct backend *b, struct tale *const *alone, int first, int n,
                    const char *shape) {
    struct tale *tales[MOST] = { 0 };
    for (int i = 0; i < n; i++) {
        const int column = (first + i) % MOST;
        tales[i] = new_tale(b, alone[column]->vocab);
        read_prompt(tales[i], column, column % 2 == 1);
    }
    decode_together(b, tales, n);
    for (int i = 0; i < n; i++) {
        const int column = (first + i) % MOST;
        char what[100];
        snprintf(what, sizeof what, "%s, column %d of %d (%d positions)", shape, i, n,
                 lengths[column]);
        assert_same(tales[i], alone[column], what);
        assert_evaluated(tales[i], tales[i]->start + tales[i]->n_ids);
        free_tale(tales[i]);
    }
}

/* Every third number of columns, which for the next shape are others. */
static void compare_shape(int nth, const char *path) {
    const struct shape *shape = &random_shapes[nth];
    struct small_model *m = random_model(shape);
    struct tale *alone[MOST];
    struct backend *one = open_backend(m, path, 2);
    for (int i = 0; i < MOST; i++) {
        alone[i] = new_tale(one, shape->vocab);
        read_prompt(alone[i], i, i % 2 == 1);
        decode_alone(alone[i]);
    }
    for (int n = 1 + nth % 3; n <= MOST; n += THREAD_SANITIZED ? 6 : 3) {
        struct backend *b = open_backend(m, path, 1 + n % 4);
        compare(b, alone, 5 * n, n, shape->name);
        cpu_backend.close(b);
    }
    for (int i = 0; i < MOST; i++)
        free_tale(alone[i]);
    cpu_backend.close(one);
    free_model(m);
}

/* The path is named in *state. */
static void columns_are_as_alone(void **state) {
    const char *path = *state;
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    if (!strstr(here, path) && !cpu_path_is_reference(path)) {
        print_message("%s: not of this machine and build, which have %s\n", path, here);
        skip();
    }
    const int step = cpu_path_is_reference(path) || SANITIZED ? 5 : 1;
    for (int i = step - 1; i < N_ALL_SHAPES; i += step)
        compare_shape(i, path);
}

#define ON_PATH(path)   WITH_PATH("columns_are_bit_for_bit_as_alone_on_", columns_are_as_alone, path)
#define DRAFTS_ON(path) WITH_PATH("drafts_change_no_bit_on_", drafts_change_no_bit, path)
#define WITH_PATH(what, test, path)                                                                \
    {                                                                                              \
        .name = what path, .test_func = test, .teardown_func = turned, .initial_state = (char[]) { \
            path                                                                                   \
        }                                                                                          \
    }

/* ---- drafts ---------------------------------------------------------------------------------- */

/* The column that this tale tells alone. */
static void take_for_truth(struct tale *t, const struct tale *alone) {
    t->truth = alone->ids;
    t->n_truth = alone->n_ids;
}

/* Columns first, first + 1 ... of which all but every third have drafts. */
static void compare_drafted(struct backend *b, struct tale *const *alone, int first, int n,
                            const char *shape) {
    struct tale *tales[MOST] = { 0 };
    int n_drafts = 0;
    for (int i = 0; i < n; i++) {
        const int column = (first + i) % MOST;
        tales[i] = new_tale(b, alone[column]->vocab);
        read_prompt(tales[i], column, column % 2 == 1);
        tales[i]->max_ids = MAX_IDS;
        if (i % 3 != 2) take_for_truth(tales[i], alone[column]);
        tales[i]->n_asked = first; /* begins with another number of right ones */
    }
    decode_together(b, tales, n);
    for (int i = 0; i < n; i++) {
        const int column = (first + i) % MOST;
        char what[100];
        snprintf(what, sizeof what, "%s, drafts, column %d of %d (%d positions)", shape, i, n,
                 lengths[column]);
        assert_same(tales[i], alone[column], what);
        assert_evaluated(tales[i], tales[i]->start + tales[i]->n_ids);
        n_drafts += tales[i]->n_drafts;
        free_tale(tales[i]);
    }
    assert_true(n == MOST ? n_drafts == 0 : n_drafts > 0);
}

/* With 1, 2, 4 and 8 columns that have ids of their own. */
static void draft_shape(const struct shape *shape, const char *path, enum kv_form kv, int threads) {
    struct small_model *m = random_model(shape);
    struct backend *b = NULL;
    struct backend_info info;
    const struct backend_options options = { .cpu_path = path, .n_threads = threads, .kv = kv };
    assert_int_equal(cpu_backend.open(&b, &m->model, &options, NULL), REEL_OK);
    cpu_backend.info(b, &info);
    struct tale *alone[MOST];
    for (int i = 0; info.drafts && i < MOST; i++) {
        alone[i] = new_tale(b, shape->vocab);
        read_prompt(alone[i], i, i % 2 == 1);
        alone[i]->max_ids = MAX_IDS;
        decode_alone(alone[i]);
    }
    for (int n = 1; info.drafts && n <= MOST; n *= 2)
        for (int first = 0; first < MOST; first += SANITIZED ? 5 : 1 + n / 2)
            compare_drafted(b, alone, first, n, shape->name);
    for (int i = 0; info.drafts && i < MOST; i++)
        free_tale(alone[i]);
    cpu_backend.close(b);
    free_model(m);
}

static void drafts_change_no_bit(void **state) {
    const char *path = *state;
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    if (!strstr(here, path)) {
        print_message("%s: not of this machine and build, which have %s\n", path, here);
        skip();
    }
    for (int i = 0; i < N_ALL_SHAPES - 1; i += THREAD_SANITIZED ? 8 : SANITIZED ? 4 : 2)
        draft_shape(&random_shapes[i], path, i % 3 == 1 ? KV_INT8 : KV_BF16, 1 + i % 3);
    draft_shape(&random_shapes[N_ALL_SHAPES - 1], path, KV_BF16, 3);
}

/* One column whose drafts are all right: a pass makes eight ids unless something ends it. */
struct drafted {
    struct small_model *m;
    struct backend *b;
    struct tale *t, *alone;
};

static struct drafted open_drafted(const struct shape *shape) {
    struct drafted d = { .m = random_model(shape) };
    d.b = open_backend(d.m, NULL, 2);
    d.t = new_tale(d.b, shape->vocab);
    d.alone = new_tale(d.b, shape->vocab);
    read_prompt(d.alone, 1, true);
    d.alone->max_ids = MAX_IDS;
    decode_alone(d.alone);
    read_prompt(d.t, 1, true);
    d.t->max_ids = MAX_IDS;
    d.t->all_right = true;
    take_for_truth(d.t, d.alone);
    go_on(d.t);
    return d;
}

static void step_once(struct drafted *d) {
    cpu_backend.step(d->b, &(struct backend_batch){ .columns = &d->t->column, .n = 1 });
}

/* It is over with this status and so many ids, and goes on as if there had been no drafts. */
static void close_drafted(struct drafted *d, enum reel_status status, int n_ids) {
    assert_true(d->t->column.over);
    assert_int_equal(d->t->column.status, status);
    assert_int_equal(d->t->n_ids, n_ids);
    assert_memory_equal(d->t->ids, d->alone->ids, (size_t)n_ids * sizeof(int32_t));
    assert_evaluated(d->t, d->t->start + n_ids + (status == REEL_E_DEVICE));
    free_tale(d->t);
    free_tale(d->alone);
    cpu_backend.close(d->b);
    free_model(d->m);
}

/* Attention alone, and the hybrid. */
static const struct shape *const drafted_shapes[] = { &random_shapes[0],
                                                      &random_shapes[N_ALL_SHAPES - 1] };
enum { N_DRAFTED_SHAPES = 2 };

static void drafts_spare_passes(const struct shape *shape) {
    struct drafted d = open_drafted(shape);
    step_once(&d);
    assert_int_equal(d.t->n_asked, 2);
    assert_int_equal(d.t->n_drafts, 7 + 3); /* the last id is none's draft */
    close_drafted(&d, REEL_OK, MAX_IDS);
}

static void drafts_that_are_right_spare_passes(void **state) {
    (void)state;
    for (int i = 0; i < N_DRAFTED_SHAPES; i++)
        drafts_spare_passes(drafted_shapes[i]);
}

static void end_among_drafts(const struct shape *shape) {
    struct drafted d = open_drafted(shape);
    d.t->refuse_at = 4;
    step_once(&d);
    close_drafted(&d, REEL_OK, 4);

    d = open_drafted(shape);
    int first = 0;
    while (d.alone->ids[first] != d.alone->ids[5])
        first++;
    d.t->decode.stop_ids = &d.alone->ids[5];
    d.t->decode.n_stop_ids = 1;
    step_once(&d);
    close_drafted(&d, REEL_OK, first + 1);

    d = open_drafted(shape);
    d.t->none_at = 3;
    step_once(&d);
    close_drafted(&d, REEL_E_DEVICE, 2);

    d = open_drafted(shape); /* the ids of the pass come all the same */
    d.t->cancel_at = 3;
    step_once(&d);
    close_drafted(&d, REEL_E_CANCELLED, 8);
}

static void a_column_ends_among_its_drafts(void **state) {
    (void)state;
    for (int i = 0; i < N_DRAFTED_SHAPES; i++)
        end_among_drafts(drafted_shapes[i]);
}

/* A draft has a position, so that a session of which the id has the last one has no drafts. */
static void a_full_session_has_no_drafts(void **state) {
    (void)state;
    for (int room = 1; room <= 8; room++) {
        struct drafted d = open_drafted(drafted_shapes[room % N_DRAFTED_SHAPES]);
        struct backend_state *small = NULL;
        assert_int_equal(cpu_backend.state_open(&small, d.b, d.t->start + room, NULL), REEL_OK);
        cpu_backend.state_close(d.t->state);
        d.t->state = small;
        read_prompt(d.t, 1, true);
        d.t->max_ids = MAX_IDS;
        go_on(d.t);
        step_once(&d);
        assert_int_equal(d.t->n_drafts, room - 1);
        assert_int_equal(d.t->n_ids, room);
        assert_memory_equal(d.t->ids, d.alone->ids, (size_t)room * sizeof(int32_t));
        assert_true(d.t->column.over);
        free_tale(d.t);
        free_tale(d.alone);
        cpu_backend.close(d.b);
        free_model(d.m);
    }
}

/* ---- a recurrent state behind drafts ---- */

/* So many positions of the prompt have been evaluated, but for the last. */
static void read_positions(struct tale *t, int n) {
    int32_t ids[MAX_POSITIONS];
    for (int i = 0; i < n; i++)
        ids[i] = prompt_id(1, i, t->vocab);
    const struct backend_eval eval = { .n = n - 1, .ids = ids };
    assert_int_equal(cpu_backend.eval(t->state, &eval, NULL), REEL_OK);
    t->start = n - 1;
    t->decode.id = ids[n - 1];
    t->max_ids = MAX_IDS;
    t->n_ids = 0;
}

static bool one_pass(void *user) {
    (void)user;
    return true;
}

/* As many drafts as there may be, so many of which are right. */
static int draft_some(void *user, int32_t *ids, int most) {
    struct tale *t = user;
    assert_true(most >= t->n_drafts);
    for (int i = 0; i < most; i++)
        ids[i] = (t->truth[t->n_ids + i] + (i >= t->n_drafts)) % t->vocab;
    return most;
}

/* One pass. Behind it the state has seen start + 1 + n_right positions. */
static void pass_with_drafts(struct drafted *d, int n_right) {
    const int before = d->t->n_ids;
    go_on(d->t);
    d->t->decode.draft = draft_some;
    d->t->n_drafts = n_right;
    cpu_backend.step(
        d->b, &(struct backend_batch){ .columns = &d->t->column, .n = 1, .enough = one_pass });
    assert_int_equal(d->t->n_ids, before + n_right + 1);
    assert_false(d->t->column.over);
}

static unsigned char *saved(const struct backend_state *s, int n, size_t *n_bytes) {
    *n_bytes = cpu_backend.save_bytes(s, n);
    unsigned char *bytes = malloc(*n_bytes + 1);
    assert_non_null(bytes);
    assert_int_equal(cpu_backend.resume(s, n), n);
    assert_int_equal(cpu_backend.save(s, n, bytes + 1, NULL), REEL_OK); /* wherever it lies */
    memmove(bytes, bytes + 1, *n_bytes);
    return bytes;
}

/* The state of n positions is that of single passes, and so is what follows: another pass, several
 * positions at once. */
static void assert_state_as_alone(struct drafted *d, struct backend_state *s, int n) {
    const struct tale *alone = d->alone;
    float *logits[2];
    size_t n_bytes, n_alone;
    struct backend_state *single = NULL;
    assert_int_equal(cpu_backend.state_open(&single, d->b, MAX_POSITIONS, NULL), REEL_OK);
    struct tale again = *alone;
    again.state = single;
    read_positions(&again, alone->start + 1);
    for (int i = alone->start; i < n; i++) {
        const int32_t id = i == alone->start ? again.decode.id : alone->ids[i - alone->start - 1];
        const struct backend_eval eval = { .position = i, .n = 1, .ids = &id };
        assert_int_equal(cpu_backend.eval(single, &eval, NULL), REEL_OK);
    }
    unsigned char *got = saved(s, n, &n_bytes), *want = saved(single, n, &n_alone);
    assert_int_equal(n_bytes, n_alone);
    assert_memory_equal(got, want, n_bytes);
    free(got);
    free(want);
    struct backend_state *both[] = { s, single };
    for (int i = 0; i < 2; i++) {
        const int32_t more[] = { 5, 6, 7 };
        logits[i] = calloc((size_t)alone->vocab, sizeof(float));
        assert_non_null(logits[i]);
        const struct backend_eval eval = { .position = n,
                                           .n = 1 + n % 3,
                                           .ids = more,
                                           .output = REEL_OUTPUT_LAST_LOGITS,
                                           .out = logits[i] };
        assert_int_equal(cpu_backend.eval(both[i], &eval, NULL), REEL_OK);
    }
    assert_memory_equal(logits[0], logits[1], (size_t)alone->vocab * sizeof(float));
    for (int i = 0; i < 2; i++)
        free(logits[i]);
    cpu_backend.state_close(single);
}

static struct drafted open_at(int n_positions) {
    const struct shape *shape = &random_shapes[N_ALL_SHAPES - 1];
    struct drafted d = { .m = random_model(shape) };
    d.b = open_backend(d.m, NULL, 2);
    d.t = new_tale(d.b, shape->vocab);
    d.alone = new_tale(d.b, shape->vocab);
    read_positions(d.alone, n_positions);
    decode_alone(d.alone);
    take_for_truth(d.t, d.alone);
    return d;
}

static void close_at(struct drafted *d) {
    free_tale(d->t);
    free_tale(d->alone);
    cpu_backend.close(d->b);
    free_model(d->m);
}

/* At every number of drafts that were right, and going back to each of them. */
static void a_recurrent_state_is_that_of_single_passes(void **state) {
    (void)state;
    struct drafted d = open_at(40);
    for (int n_right = 0; n_right < MOST; n_right++)
        for (int back = 0; back <= n_right; back++) {
            read_positions(d.t, 40);
            pass_with_drafts(&d, n_right);
            assert_state_as_alone(&d, d.t->state, 40 + n_right - back);
        }
    close_at(&d);
}

/* What is owed goes with a copy, and stays owed to what it was copied of. */
static void a_copy_has_what_is_owed(void **state) {
    (void)state;
    struct drafted d = open_at(33);
    for (int n_right = 0; n_right < MOST; n_right += 2)
        for (int less = 0; less <= n_right; less += 3) {
            struct backend_state *copy = NULL;
            const int end = 33 + n_right;
            assert_int_equal(cpu_backend.state_open(&copy, d.b, MAX_POSITIONS, NULL), REEL_OK);
            read_positions(d.t, 33);
            pass_with_drafts(&d, n_right);
            assert_int_equal(cpu_backend.copy(copy, d.t->state, end - less, NULL), REEL_OK);
            assert_state_as_alone(&d, copy, end - less);
            assert_state_as_alone(&d, d.t->state, end);
            cpu_backend.state_close(copy);
        }
    close_at(&d);
}

/* As without drafts there is a state of every CHECKPOINT_STEP positions. */
static void drafts_leave_the_states_that_are_kept(void **state) {
    (void)state;
    for (int before = 1; before <= 9; before += 2) {
        struct drafted d = open_at(CHECKPOINT_STEP - before);
        read_positions(d.t, CHECKPOINT_STEP - before);
        pass_with_drafts(&d, 7);
        pass_with_drafts(&d, 0);
        pass_with_drafts(&d, 0);
        assert_state_as_alone(&d, d.t->state, CHECKPOINT_STEP);
        close_at(&d);
    }
}

/* ---- how a column ends ----------------------------------------------------------------------- */

/* Three columns of the hybrid that would all go on for MAX_IDS. */
struct trio {
    struct small_model *m;
    struct backend *b;
    struct tale *tales[3], *alone[3];
};

static struct trio open_trio(void) {
    const struct shape *shape = &random_shapes[N_ALL_SHAPES - 1];
    struct trio t = { .m = random_model(shape) };
    t.b = open_backend(t.m, NULL, 2);
    for (int i = 0; i < 3; i++) {
        t.tales[i] = new_tale(t.b, shape->vocab);
        t.alone[i] = new_tale(t.b, shape->vocab);
        read_prompt(t.tales[i], i, i == 1);
        read_prompt(t.alone[i], i, i == 1);
        t.tales[i]->max_ids = t.alone[i]->max_ids = MAX_IDS;
        decode_alone(t.alone[i]);
        go_on(t.tales[i]);
    }
    return t;
}

static void close_trio(struct trio *t) {
    for (int i = 0; i < 3; i++) {
        free_tale(t->tales[i]);
        free_tale(t->alone[i]);
    }
    cpu_backend.close(t->b);
    free_model(t->m);
}

static void step_trio(struct trio *t, bool (*enough)(void *user), void *user) {
    struct backend_column columns[3];
    for (int i = 0; i < 3; i++)
        columns[i] = t->tales[i]->column;
    cpu_backend.step(t->b, &(struct backend_batch){
                               .columns = columns, .n = 3, .enough = enough, .user = user });
    for (int i = 0; i < 3; i++)
        t->tales[i]->column = columns[i];
}

/* Column 1 is over with this status and so many ids; the others are not, have n_others and go on to
 * the end as if alone. */
static void assert_one_is_over(struct trio *t, enum reel_status status, int n_ids, int n_others) {
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t->tales[i]->column.over, i == 1);
        assert_int_equal(t->tales[i]->column.status, i == 1 ? status : REEL_OK);
        assert_int_equal(t->tales[i]->n_ids, i == 1 ? n_ids : n_others);
        assert_memory_equal(t->tales[i]->ids, t->alone[i]->ids,
                            (size_t)t->tales[i]->n_ids * sizeof(int32_t));
    }
    struct tale *others[] = { t->tales[0], t->tales[2] };
    decode_together(t->b, others, 2);
    for (int i = 0; i < 3; i += 2)
        assert_same(t->tales[i], t->alone[i], "the others");
    close_trio(t);
}

static void a_column_ends_where_its_callback_says_so(void **state) {
    (void)state;
    struct trio t = open_trio();
    t.tales[1]->refuse_at = 4;
    step_trio(&t, NULL, NULL);
    assert_evaluated(t.tales[1], t.tales[1]->start + 4);
    assert_one_is_over(&t, REEL_OK, 4, 4);
}

static void a_column_ends_behind_a_stop_id(void **state) {
    (void)state;
    struct trio t = open_trio();
    const int32_t *ids = t.alone[1]->ids, stops[] = { 1000, ids[6] };
    int first = 0;
    while (ids[first] != ids[6])
        first++;
    t.tales[1]->decode.stop_ids = stops;
    t.tales[1]->decode.n_stop_ids = 2;
    step_trio(&t, NULL, NULL);
    assert_one_is_over(&t, REEL_OK, first + 1, first + 1);
}

static void a_column_ends_when_it_is_cancelled_and_keeps_its_ids(void **state) {
    (void)state;
    struct trio t = open_trio();
    t.tales[1]->cancel_at = 3;
    step_trio(&t, NULL, NULL);
    assert_non_null(strstr(t.tales[1]->column.err.text, "cancelled"));
    assert_evaluated(t.tales[1], t.tales[1]->start + 3);
    assert_one_is_over(&t, REEL_E_CANCELLED, 3, 3);
}

static void a_column_of_which_no_id_can_be_drawn_fails(void **state) {
    (void)state;
    struct trio t = open_trio();
    t.tales[1]->none_at = 5;
    step_trio(&t, NULL, NULL);
    assert_non_null(strstr(t.tales[1]->column.err.text, "no id can be drawn"));
    assert_one_is_over(&t, REEL_E_DEVICE, 4, 5);
}

static bool count_down(void *user) {
    int *left = user;
    return --*left <= 0;
}

static void a_step_pauses_when_the_caller_has_enough(void **state) {
    (void)state;
    struct trio t = open_trio();
    int left = 2;
    step_trio(&t, count_down, &left);
    for (int i = 0; i < 3; i++) {
        assert_false(t.tales[i]->column.over);
        assert_int_equal(t.tales[i]->n_ids, 2);
    }
    t.tales[1]->max_ids = 3;
    decode_together(t.b, t.tales, 3);
    for (int i = 0; i < 3; i += 2)
        assert_same(t.tales[i], t.alone[i], "after a pause");
    assert_int_equal(t.tales[1]->n_ids, 3);
    close_trio(&t);
}

/* The last id that a full session makes has no position of its own. */
static void a_full_session_ends_its_column(void **state) {
    (void)state;
    struct trio t = open_trio();
    struct backend_state *small = NULL;
    struct tale *one = t.tales[1];
    assert_int_equal(cpu_backend.state_open(&small, t.b, one->start + 3, NULL), REEL_OK);
    cpu_backend.state_close(one->state);
    one->state = small;
    read_prompt(one, 1, true);
    one->max_ids = MAX_IDS;
    go_on(one);
    step_trio(&t, NULL, NULL);
    assert_one_is_over(&t, REEL_OK, 3, 3);
}

/* Nothing is evaluated then: the others lose nothing. */
static void a_column_that_cannot_begin_is_over_at_once(void **state) {
    (void)state;
    struct trio t = open_trio();
    t.tales[1]->decode.position += 2;
    step_trio(&t, NULL, NULL);
    assert_one_is_over(&t, REEL_E_STATE, 0, 0);
}

/* ---- several callers ------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    struct backend *b;
    struct tale *const *alone;
    int first, n;
};

static void *step_beside_others(void *user) {
    const struct caller *c = user;
    compare(c->b, c->alone, c->first, c->n, "beside other callers");
    return NULL;
}

/* cmocka's failures belong to the main thread; one on another ends the program, which is as good.
 */
static void threads_step_at_the_same_time(void **state) {
    (void)state;
    const struct shape *shape = &random_shapes[N_ALL_SHAPES - 1];
    struct small_model *m = random_model(shape);
    struct backend *b = open_backend(m, NULL, 2);
    struct tale *alone[MOST];
    struct caller callers[3];
    for (int i = 0; i < MOST; i++) {
        alone[i] = new_tale(b, shape->vocab);
        read_prompt(alone[i], i, i % 2 == 1);
        decode_alone(alone[i]);
    }
    for (int i = 0; i < 3; i++) {
        callers[i] = (struct caller){ .b = b, .alone = alone, .first = 3 * i, .n = 1 + 2 * i };
        assert_int_equal(pthread_create(&callers[i].thread, NULL, step_beside_others, &callers[i]),
                         0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < MOST; i++)
        free_tale(alone[i]);
    cpu_backend.close(b);
    free_model(m);
}

static void passes_have_eight_columns(void **state) {
    (void)state;
    static const char *const paths[] = { NULL, "reference" };
    struct small_model *m = random_model(&random_shapes[0]);
    for (int i = 0; i < 2; i++) {
        struct backend *b = open_backend(m, paths[i], 1);
        struct backend_info info;
        cpu_backend.info(b, &info);
        assert_int_equal(info.most_columns, MOST);
        cpu_backend.close(b);
    }
    free_model(m);
}

int main(void) {
    struct CMUnitTest tests[] = {
        ON_PATH("portable"),
        ON_PATH("avx2"),
        ON_PATH("avx512"),
        ON_PATH("amx"),
        ON_PATH("neon"),
        ON_PATH("reference"),
        DRAFTS_ON("portable"),
        DRAFTS_ON("avx2"),
        DRAFTS_ON("avx512"),
        DRAFTS_ON("amx"),
        DRAFTS_ON("neon"),
        cmocka_unit_test(drafts_that_are_right_spare_passes),
        cmocka_unit_test(a_column_ends_among_its_drafts),
        cmocka_unit_test(a_full_session_has_no_drafts),
        cmocka_unit_test(a_recurrent_state_is_that_of_single_passes),
        cmocka_unit_test(a_copy_has_what_is_owed),
        cmocka_unit_test(drafts_leave_the_states_that_are_kept),
        cmocka_unit_test(passes_have_eight_columns),
        cmocka_unit_test(a_column_ends_where_its_callback_says_so),
        cmocka_unit_test(a_column_ends_behind_a_stop_id),
        cmocka_unit_test(a_column_ends_when_it_is_cancelled_and_keeps_its_ids),
        cmocka_unit_test(a_column_of_which_no_id_can_be_drawn_fails),
        cmocka_unit_test(a_step_pauses_when_the_caller_has_enough),
        cmocka_unit_test(a_full_session_ends_its_column),
        cmocka_unit_test(a_column_that_cannot_begin_is_over_at_once),
        cmocka_unit_test(threads_step_at_the_same_time),
    };
    SHARE_TESTS("cpu-step", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
