/* Keys and values on the CPU: copies that share memory stay apart for who reads and writes them,
 * and what is cut off is given back, in every form. */
#include "cpu/kv_cache.h"
#include "support/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, HEADS = 2, DIM = 64, CONTEXT = 2048 };

static void good(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

/* ---- a cache and what it should hold ---- */

struct held {
    struct kv_cache kv;
    uint16_t value[CONTEXT]; /* [n] what position i was written with */
    int n;
};

static enum kv_form form; /* of all caches of a test */

static struct kv_shape shape(void) { return (struct kv_shape){ LAYERS, HEADS, DIM, form, NULL }; }

static void open_held(struct held *h, int context) {
    struct reel_error err;
    const struct kv_shape s = shape();
    memset(h, 0, sizeof *h);
    good(kv_cache_open(&h->kv, &s, context, &err), &err);
}

/* Each element is another one, of K and of V, of each layer and head. In 8 bits they are numbers
 * that a code holds and element 0 is the largest code, so that the scale is the power of two that
 * `value` chooses. */
static uint16_t element(uint16_t value, int layer, int head, int d, bool is_v) {
    const int all = value * 31 + layer * 7 + head * 3 + d * 2 + is_v;
    const int most = form == KV_INT8 ? 127 : 448, small = 1 + all % (form == KV_INT8 ? 126 : 15);
    if (form == KV_BF16) return (uint16_t)all;
    const float code = d == 0 ? (float)most : (float)small;
    return bf16_from_f32(ldexpf(d % 3 ? code : -code, (value + is_v + head) % 16 - 8));
}

static void put(struct held *h, int from, int end, uint16_t value) {
    uint16_t k[DIM], v[DIM];
    kv_cache_begin(&h->kv, from, end);
    for (int i = from; i < end; i++) {
        h->value[i] = (uint16_t)(value + i);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int head = 0; head < HEADS; head++) {
                for (int d = 0; d < DIM; d++) {
                    k[d] = element(h->value[i], layer, head, d, false);
                    v[d] = element(h->value[i], layer, head, d, true);
                }
                kv_cache_write(&h->kv, layer, head, i, k, v);
            }
    }
    h->n = end;
}

static void copy(struct held *dst, struct held *src, int n) {
    kv_cache_copy(&dst->kv, &src->kv, src->n, n);
    memcpy(dst->value, src->value, sizeof dst->value);
    dst->n = n;
}

static void keep(struct held *h, int n) {
    h->n = n;
    kv_cache_keep(&h->kv, n);
}

/* Element d of K or V of a position as it was saved, as bf16. */
static uint16_t saved_element(const unsigned char *position, int d, bool is_v) {
    const unsigned char *at = position + (is_v * DIM + d) * (form == KV_BF16 ? 2 : 1);
    uint16_t bits = 0;
    float scale = 0;
    memcpy(&bits, at, form == KV_BF16 ? 2 : 1);
    if (form == KV_BF16) return bits;
    memcpy(&scale, position + 2 * DIM + is_v * sizeof scale, sizeof scale);
    return bf16_from_f32(scale * kv_code_value(form, (uint8_t)bits));
}

/* The first element of 2 * DIM, K's then V's, that is not what `value` says; -1: all are. */
static int wrong_element(uint16_t value, int layer, int head, const unsigned char *at) {
    for (int d = 0; d < 2 * DIM; d++)
        if (saved_element(at, d % DIM, d >= DIM) != element(value, layer, head, d % DIM, d >= DIM))
            return d;
    return -1;
}

/* Bytes that were found right once, by value: those that are the same need no second look. */
enum { KNOWN = 2048, MOST_BYTES = 4 * DIM };
static struct known {
    unsigned char bytes[MOST_BYTES];
    uint16_t value;
    bool is;
} known[KV_FORMS][LAYERS][HEADS][KNOWN];

static void check_saved(const struct held *h, const unsigned char *at) {
    const size_t position = kv_cache_save_bytes(&h->kv, 1) / (LAYERS * HEADS);
    assert_true(position <= MOST_BYTES);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int head = 0; head < HEADS; head++)
            for (int i = 0; i < h->n; i++, at += position) {
                const uint16_t value = h->value[i];
                struct known *k = &known[form][layer][head][value % KNOWN];
                if (k->is && k->value == value && memcmp(k->bytes, at, position) == 0) continue;
                const int d = wrong_element(value, layer, head, at);
                if (d >= 0)
                    fail_msg("%s, %s of position %d of %d, layer %d, head %d, element %d",
                             kv_form_name(form), d >= DIM ? "V" : "K", i, h->n, layer, head,
                             d % DIM);
                k->is = true, k->value = value;
                memcpy(k->bytes, at, position);
            }
}

static void check(const struct held *h) {
    static unsigned char saved[CONTEXT * 2 * DIM * LAYERS * HEADS * 2];
    assert_true(kv_cache_save_bytes(&h->kv, h->n) <= sizeof saved);
    kv_cache_save(&h->kv, h->n, saved);
    check_saved(h, saved);
}

static size_t position_bytes(void) {
    const struct kv_shape s = shape();
    return kv_cache_position_bytes(&s);
}

/* ---- what the machine says ---- */

/* KB of a kind ("Pss:") of all mappings of this process. */
static long process_kb(const char *kind) {
    char line[400];
    long kb = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file) skip();
    while (fgets(line, sizeof line, file))
        if (strncmp(line, kind, strlen(kind)) == 0) kb = strtol(line + strlen(kind), NULL, 10);
    fclose(file);
    return kb;
}

/* KB that this process holds for itself; not of files, which it shares with programs that come and
 * go beside it. */
static long held_kb(void) {
    const long anonymous = process_kb("Pss_Anon:"), shared = process_kb("Pss_Shmem:");
    return anonymous < 0 || shared < 0 ? process_kb("Pss:") : anonymous + shared;
}

/* ---- tests ---- */

static void copies_take_memory_once(void **state) {
    enum { N = 12, POSITIONS = 1500, MORE = 40 };
    (void)state;
    static struct held all[N];
    const long one = (long)(position_bytes() * POSITIONS >> 10);
    for (int i = 0; i < N; i++)
        open_held(&all[i], CONTEXT);
    put(&all[0], 0, POSITIONS, 5);
    check(&all[0]);
    const long before = held_kb() - one;
    for (int i = 1; i < N; i++)
        copy(&all[i], &all[i / 2], POSITIONS);
    for (int i = 0; i < N; i++)
        check(&all[i]); /* reads all: what is shared is there for each */
    const long held = held_kb() - before;
    print_message("%d sessions of %ld KB: %ld KB\n", N, one, held);
    if (!SANITIZED ||
        held > one) /* a sanitizer's allocator gives memory of its own back meanwhile */
        assert_in_range(held, one - one / 8, one + one / 8);
    for (int i = 0; i < N; i++)
        put(&all[i], POSITIONS, POSITIONS + MORE, (uint16_t)(100 * i));
    put(&all[3], 7, POSITIONS, 9000);
    for (int i = 0; i < N; i++)
        check(&all[i]);
    kv_cache_release(&all[0].kv); /* the others keep what it had */
    for (int i = 1; i < N; i++)
        check(&all[i]);
    for (int i = 1; i < N; i++)
        kv_cache_release(&all[i].kv);
}

static void what_is_cut_off_is_given_back(void **state) {
    enum { POSITIONS = 1536, KEPT = 300 };
    (void)state;
    static struct held h, other;
    const long position = (long)position_bytes();
    const long chunk = position * KV_CHUNK >> 10, slack = 100;
    open_held(&h, CONTEXT);
    open_held(&other, CONTEXT);
    const long before = process_kb("Private_Dirty:");
    put(&h, 0, POSITIONS, 1);
    assert_in_range(process_kb("Private_Dirty:") - before, 6 * chunk, 6 * chunk + slack);
    keep(&h, KEPT);
    assert_in_range(process_kb("Private_Dirty:") - before, 2 * chunk, 2 * chunk + slack);
    check(&h);
    put(&h, KEPT, POSITIONS, 700);
    check(&h);
    /* a view: what it has written itself */
    copy(&other, &h, POSITIONS);
    check(&h), check(&other);
    const long shared = process_kb("Anonymous:");
    put(&other, 1024, POSITIONS, 50);
    assert_in_range(process_kb("Anonymous:") - shared, 2 * chunk, 2 * chunk + slack);
    keep(&other, 1024);
    assert_in_range(process_kb("Anonymous:") - shared + slack, 0, 2 * slack);
    check(&other);
    check(&h);
    kv_cache_release(&h.kv);
    kv_cache_release(&other.kv);
}

/* Caches that are written, cut, copied and opened anew at random hold what they should. */
static void copies_stay_apart(void **state) {
    enum { N = 5, STEPS = 400, LONGEST = 714 };
    (void)state;
    static struct held all[N];
    unsigned random = 7;
    for (int i = 0; i < N; i++)
        open_held(&all[i], i == N - 1 ? LONGEST + 16 : LONGEST); /* one that shares nothing */
    for (int step = 0; step < STEPS; step++) {
        random = random * 1103515245u + 12345u;
        const unsigned draw = random >> 8;
        struct held *h = &all[draw % N], *other = &all[draw / N % N];
        const int n = (int)(draw / 64 % LONGEST);
        switch (draw / 32768 % 4) {
        case 0:
            put(h, n < h->n ? n : h->n, LONGEST, (uint16_t)step);
            break;
        case 1:
            if (n < h->n) keep(h, n);
            break;
        case 2:
            if (h->n < LONGEST) put(h, h->n, h->n + 1, (uint16_t)step);
            break;
        default:
            if (h != other) copy(other, h, draw % 3 && n < h->n ? n : h->n);
        }
        for (int i = 0; i < N; i++)
            if (&all[i] == h || &all[i] == other || step % 16 == 0) check(&all[i]);
    }
    for (int i = 0; i < N; i++)
        check(&all[i]), kv_cache_release(&all[i].kv);
}

static void memory_is_counted(void **state) {
    (void)state;
    static const size_t wanted[] = { 4 * DIM, 2 * DIM + 8, 2 * DIM + 8 };
    for (form = KV_BF16; form < KV_FORMS; form++) {
        struct held h;
        open_held(&h, CONTEXT);
        assert_int_equal(position_bytes(), LAYERS * HEADS * wanted[form]);
        assert_int_equal(h.kv.memory.size, CONTEXT * position_bytes());
        kv_cache_release(&h.kv);
    }
    form = KV_BF16;
}

/* A saved cache holds as much when it is loaded, and a copy through bytes is one. */
static void saved_positions_are_loaded(void **state) {
    enum { N = 301 };
    (void)state;
    static struct held h, other;
    for (form = KV_BF16; form < KV_FORMS; form++) {
        open_held(&h, CONTEXT);
        open_held(&other, CONTEXT);
        put(&h, 0, N, 77);
        put(&other, 0, N + 40, 5);
        void *bytes = malloc(kv_cache_save_bytes(&h.kv, N));
        assert_non_null(bytes);
        kv_cache_save(&h.kv, N, bytes);
        kv_cache_load(&other.kv, N, bytes);
        memcpy(other.value, h.value, sizeof other.value);
        other.n = N;
        check(&other);
        free(bytes);
        kv_cache_release(&h.kv);
        kv_cache_release(&other.kv);
    }
    form = KV_BF16;
}

/* Of a file with scales each layer and KV head has its own for K and for V; 0 is none. */
static void given_scales_go_where_they_belong(void **state) {
    (void)state;
    float given[LAYERS * HEADS * 2];
    uint16_t k[DIM], v[DIM];
    struct reel_error err;
    struct kv_cache kv;
    for (int i = 0; i < LAYERS * HEADS * 2; i++)
        given[i] = i == 5 ? 0 : (float)(i + 1);
    const struct kv_shape s = { LAYERS, HEADS, DIM, KV_FP8, given };
    good(kv_cache_open(&kv, &s, 32, &err), &err);
    kv_cache_begin(&kv, 0, 1);
    for (int d = 0; d < DIM; d++)
        k[d] = v[d] = bf16_from_f32(d == 9 ? 896.0f : 1.0f);
    for (int i = 0; i < LAYERS * HEADS; i++)
        kv_cache_write(&kv, i / HEADS, i % HEADS, 0, k, v);
    for (int i = 0; i < LAYERS * HEADS * 2; i++)
        assert_true(kv_cache_scales(&kv, i / 2 / HEADS, i / 2 % HEADS, i % 2)[0] ==
                    (i == 5 ? 2 : given[i]));
    kv_cache_release(&kv);
}

#define IN_FORM(test, is)                                                                          \
    static void test##_in_##is(void **state) {                                                     \
        form = kv_form_of(#is);                                                                    \
        test(state);                                                                               \
        form = KV_BF16;                                                                            \
    }
#define IN_8_BITS(test) IN_FORM(test, int8) IN_FORM(test, fp8)
IN_8_BITS(copies_take_memory_once)
IN_8_BITS(what_is_cut_off_is_given_back)
IN_8_BITS(copies_stay_apart)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_take_memory_once),
        cmocka_unit_test(what_is_cut_off_is_given_back),
        cmocka_unit_test(copies_stay_apart),
        cmocka_unit_test(copies_take_memory_once_in_int8),
        cmocka_unit_test(copies_take_memory_once_in_fp8),
        cmocka_unit_test(what_is_cut_off_is_given_back_in_int8),
        cmocka_unit_test(what_is_cut_off_is_given_back_in_fp8),
        cmocka_unit_test(copies_stay_apart_in_int8),
        cmocka_unit_test(copies_stay_apart_in_fp8),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(saved_positions_are_loaded),
        cmocka_unit_test(given_scales_go_where_they_belong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
