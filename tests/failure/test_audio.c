/* Reading audio when memory or disks fail. What libsoxr and libsndfile allocate inside themselves
 * is not seen. */
#include "audio/audio_source.h"

#include "base/file_map.h"
#include "support/faults.h"
#include "support/wav_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { FRAMES = 30000 };

static char path[] = "/tmp/reel-audio-faults-XXXXXX";
static float want[2 * FRAMES]; /* what an undisturbed reading gives */
static size_t n_want;

static int make_file(void **state) {
    (void)state;
    faults_install();
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state) {
    (void)state;
    return unlink(path);
}

static void write_wav(int rate) {
    struct bytes b = { 0 };
    int16_t samples[FRAMES];
    for (int i = 0; i < FRAMES; i++)
        samples[i] = (int16_t)(i * 37);
    wav_bytes_head(&b, "RIFF", 0);
    wav_bytes_chunk(&b, "LIST", 1000);
    bytes_zeros(&b, 1000);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, rate, 16);
    wav_bytes_chunk(&b, "data", sizeof samples);
    bytes_add(&b, samples, sizeof samples);
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    bytes_release(&b);
}

/* The first call stores what was read, the others compare. */
static enum reel_status read_all(void *context, struct reel_error *err) {
    struct audio_source *s = NULL;
    size_t total = 0, n = 1;
    (void)context;
    enum reel_status status = audio_source_open(&s, path, NULL, err);
    while (status == REEL_OK && n > 0) {
        float out[5000];
        status = audio_source_read(s, out, 5000, &n, err);
        if (n_want && n) assert_memory_equal(out, want + total, n * sizeof *out);
        if (!n_want) memcpy(want + total, out, n * sizeof *out);
        total += n;
    }
    if (status == REEL_OK && n_want) assert_int_equal(total, n_want);
    if (status == REEL_OK) n_want = total;
    audio_source_close(s);
    return status;
}

static void a_wav_file_is_read_right_or_not_at_all(void **state) {
    (void)state;
    static const int rates[] = { 16000, 44100 };
    for (int i = 0; i < 2; i++) {
        struct faults_sweep sweep = { .name = "reading a WAV file", .run = read_all };
        write_wav(rates[i]);
        n_want = 0;
        assert_int_equal(read_all(NULL, NULL), REEL_OK);
        assert_true(n_want > 0);
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
        faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
        faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
    }
}

static void short_and_interrupted_reads_change_nothing(void **state) {
    (void)state;
    static const enum fault_mode modes[] = { FAULT_SHORT, FAULT_INTERRUPT };
    write_wav(44100);
    n_want = 0;
    assert_int_equal(read_all(NULL, NULL), REEL_OK);
    for (int i = 0; i < 2; i++) {
        for (long n = 1; n < 20; n++) {
            struct reel_error err = { 0 };
            faults_arm(FAULT_IO, modes[i], n);
            enum reel_status status = read_all(NULL, &err);
            faults_disarm();
            if (status != REEL_OK) fail_msg("mode %d, call %ld: %s", modes[i], n, err.text);
        }
    }
}

/* Text, so that libsndfile looks and refuses: its reads are ours. */
static void a_foreign_file_that_cannot_be_read_is_no_wrong_format(void **state) {
    (void)state;
    static const char text[] = "fLaC and then nothing of the kind, at some length";
    assert_int_equal(file_write_atomic(path, text, sizeof text, NULL), REEL_OK);
    struct reel_error err = { 0 };
    n_want = 0;
    enum reel_status plain = read_all(NULL, &err);
    if (plain == REEL_E_UNSUPPORTED) skip(); /* no libsndfile */
    assert_int_equal(plain, REEL_E_FORMAT);
    faults_arm(FAULT_IO, FAULT_ONCE, 0);
    read_all(NULL, &err);
    faults_disarm();
    long n_calls = faults_count(FAULT_IO);
    assert_true(n_calls >= 3);
    for (long n = 1; n <= n_calls; n++) {
        faults_arm(FAULT_IO, FAULT_ONCE, n);
        enum reel_status status = read_all(NULL, &err);
        faults_disarm();
        if (status != REEL_E_IO) fail_msg("call %ld: status %d, %s", n, status, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wav_file_is_read_right_or_not_at_all),
        cmocka_unit_test(short_and_interrupted_reads_change_nothing),
        cmocka_unit_test(a_foreign_file_that_cannot_be_read_is_no_wrong_format),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
