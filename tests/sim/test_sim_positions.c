/* Keys of the first layer as every path leaves them in its cache, beyond position 4,096 and with a
 * norm's epsilon that counts, against the same in double: the norm of a row of the embedding, its
 * products with k's weights, their norm, and the rotation, made here of the model's numbers alone.
 *
 * A session begins there at once: its state is restored from zeros, as keys and values of what
 * comes before. */
#include "kernels/kv_layout.h"
#include "model/dtype.h"
#include "runtime/session.h"
#include "support/mutations.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FAR = 4200, MOST = 39, N_SMS = 4, DIM = 64, HIDDEN = 64, KV_HEADS = 2 };

static struct sim_model model;
static int32_t ids[MOST];

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < MOST; i++)
        ids[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "q3-k");
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    sim_model_close(&model);
    return 0;
}

/* ---- what must come out ---- */

/* Returns eps as a part of the mean square that it is added to. */
static double norm(double *x, int n, const float *gain, double eps) {
    double square = 0;
    for (int i = 0; i < n; i++)
        square += x[i] * x[i] / n;
    for (int i = 0; i < n; i++)
        x[i] *= (double)gain[i] / sqrt(square + eps);
    return eps / square;
}

static void expected_key(int32_t id, int position, int head, double *key) {
    const struct model_config *c = &model.cpu->model.config;
    const struct layer_weights *layer = &model.cpu->model.weights.layers[0];
    const double eps = (double)c->rms_eps;
    double x[HIDDEN], turned[DIM];
    float row[HIDDEN];
    matrix_row_f32(&model.cpu->model.weights.embedding, id, row);
    for (int i = 0; i < HIDDEN; i++)
        x[i] = (double)row[i];
    (void)norm(x, HIDDEN, layer->attn_norm, eps);
    for (int d = 0; d < DIM; d++) {
        matrix_row_f32(&layer->k, head * DIM + d, row);
        key[d] = 0;
        for (int i = 0; i < HIDDEN; i++)
            key[d] += (double)row[i] * x[i];
    }
    assert_true(norm(key, DIM, layer->k_norm, eps) > 0.1); /* without it keys are 5 % longer */
    for (int i = 0; i < DIM / 2; i++) {
        const double angle = position * pow((double)c->rope_theta, -2.0 * i / DIM);
        turned[i] = key[i] * cos(angle) - key[i + DIM / 2] * sin(angle);
        turned[i + DIM / 2] = key[i + DIM / 2] * cos(angle) + key[i] * sin(angle);
    }
    memcpy(key, turned, sizeof turned);
}

/* ---- what a path makes ---- */

enum form { FLOATS, ROWS, PIECES }; /* of a state's bytes: the reference, the CPU, the GPU */

static double key_at(enum form form, const unsigned char *bytes, int n, int head, int position,
                     int d) {
    uint16_t half;
    float whole;
    if (form == FLOATS) {
        memcpy(&whole, bytes + sizeof whole * (size_t)((position * KV_HEADS + head) * DIM + d),
               sizeof whole);
        return (double)whole;
    }
    if (form == ROWS)
        bytes += sizeof half * (size_t)((head * n + position) * 2 * DIM + d);
    else
        bytes += (size_t)(head * kv_pieces(n) + position / KV_POSITIONS) * kv_piece_bytes(0, DIM) +
                 kv_k_byte(0, position, d);
    memcpy(&half, bytes, sizeof half);
    return (double)bf16_to_f32(half);
}

/* A session that holds `from` positions of keys and values 0. */
static struct reel_session *session_at(struct reel_model *m, int from) {
    struct reel_error err = { 0 };
    struct reel_session *s;
    const struct reel_session_options o = { .size = sizeof o, .max_context = FAR + MOST };
    require(reel_session_open(&s, m, &o, &err), &err);
    const size_t n = m->ops->save_bytes(s->state, from);
    void *zeros = calloc(1, n + 1);
    require(m->ops->restore(s->state, from, zeros, n, &err), &err);
    free(zeros);
    memset(s->ids, 0, (size_t)from * sizeof *s->ids);
    s->length = s->n_evaluated = from;
    return s;
}

/* How far the keys of n ids from a position on are off, as a part of theirs; 1 when it fails. */
static double keys_off(struct reel_model *m, enum form form, int from, int n) {
    struct reel_error err = { 0 };
    struct reel_session *s = session_at(m, from);
    const struct reel_eval eval = { .size = sizeof eval, .n = n, .ids = ids };
    double error = 1, square = 1;
    unsigned char *bytes = NULL;
    if (reel_session_eval(s, &eval, &err) == REEL_OK) {
        bytes = malloc(m->ops->save_bytes(s->state, from + n));
        require(m->ops->save(s->state, from + n, bytes, &err), &err);
        error = square = 0;
    }
    for (int i = 0; bytes && i < n; i++)
        for (int head = 0; head < KV_HEADS; head++) {
            double key[DIM];
            expected_key(ids[i], from + i, head, key);
            for (int d = 0; d < DIM; d++) {
                const double off = key_at(form, bytes, from + n, head, from + i, d) - key[d];
                error += off * off, square += key[d] * key[d];
            }
        }
    free(bytes);
    reel_session_close(s);
    return sqrt(error / square);
}

/* ---- tests ---- */

enum { WITHIN_PERCENT = 1 };
static bool right(double off) { return off < WITHIN_PERCENT * 0.01; }

static void keys_of_the_CPU_are_right_near_and_far(void **state) {
    static const char *const paths[] = { "reference", "portable", NULL /* the best here */ };
    static const int froms[] = { 0, FAR }, lengths[] = { 1, MOST };
    (void)state;
    for (int p = 0; p < 3; p++) {
        struct reel_error err = { 0 };
        struct reel_model *m;
        const struct reel_model_options o = {
            .size = sizeof o, .device = "cpu", .cpu_path = paths[p], .n_threads = 1
        };
        require(reel_model_open(&m, model.folder, &o, &err), &err);
        for (int i = 0; i < 4; i++) {
            const double off = keys_off(m, p ? ROWS : FLOATS, froms[i / 2], lengths[i % 2]);
            printf("%s, %d from %d on: off by %.4f\n", paths[p] ? paths[p] : "best", lengths[i % 2],
                   froms[i / 2], off);
            if (!right(off)) fail_msg("off by %.4f", off);
        }
        reel_model_close(m);
    }
}

/* By the decode kernel and by the queue of launches; by the one for short prompts. */
#define CUT "n_groups=2,group_sms=2,warps=4,prefill_tokens=256,prefill_from=2,launch_tokens=256"
static const struct {
    const char *name, *options;
    int n;
} ways[] = { { "decode", CUT ",short_positions=0", 1 },
             { "queue", CUT ",short_positions=0", MOST },
             { "short", CUT ",short_positions=1000000", 9 } };
enum { N_WAYS = sizeof ways / sizeof *ways };

static double way_off(int way, const struct mutation *m) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = N_SMS;
    mutation_apply(m, gpu.nvrtc);
    require(sim_model_load(&model, ways[way].options, &err), &err);
    const double off = keys_off(model.gpu, PIECES, FAR, ways[way].n);
    sim_model_unload(&model);
    return off;
}

static void keys_of_the_GPU_are_right_far(void **state) {
    static const struct mutation none = { .what = "nothing" };
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        const double off = way_off(way, &none);
        printf("%s: off by %.4f\n", ways[way].name, off);
        if (!right(off)) fail_msg("%s: off by %.4f", ways[way].name, off);
    }
}

/* A mutation's name begins with its way's. */
static bool is_seen(const struct mutation *m) {
    for (int way = 0; way < N_WAYS; way++) {
        if (strncmp(m->what, ways[way].name, strlen(ways[way].name)) != 0) continue;
        const double off = way_off(way, m);
        printf("%s: off by %.4f\n", m->what, off);
        return !right(off);
    }
    return false;
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&position_mutations, is_seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_the_CPU_are_right_near_and_far),
        cmocka_unit_test(keys_of_the_GPU_are_right_far),
        cmocka_unit_test(mutations_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
