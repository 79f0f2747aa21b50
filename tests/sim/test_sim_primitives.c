/* The simulator under small kernels: right ones give right sums under every schedule, wrong ones
 * are caught. */
#include "support/sim_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 4, ROUNDS = 12, SLOT_BYTES = 2048, SHARED = 1024 + 4 * SLOT_BYTES };

struct ring_args {
    unsigned long long tape, words, rows, sums;
    int rounds;
    unsigned epoch, patience;
    unsigned long long abort;
};

static const char *const bulk[] = { "-DG_COPY=2", NULL };

static int schedules(int few, int many) { return getenv("REEL_SOAK") ? many : few; }

/* Tile value: a small integer, so that sums are exact. */
static unsigned short weight(int block, int round, int i) {
    float x = (float)((block * 7 + round * 3 + i % 5) % 8);
    unsigned bits;
    memcpy(&bits, &x, 4);
    return (unsigned short)(bits >> 16);
}

static struct ring_args ring_args(void) {
    struct ring_args a = { .rounds = ROUNDS, .epoch = 0xfffffff5u, .patience = ~0u };
    size_t n = (size_t)BLOCKS * ROUNDS * SLOT_BYTES;
    unsigned short *tape = malloc(n);
    for (int b = 0; b < BLOCKS; b++)
        for (int r = 0; r < ROUNDS; r++)
            for (int i = 0; i < SLOT_BYTES / 2; i++)
                tape[(b * ROUNDS + r) * SLOT_BYTES / 2 + i] = weight(b, r, i);
    a.tape = sim_gpu_alloc(n);
    sim_gpu_put(a.tape, tape, n);
    free(tape);
    a.words = sim_gpu_alloc(BLOCKS * 16);
    a.rows = sim_gpu_alloc(BLOCKS * 4);
    a.sums = sim_gpu_alloc(BLOCKS * ROUNDS * 4);
    a.abort = sim_gpu_alloc(4);
    return a;
}

static void ring_clear(const struct ring_args *a) {
    static const unsigned char zeros[BLOCKS * 16];
    sim_gpu_put(a->words, zeros, BLOCKS * 16);
    sim_gpu_put(a->abort, zeros, 4);
}

/* The number of wrong sums. */
static int ring_check(const struct ring_args *a) {
    float sums[BLOCKS * ROUNDS];
    int wrong = 0;
    sim_gpu_get(sums, a->sums, sizeof sums);
    for (int r = 0; r < ROUNDS; r++) {
        float want = 0;
        for (int b = 0; b < BLOCKS; b++)
            for (int i = 0; i < SLOT_BYTES / 2; i++)
                want += (float)((b * 7 + r * 3 + i % 5) % 8);
        for (int b = 0; b < BLOCKS; b++)
            wrong += !(sums[b * ROUNDS + r] == want);
    }
    return wrong;
}

static void sums_are_right_under_every_schedule(void **state) {
    (void)state;
    struct sim_gpu gpu = sim_gpu_open();
    sim_gpu_compile("ring.cu", bulk);
    struct ring_args a = ring_args();
    void *params[] = { &a };
    for (int seed = 0; seed < schedules(100, 10000); seed++) {
        ring_clear(&a);
        gpu.cuda->settings.seed = (uint64_t)seed;
        if (sim_gpu_launch("ring", BLOCKS, 160, SHARED, params))
            fail_msg("seed %d: %s", seed, gpu.cuda->report);
        if (ring_check(&a)) fail_msg("seed %d: wrong sums", seed);
    }
    sim_gpu_close();
    assert_int_equal(gpu.cuda->leaked.allocations, 0);
}

/* What a broken kernel did in a run: right sums, wrong ones, or a report. */
enum outcome { RIGHT, WRONG, REPORTED };

static enum outcome outcome_of(struct sim_gpu *gpu, const struct ring_args *a, int seed) {
    struct ring_args copy = *a;
    void *params[] = { &copy };
    ring_clear(a);
    gpu->cuda->settings.seed = (uint64_t)seed;
    if (sim_gpu_launch("ring", BLOCKS, 160, SHARED, params)) return REPORTED;
    return ring_check(a) ? WRONG : RIGHT;
}

/* Runs a patched kernel until it goes wrong, from a fresh context each time. */
static void caught(const char *what, const char *from, const char *to, const char *report) {
    int tries = schedules(40, 400), seen = 0;
    for (int seed = 0; seed < tries && !seen; seed++) {
        struct sim_gpu gpu = sim_gpu_open();
        const struct fake_patch patch = { "ring.cu", from, to, false };
        gpu.nvrtc->patches = &patch, gpu.nvrtc->n_patches = 1;
        gpu.cuda->settings.idle_limit = 200;
        sim_gpu_compile("ring.cu", bulk);
        struct ring_args a = ring_args();
        enum outcome outcome = outcome_of(&gpu, &a, seed);
        seen = report ? outcome == REPORTED && strstr(gpu.cuda->report, report) : outcome != RIGHT;
        if (seen)
            printf("%s: schedule %d %s\n", what, seed,
                   outcome == WRONG ? "gives wrong sums" : "is refused");
        sim_gpu_close();
    }
    if (!seen) fail_msg("%s: not seen in %d schedules", what, tries);
}

static void missing_orders_are_caught(void **state) {
    (void)state;
    caught("no fence before the word", "fence_gpu();\n                word_store", "word_store",
           NULL);
    caught("no fence after the word", "fence_gpu();\n            float v", "float v", NULL);
    caught("a word without its epoch", "warp_all(word_is(w, epoch))", "warp_all(w != 0)", NULL);
    caught("rows overwritten before all have read", "lane >= block_count() || word_is(w, epoch)",
           "1", NULL);
    caught(
        "a slot given back before it is read",
        "struct quad t = *(const struct quad *)(ring + slot * SLOT_BYTES + warp * 512 + lane * "
        "16);\n"
        "        warp_sync();\n        if (lane == 0) mbar_arrive_answered(empty + slot * 8, t.x & "
        "a->patience >> 31);",
        "if (lane == 0) mbar_arrive_answered(empty + slot * 8, 0);\n"
        "        struct quad t = *(const struct quad *)(ring + slot * SLOT_BYTES + warp * 512 + "
        "lane * 16);",
        NULL);
    caught("a slot filled before it is free", "(u32)(i / SLOTS + 1) & 1, a)) break",
           "(u32)(i / SLOTS) & 1, a)) break", NULL);
    caught("weights read before they have come",
           "if (lane == 0) good = wait_full(full + slot * 8, (u32)(i / SLOTS) & 1, a);", ";", NULL);
    caught("sums read without the barrier", "barrier_wait(PARTS", "if (warp) barrier_arrive(PARTS",
           NULL);
}

static void misuse_is_reported(void **state) {
    (void)state;
    caught("a barrier short of threads", "barrier_wait(READY, CONSUMERS * 32)",
           "barrier_wait(READY, CONSUMERS * 32 + 32)", "deadlock");
    caught("two counts for one barrier", "barrier_wait(READY, CONSUMERS * 32)",
           "barrier_wait(READY, warp ? 128 : 96)", "barrier 2");
    caught("a shuffle that not all lanes reach", "if (!shuffle((u32)good, 0)) return;",
           "if (lane && !shuffle((u32)good, 0)) return;", "this lane is at");
    caught("a load outside of memory", "plain_load32(a->rows + lane)",
           "plain_load32(a->rows + 100 + lane)", "outside of every allocation");
    caught("copies left under way", "produce(&a, full, empty, smem_of(slots));\n    else\n",
           "{ if (thread_index() % 32 == 0) ring_fill(smem_of(slots), a.tape, 512, full); }\n    "
           "else if (0)\n",
           "copies to its shared memory are under way");
    caught(
        "a slot written to by stores", "        if (lane == 0) mbar_arrive_answered(empty",
        "        if (lane == 0) *(u32 *)(ring + slot * SLOT_BYTES) = 0, mbar_arrive_answered(empty",
        "without fence_slot");
    caught("an arrival that may pass loads",
           "mbar_arrive_answered(empty + slot * 8, t.x & a->patience >> 31)",
           "mbar_arrive(empty + slot * 8)", "while loads of warp");
    caught("barriers that copies do not know", "mbar_init_done();", "",
           "of which copies do not know");
    caught("a barrier that was not made", "mbar_init(&s->full[i], FILL_LANES);", ";",
           "not initialised");
}

static void a_block_that_never_starts_ends_in_patience(void **state) {
    (void)state;
    struct sim_gpu gpu = sim_gpu_open();
    sim_gpu_compile("ring.cu", bulk);
    struct ring_args a = ring_args();
    unsigned aborted;
    void *params[] = { &a };
    a.patience = 2000;
    gpu.cuda->settings.missing_block = 2;
    gpu.cuda->settings.idle_limit = 0;
    ring_clear(&a);
    if (sim_gpu_launch("ring", BLOCKS, 160, SHARED, params)) fail_msg("%s", gpu.cuda->report);
    sim_gpu_get(&aborted, a.abort, 4);
    assert_int_equal(aborted, 1);
    sim_gpu_close();
}

static void too_large_launches_are_refused(void **state) {
    (void)state;
    struct sim_gpu gpu = sim_gpu_open();
    sim_gpu_compile("ring.cu", bulk);
    struct ring_args a = ring_args();
    void *params[] = { &a };
    gpu.cuda->gpu.n_sms = 2;
    assert_int_equal(sim_gpu_launch("ring", 3, 160, 200000, params), 720);
    sim_gpu_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_right_under_every_schedule),
        cmocka_unit_test(missing_orders_are_caught),
        cmocka_unit_test(misuse_is_reported),
        cmocka_unit_test(a_block_that_never_starts_ends_in_patience),
        cmocka_unit_test(too_large_launches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
