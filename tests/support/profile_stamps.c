#include "support/profile_stamps.h"

#include "kernels/profile_marks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct plan stamps_plan(void) {
    struct plan p = { .preload_tiles = 4, .kv_piece_bytes = 2048, .n_kv_heads = 2 };
    struct tape_shape *t = &p.tape;
    snprintf(p.gpu.name, sizeof p.gpu.name, "A \"test\" GPU");
    t->n_groups = 2, t->group_sms = 2, t->n_sms = 4, t->n_layers = 2, t->vocab = 90;
    for (int i = 0; i < TAPE_HEAD; i++)
        t->segment[i] = (struct tape_segment){ .warp_rows = 1,
                                               .warp_k = i == TAPE_GATE_UP ? 5 : 4,
                                               .bytes = 1000u * (unsigned)(i + 1) };
    t->segment[TAPE_HEAD] = (struct tape_segment){ .k_tiles = 3 };
    p.split_from = 100;
    return p;
}

/* Where the i-th mark of a token lies among its stamps: kernels/profile.cuh's order, said again. */
static int place(const struct plan *plan, int i) {
    const int last = i - 2 - plan->tape.n_layers * PROFILE_LAYER_MARKS;
    if (i == 0) return MARK_TOKEN;
    if (i == 1) return MARK_EMBED;
    if (last < 0) return PROFILE_TOKEN_MARKS + i - 2;
    return last == 0 ? MARK_HEAD_INPUT : last == 1 ? MARK_HEAD : MARK_PICK;
}

uint32_t *stamps_make(const struct stamps_maker *m) {
    const int n_sms = m->plan->tape.n_sms, n_stamps = profile_stamps(m->plan);
    uint32_t *all = calloc((size_t)(m->n_tokens * n_sms * n_stamps), sizeof *all);
    assert_non_null(all);
    for (int sm = 0; sm < n_sms; sm++) {
        uint32_t clock = m->first_clock + (uint32_t)sm * 123456789u;
        double ns = 10 * sm;
        for (int t = 0; t < m->n_tokens; t++) {
            uint32_t *stamps = all + (t * n_sms + sm) * n_stamps;
            const uint64_t time = m->first_ns + (uint64_t)llround(ns);
            stamps[MARK_TIME_LOW] = (uint32_t)time;
            stamps[MARK_TIME_HIGH] = (uint32_t)(time >> 32);
            for (int i = 0; i < profile_spans(m->plan); i++) {
                const unsigned ticks = m->ticks(m->user, t, sm, i);
                stamps[place(m->plan, i)] = clock;
                clock += ticks;
                ns += ticks / (m->ghz ? m->ghz(t) : 1);
            }
        }
    }
    return all;
}
