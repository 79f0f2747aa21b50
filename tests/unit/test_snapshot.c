/* Copies and snapshots of sessions, whole and damaged. */
#include "runtime/snapshot.h"
#include "support/session_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_copy_goes_on_like_its_source(void **state) {
    (void)state;
    struct fixture f, other;
    fixture_start(&f, false);
    fixture_start(&other, false);
    struct reel_session *copy = open_session(&f, 20), *small = open_session(&f, 4);
    sync_to(&f, copy, prompt + 2, 3);
    assert_int_equal(reel_session_copy(copy, f.session, &f.err), REEL_OK); /* an empty one */
    assert_int_equal(reel_session_length(copy), 0);
    sync_to(&f, f.session, prompt, N_PROMPT);
    for (int i = 0; i < 3; i++) { /* logits on hand; an id not evaluated; truncated */
        assert_int_equal(reel_session_copy(copy, f.session, &f.err), REEL_OK);
        assert_holds(copy, reel_session_ids(f.session), reel_session_length(f.session));
        assert_goes_on(&f, copy, 4);
        if (i == 0) assert_goes_on(&f, f.session, 2);
        if (i == 1) assert_int_equal(reel_session_truncate(f.session, 5, &f.err), REEL_OK);
    }
    assert_int_equal(reel_session_copy(f.session, f.session, &f.err), REEL_OK);
    assert_int_equal(reel_session_length(f.session), 5);
    assert_int_equal(reel_session_copy(small, f.session, &f.err), REEL_E_CONTEXT);
    assert_int_equal(reel_session_copy(other.session, f.session, &f.err), REEL_E_ARGUMENT);
    reel_session_close(copy);
    reel_session_close(small);
    fixture_stop(&other);
    fixture_stop(&f);
}

static void a_snapshot_goes_on_like_its_source(void **state) {
    (void)state;
    struct fixture f;
    fixture_start(&f, false);
    struct reel_session *other = open_session(&f, 20);
    sync_to(&f, f.session, prompt, N_PROMPT);
    for (int i = 0; i < 4; i++) {
        size_t n = reel_session_snapshot_bytes(f.session);
        char *bytes = malloc(n);
        assert_int_equal(reel_session_snapshot(f.session, bytes, n - 1, &f.err), REEL_E_LIMIT);
        assert_int_equal(reel_session_snapshot(f.session, bytes, n, &f.err), REEL_OK);
        assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_OK);
        assert_holds(other, reel_session_ids(f.session), reel_session_length(f.session));
        if (i < 3) assert_goes_on(&f, other, 4);
        free(bytes);
        if (i == 0) assert_goes_on(&f, f.session, 2);
        if (i == 1) assert_int_equal(reel_session_truncate(f.session, 5, &f.err), REEL_OK);
        if (i == 2) sync_to(&f, f.session, NULL, 0);
    }
    reel_session_close(other);
    fixture_stop(&f);
}

static void a_damaged_snapshot_is_refused_and_leaves_an_empty_session(void **state) {
    (void)state;
    struct fixture f;
    fixture_start(&f, false);
    struct reel_session *other = open_session(&f, 20), *small = open_session(&f, 7);
    sync_to(&f, f.session, prompt, N_PROMPT);
    size_t n = reel_session_snapshot_bytes(f.session);
    unsigned char *bytes = malloc(n + 1);
    bytes[n] = 0;
    assert_int_equal(reel_session_snapshot(f.session, bytes, n, &f.err), REEL_OK);
    for (size_t i = 0; i < n; i++) { /* every byte matters */
        bytes[i] ^= (unsigned char)(1 << i % 8);
        assert_int_not_equal(reel_session_restore(other, bytes, n, &f.err), REEL_OK);
        assert_true(strlen(f.err.text) > 10);
        assert_int_equal(reel_session_length(other), 0);
        bytes[i] ^= (unsigned char)(1 << i % 8);
    }
    for (size_t i = 0; i < n; i++)
        assert_int_equal(reel_session_restore(other, bytes, i, &f.err), REEL_E_FORMAT);
    assert_int_equal(reel_session_restore(other, bytes, n + 1, &f.err), REEL_E_FORMAT);
    assert_int_equal(reel_session_restore(other, NULL, 0, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_restore(small, bytes, n, &f.err), REEL_E_CONTEXT);
    f.model->identity[5] ^= 1; /* another model */
    assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_E_MISMATCH);
    f.model->identity[5] ^= 1;
    f.model->kv = KV_FP8; /* a session of another form */
    assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_E_MISMATCH);
    assert_string_equal(f.err.text,
                        "snapshot: its keys and values are bf16; this session keeps them in fp8");
    f.model->kv = KV_BF16;
    assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_OK);
    assert_goes_on(&f, other, 3);
    free(bytes);
    reel_session_close(other);
    reel_session_close(small);
    fixture_stop(&f);
}

/* With the check sum made right again, every number still has to make sense: llama.cpp multiplied
 * those of a saved cache without looking (CVE-2026-43629). */
static void a_forged_snapshot_is_refused(void **state) {
    (void)state;
    enum { VOCAB_AT = 112, LENGTH = 132, EVALUATED = 136, LOGITS = 140, STATE = 144, IDS = 168 };
    static const struct {
        size_t at;
        int32_t value;
    } forged[] = { { VOCAB_AT, 71 },    { LENGTH, -1 },    { LENGTH, 7 },    { LENGTH, 9 },
                   { LENGTH, 1 << 30 }, { EVALUATED, -1 }, { EVALUATED, 9 }, { EVALUATED, 7 },
                   { LOGITS, 0 },       { LOGITS, 69 },    { LOGITS, -1 },   { STATE, 56 },
                   { STATE + 4, -1 },   { IDS, -2 },       { IDS + 28, 70 }, { IDS + 4, 1 << 30 } };
    struct fixture f;
    unsigned char bytes[2000];
    int32_t old;
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    size_t n = reel_session_snapshot_bytes(f.session);
    assert_int_equal(reel_session_snapshot(f.session, bytes, n, &f.err), REEL_OK);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        memcpy(&old, bytes + forged[i].at, sizeof old);
        memcpy(bytes + forged[i].at, &forged[i].value, sizeof old);
        snapshot_seal(bytes, n);
        if (reel_session_restore(f.session, bytes, n, &f.err) == REEL_OK)
            fail_msg("%d at %zu was taken", (int)forged[i].value, forged[i].at);
        assert_int_equal(reel_session_length(f.session), 0);
        memcpy(bytes + forged[i].at, &old, sizeof old);
    }
    snapshot_seal(bytes, n);
    assert_int_equal(reel_session_restore(f.session, bytes, n, &f.err), REEL_OK);
    assert_goes_on(&f, f.session, 3);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_goes_on_like_its_source),
        cmocka_unit_test(a_snapshot_goes_on_like_its_source),
        cmocka_unit_test(a_damaged_snapshot_is_refused_and_leaves_an_empty_session),
        cmocka_unit_test(a_forged_snapshot_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
