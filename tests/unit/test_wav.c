/* The header of WAV files: what is read, and one bad file for every rule. */
#include "audio/wav.h"

#include "../support/wav_bytes.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct opened {
    struct guarded bytes; /* end at an unreadable page */
    struct byte_stream s;
    struct wav wav;
    struct reel_error err;
    enum reel_status status;
};

static void open_bytes(struct opened *o, const struct bytes *b) {
    *o = (struct opened){ .bytes = guarded_copy(b->data, b->n) };
    unsigned char head[WAV_HEAD];
    size_t n = 0;
    byte_stream_memory(&o->s, "mem.wav", o->bytes.bytes, o->bytes.n);
    assert_int_equal(byte_stream_full(&o->s, head, sizeof head, &n, NULL), REEL_OK);
    assert_int_equal(n, sizeof head);
    assert_true(wav_begins(head));
    o->status = wav_header(&o->wav, &o->s, head, &o->err);
}

/* Opens what must be right, and forgets it. */
static struct wav read_header(struct bytes *b, uint64_t *at) {
    struct opened o;
    open_bytes(&o, b);
    if (o.status != REEL_OK) fail_msg("%s", o.err.text);
    if (at) *at = o.s.at;
    guarded_release(&o.bytes);
    bytes_release(b);
    return o.wav;
}

/* Opens what must be wrong. */
static void expect(struct bytes *b, enum reel_status status, const char *says) {
    struct opened o;
    open_bytes(&o, b);
    if (o.status != status || !strstr(o.err.text, says) || !strstr(o.err.text, "mem.wav: "))
        fail_msg("status %d, \"%s\"; expected %d with \"%s\"", o.status, o.err.text, status, says);
    guarded_release(&o.bytes);
    bytes_release(b);
}

static const struct kind {
    int tag, bits;
    enum audio_encoding encoding;
} kinds[] = {
    { WAV_TAG_PCM, 8, AUDIO_U8 },       { WAV_TAG_PCM, 16, AUDIO_S16LE },
    { WAV_TAG_PCM, 24, AUDIO_S24LE },   { WAV_TAG_PCM, 32, AUDIO_S32LE },
    { WAV_TAG_FLOAT, 32, AUDIO_F32LE }, { WAV_TAG_FLOAT, 64, AUDIO_F64LE },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void every_encoding_is_found_plain_and_extensible(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_KINDS; i++) {
        const struct kind *k = &kinds[i / 2];
        struct bytes b = { 0 };
        uint64_t at = 0;
        wav_bytes_head(&b, "RIFF", 100);
        if (i & 1)
            wav_bytes_extensible(&b, k->tag, 3, 44100, k->bits, k->bits);
        else
            wav_bytes_format(&b, k->tag, 3, 44100, k->bits);
        wav_bytes_chunk(&b, "data", 24);
        size_t begin = b.n;
        bytes_zeros(&b, 24);
        struct wav wav = read_header(&b, &at);
        assert_int_equal(wav.format.encoding, k->encoding);
        assert_int_equal(wav.format.rate, 44100);
        assert_int_equal(wav.format.channels, 3);
        assert_int_equal(wav.data_bytes, 24);
        assert_int_equal(at, begin);
    }
}

static void fewer_valid_bits_than_stored_ones_are_allowed(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_extensible(&b, WAV_TAG_PCM, 1, 16000, 24, 20);
    wav_bytes_chunk(&b, "data", 6);
    bytes_zeros(&b, 6);
    assert_int_equal(read_header(&b, NULL).format.encoding, AUDIO_S24LE);
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_extensible(&b, WAV_TAG_PCM, 1, 16000, 16, 17);
    wav_bytes_chunk(&b, "data", 0);
    expect(&b, REEL_E_FORMAT, "'fmt ' chunk: 17 valid bits in samples of 16");
}

static void other_chunks_are_skipped_with_their_padding(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 200);
    wav_bytes_chunk(&b, "LIST", 5);
    bytes_add(&b, "INFOx", 6); /* with a padding byte */
    wav_bytes_chunk(&b, "JUNK", 0);
    wav_bytes_chunk(&b, "fmt ", 19); /* longer than anything known, and odd */
    bytes_u16(&b, WAV_TAG_PCM);
    bytes_u16(&b, 1);
    bytes_u32(&b, 8000);
    bytes_u32(&b, 16000);
    bytes_u16(&b, 2);
    bytes_u16(&b, 16);
    bytes_zeros(&b, 4);
    wav_bytes_chunk(&b, "fact", 4);
    bytes_u32(&b, 2);
    wav_bytes_chunk(&b, "data", 4);
    bytes_zeros(&b, 4);
    struct wav wav = read_header(&b, NULL);
    assert_int_equal(wav.format.rate, 8000);
    assert_int_equal(wav.data_bytes, 4);
}

static void wide_header(struct bytes *b, const char *id, uint64_t data_bytes) {
    wav_bytes_head(b, id, UINT32_MAX);
    wav_bytes_chunk(b, "ds64", 28);
    bytes_u64(b, data_bytes + 72);
    bytes_u64(b, data_bytes);
    bytes_u64(b, data_bytes / 2);
    bytes_u32(b, 0);
    wav_bytes_format(b, WAV_TAG_PCM, 1, 16000, 16);
}

static void a_64_bit_header_tells_more_than_4_gib(void **state) {
    (void)state;
    static const char *const ids[] = { "RF64", "BW64" };
    for (int i = 0; i < 2; i++) {
        struct bytes b = { 0 };
        wide_header(&b, ids[i], 6000000000u);
        wav_bytes_chunk(&b, "data", UINT32_MAX);
        assert_int_equal(read_header(&b, NULL).data_bytes, 6000000000u);
        wide_header(&b, ids[i], 6000000000u);
        wav_bytes_chunk(&b, "data", 10); /* its own size stands when it says one */
        assert_int_equal(read_header(&b, NULL).data_bytes, 10);
    }
}

static uint64_t size_read(const char *id, uint32_t riff, uint32_t size, size_t there) {
    struct bytes b = { 0 };
    wav_bytes_head(&b, id, riff);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, 16000, 16);
    wav_bytes_chunk(&b, "data", size);
    bytes_zeros(&b, there);
    return read_header(&b, NULL).data_bytes;
}

static void a_size_that_was_left_open_means_until_the_end(void **state) {
    (void)state;
    static const uint32_t open_sizes[] = { 0,           0xffffffffu, 0x7fffffffu,     0x80000000u,
                                           0x7ffff000u, 0xfffff000u, 0xffffffffu - 36 };
    for (size_t i = 0; i < sizeof open_sizes / sizeof *open_sizes; i++)
        assert_true(size_read("RIFF", open_sizes[i], open_sizes[i], 10) == WAV_UNTIL_END);
    /* A header written before the samples and never again. */
    assert_true(size_read("RIFF", 36, 0, 10) == WAV_UNTIL_END);
    assert_int_equal(size_read("RIFF", 46, 10, 10), 10);
    assert_int_equal(size_read("RIFF", 0x10000000u, 0x0ffffff0u, 10), 0x0ffffff0u);
}

static void an_empty_data_chunk_before_others_is_empty(void **state) {
    (void)state;
    assert_int_equal(size_read("RIFF", 36 + 12, 0, 12), 0);
}

static void a_header_that_ends_early_is_refused_wherever_it_ends(void **state) {
    (void)state;
    struct bytes whole = { 0 };
    wide_header(&whole, "RF64", 6000000000u);
    wav_bytes_chunk(&whole, "LIST", 4);
    bytes_zeros(&whole, 4);
    wav_bytes_chunk(&whole, "data", UINT32_MAX);
    for (size_t n = WAV_HEAD; n < whole.n; n++) {
        struct bytes b = { 0 };
        bytes_add(&b, whole.data, n);
        expect(&b, REEL_E_FORMAT, "ends ");
    }
    bytes_release(&whole);
}

static void other_files_in_riff_clothing_are_named(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_add(&b, "RIFF\x20\0\0\0AVI LIST", 16);
    expect(&b, REEL_E_FORMAT, "a RIFF file of type 'AVI ', 'WAVE' is read");
    bytes_add(&b, "RIFX\0\0\0\x20WAVEfmt ", 16);
    expect(&b, REEL_E_UNSUPPORTED, "big-endian WAV file (RIFX)");
}

static void chunks_out_of_order_are_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_chunk(&b, "data", 4);
    bytes_zeros(&b, 4);
    expect(&b, REEL_E_FORMAT, "the 'data' chunk comes before any 'fmt ' chunk");
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, 16000, 16);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, 16000, 16);
    expect(&b, REEL_E_FORMAT, "a second 'fmt ' chunk");
    wav_bytes_head(&b, "RF64", UINT32_MAX);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, 16000, 16);
    wav_bytes_chunk(&b, "data", UINT32_MAX);
    expect(&b, REEL_E_FORMAT, "without a 'ds64' chunk");
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, 16000, 16);
    expect(&b, REEL_E_FORMAT, "ends after 36 bytes without a 'data' chunk");
    wav_bytes_head(&b, "RIFF", 4);
    expect(&b, REEL_E_FORMAT, "ends after 12 bytes without a 'fmt ' chunk");
}

static void short_chunks_are_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_chunk(&b, "fmt ", 14);
    bytes_zeros(&b, 14);
    expect(&b, REEL_E_FORMAT, "'fmt ' chunk of 14 bytes, at least 16 are needed");
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_format(&b, WAV_TAG_EXTENSIBLE, 1, 16000, 16);
    expect(&b, REEL_E_FORMAT, "extensible 'fmt ' chunk of 16 bytes, at least 40 are needed");
    wav_bytes_head(&b, "RF64", UINT32_MAX);
    wav_bytes_chunk(&b, "ds64", 23);
    bytes_zeros(&b, 24);
    expect(&b, REEL_E_FORMAT, "'ds64' chunk of 23 bytes, at least 24 are needed");
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_chunk(&b, "LIST", UINT32_MAX);
    expect(&b, REEL_E_FORMAT, "ends inside the 'LIST' chunk, after 20 bytes");
}

static void expect_format(int tag, int channels, int rate, int bits, enum reel_status status,
                          const char *says) {
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_format(&b, tag, channels, rate, bits);
    wav_bytes_chunk(&b, "data", 0);
    expect(&b, status, says);
}

static void what_is_not_read_is_refused_with_what_is(void **state) {
    (void)state;
    const enum reel_status unsupported = REEL_E_UNSUPPORTED;
    expect_format(7, 1, 8000, 8, unsupported,
                  "'fmt ' chunk: encoding 0x0007 (mu-law), PCM (1) and IEEE float (3) are read");
    expect_format(0x1234, 1, 8000, 8, unsupported, "encoding 0x1234 (unknown)");
    expect_format(WAV_TAG_PCM, 1, 16000, 12, unsupported, "PCM of 12 bits, 8, 16, 24 and 32");
    expect_format(WAV_TAG_PCM, 1, 16000, 64, unsupported, "PCM of 64 bits");
    expect_format(WAV_TAG_FLOAT, 1, 16000, 16, unsupported, "IEEE float of 16 bits, 32 and 64");
    expect_format(WAV_TAG_PCM, 1, 7999, 16, unsupported, "7999 Hz, 8000 to 192000 are read");
    expect_format(WAV_TAG_PCM, 1, 192001, 16, unsupported, "192001 Hz");
    expect_format(WAV_TAG_PCM, 1, 0, 16, unsupported, "0 Hz");
    expect_format(WAV_TAG_PCM, 65, 16000, 16, unsupported, "65 channels, 1 to 64 are read");
    expect_format(WAV_TAG_PCM, 0, 16000, 16, REEL_E_FORMAT, "0 channels");
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_extensible(&b, WAV_TAG_PCM, 1, 16000, 16, 16);
    b.data[b.n - 1] ^= 1;
    expect(&b, unsupported, "a sub-format that is neither PCM nor IEEE float");
}

static void frames_of_another_size_than_their_samples_are_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 100);
    wav_bytes_format(&b, WAV_TAG_PCM, 2, 16000, 16);
    b.data[b.n - 4] = 2;
    expect(&b, REEL_E_FORMAT, "frames of 2 bytes, 2 channels of 16 bits need 4");
}

static void *write_slowly(void *user) {
    struct bytes *b = ((void **)user)[0];
    int fd = *(int *)((void **)user)[1];
    for (size_t i = 0; i < b->n; i++)
        if (write(fd, b->data + i, 1) != 1) abort();
    close(fd);
    return NULL;
}

static void a_header_is_read_from_a_pipe_byte_by_byte(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", UINT32_MAX);
    wav_bytes_chunk(&b, "JUNK", 9001);
    bytes_zeros(&b, 9002);
    wav_bytes_format(&b, WAV_TAG_FLOAT, 2, 48000, 32);
    wav_bytes_chunk(&b, "data", UINT32_MAX);
    size_t begin = b.n;
    bytes_add(&b, "rest", 4);
    int ends[2];
    char path[40];
    pthread_t writer;
    assert_int_equal(pipe(ends), 0);
    void *job[] = { &b, &ends[1] };
    assert_int_equal(pthread_create(&writer, NULL, write_slowly, job), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);

    struct byte_stream s;
    struct wav wav;
    unsigned char head[WAV_HEAD], rest[8];
    size_t n = 0;
    assert_int_equal(byte_stream_open(&s, path, NULL), REEL_OK);
    assert_false(byte_stream_seekable(&s));
    assert_int_equal(byte_stream_full(&s, head, sizeof head, &n, NULL), REEL_OK);
    assert_int_equal(wav_header(&wav, &s, head, NULL), REEL_OK);
    assert_true(wav.data_bytes == WAV_UNTIL_END);
    assert_int_equal(s.at, begin);
    assert_int_equal(byte_stream_full(&s, rest, sizeof rest, &n, NULL), REEL_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(rest, "rest", 4);
    pthread_join(writer, NULL);
    byte_stream_close(&s);
    close(ends[0]);
    bytes_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_encoding_is_found_plain_and_extensible),
        cmocka_unit_test(fewer_valid_bits_than_stored_ones_are_allowed),
        cmocka_unit_test(other_chunks_are_skipped_with_their_padding),
        cmocka_unit_test(a_64_bit_header_tells_more_than_4_gib),
        cmocka_unit_test(a_size_that_was_left_open_means_until_the_end),
        cmocka_unit_test(an_empty_data_chunk_before_others_is_empty),
        cmocka_unit_test(a_header_that_ends_early_is_refused_wherever_it_ends),
        cmocka_unit_test(other_files_in_riff_clothing_are_named),
        cmocka_unit_test(chunks_out_of_order_are_refused),
        cmocka_unit_test(short_chunks_are_refused),
        cmocka_unit_test(what_is_not_read_is_refused_with_what_is),
        cmocka_unit_test(frames_of_another_size_than_their_samples_are_refused),
        cmocka_unit_test(a_header_is_read_from_a_pipe_byte_by_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
