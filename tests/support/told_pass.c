#include "support/told_pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

struct passing {
    struct told_pass *t;
    int n_right;
};

static int32_t draw(void *user, const float *logits, int64_t position) {
    const struct passing *p = user;
    (void)logits;
    return p->t->ids[position];
}

static bool on_id(void *user, int32_t id) {
    const struct passing *p = user;
    assert_int_equal(id, p->t->ids[++p->t->position]);
    return true;
}

static int draft(void *user, int32_t *drafts, int most) {
    const struct passing *p = user;
    for (int i = 0; i < most; i++)
        drafts[i] = (p->t->ids[p->t->position + 1 + i] + (i >= p->n_right)) % p->t->vocab;
    return most;
}

static bool one_pass(void *user) {
    (void)user;
    return true;
}

void told_pass(struct told_pass *t, struct backend *b, struct backend_state *s, int n_right) {
    struct passing p = { t, n_right };
    const atomic_bool cancel = false;
    const struct backend_decode decode = { .position = t->position,
                                           .id = t->ids[t->position],
                                           .max_tokens = t->n - 1 - t->position,
                                           .on_id = on_id,
                                           .draw = draw,
                                           .draft = draft,
                                           .user = &p,
                                           .cancel = &cancel };
    struct backend_column column = { .state = s, .decode = &decode };
    const struct backend_batch batch = { .columns = &column, .n = 1, .enough = one_pass };
    cpu_backend.step(b, &batch);
    assert_int_equal(column.status, REEL_OK);
}
