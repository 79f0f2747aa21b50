#include "audio/wav.h"

#include "base/checked.h"

#include <string.h>

enum {
    TAG_PCM = 1,
    TAG_FLOAT = 3,
    TAG_EXTENSIBLE = 0xfffe,
    FMT_BYTES = 16,        /* of the fields that every kind has */
    EXTENSIBLE_BYTES = 40, /* with the sub-format */
    DS64_BYTES = 24,       /* RIFF's size, the data's size, the number of frames */
};

/* What the chunks so far have said. */
struct header {
    struct byte_stream *s;
    bool wide;                   /* RF64: sizes are in 'ds64' */
    uint64_t riff_bytes;         /* from byte 8 on */
    uint64_t wide_data;          /* by 'ds64' */
    bool seen_wide, seen_format; /* chunks met */
    struct audio_format format;
};

static uint32_t load_u16(const unsigned char *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t load_u32(const unsigned char *p) { return load_u16(p) | load_u16(p + 2) << 16; }
static uint64_t load_u64(const unsigned char *p) {
    return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

static bool is(const unsigned char *id, const char *name) { return memcmp(id, name, 4) == 0; }

bool wav_begins(const unsigned char *four) {
    return is(four, "RIFF") || is(four, "RF64") || is(four, "BW64") || is(four, "RIFX");
}

static enum reel_status ends_inside(const struct header *h, const char *chunk,
                                    struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: ends inside the '%s' chunk, after %llu bytes",
                   h->s->name, chunk, (unsigned long long)h->s->at);
}

/* The first `want` bytes of a chunk of n; the stream stands behind it and its padding after. */
static enum reel_status read_chunk(struct header *h, const char *chunk, uint32_t n, size_t want,
                                   unsigned char *out, struct reel_error *err) {
    size_t got = 0;
    bool whole = false;
    if (n < want)
        return err_set(err, REEL_E_FORMAT, "%s: '%s' chunk of %u bytes, at least %zu are needed",
                       h->s->name, chunk, n, want);
    enum reel_status status = byte_stream_full(h->s, out, want, &got, err);
    if (status != REEL_OK) return status;
    if (got == want) status = byte_stream_skip(h->s, (uint64_t)n - want + (n & 1), &whole, err);
    if (status == REEL_OK && !whole) status = ends_inside(h, chunk, err);
    return status;
}

static const char *tag_name(uint32_t tag) {
    static const struct {
        uint32_t tag;
        const char *name;
    } names[] = {
        { 0x02, "Microsoft ADPCM" }, { 0x06, "A-law" },        { 0x07, "mu-law" },
        { 0x11, "IMA ADPCM" },       { 0x31, "GSM 6.10" },     { 0x40, "G.721" },
        { 0x50, "MPEG layer 2" },    { 0x55, "MPEG layer 3" }, { 0xff, "AAC" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].tag == tag) return names[i].name;
    return "unknown";
}

/* The tag inside WAVE_FORMAT_EXTENSIBLE: the first two bytes of a GUID whose rest is fixed. */
static enum reel_status read_sub_format(const struct header *h, const unsigned char *fmt,
                                        uint32_t n, uint32_t *tag, struct reel_error *err) {
    static const unsigned char rest[14] = { 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80,
                                            0x00, 0x00, 0xaa, 0x00, 0x38, 0x9b, 0x71 };
    if (n < EXTENSIBLE_BYTES)
        return err_set(err, REEL_E_FORMAT,
                       "%s: extensible 'fmt ' chunk of %u bytes, at least %d are needed",
                       h->s->name, n, EXTENSIBLE_BYTES);
    uint32_t bits = load_u16(fmt + 14), valid = load_u16(fmt + 18);
    if (valid > bits)
        return err_set(err, REEL_E_FORMAT,
                       "%s: 'fmt ' chunk: %u valid bits in samples of %u, at most %u are possible",
                       h->s->name, valid, bits, bits);
    if (memcmp(fmt + 26, rest, sizeof rest) != 0)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: 'fmt ' chunk: a sub-format that is neither PCM nor IEEE float",
                       h->s->name);
    *tag = load_u16(fmt + 24);
    return REEL_OK;
}

static bool find_encoding(uint32_t tag, uint32_t bits, enum audio_encoding *encoding) {
    static const struct {
        uint32_t tag, bits;
        enum audio_encoding encoding;
    } known[] = {
        { TAG_PCM, 8, AUDIO_U8 },       { TAG_PCM, 16, AUDIO_S16LE },
        { TAG_PCM, 24, AUDIO_S24LE },   { TAG_PCM, 32, AUDIO_S32LE },
        { TAG_FLOAT, 32, AUDIO_F32LE }, { TAG_FLOAT, 64, AUDIO_F64LE },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].tag != tag || known[i].bits != bits) continue;
        *encoding = known[i].encoding;
        return true;
    }
    return false;
}

static enum reel_status read_encoding(struct header *h, uint32_t tag, uint32_t bits,
                                      struct reel_error *err) {
    if (tag != TAG_PCM && tag != TAG_FLOAT)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: 'fmt ' chunk: encoding 0x%04x (%s), PCM (1) and IEEE float (3) are "
                       "read",
                       h->s->name, tag, tag_name(tag));
    if (!find_encoding(tag, bits, &h->format.encoding))
        return err_set(err, REEL_E_UNSUPPORTED, "%s: 'fmt ' chunk: %s of %u bits, %s are read",
                       h->s->name, tag == TAG_PCM ? "PCM" : "IEEE float", bits,
                       tag == TAG_PCM ? "8, 16, 24 and 32" : "32 and 64");
    return REEL_OK;
}

static enum reel_status check_numbers(struct header *h, const unsigned char *fmt,
                                      struct reel_error *err) {
    uint32_t channels = load_u16(fmt + 2), rate = load_u32(fmt + 4), block = load_u16(fmt + 12);
    size_t frame_bytes = channels * audio_sample_bytes(h->format.encoding);
    if (channels == 0)
        return err_set(err, REEL_E_FORMAT, "%s: 'fmt ' chunk: 0 channels, 1 to %d are read",
                       h->s->name, AUDIO_MOST_CHANNELS);
    if (channels > AUDIO_MOST_CHANNELS)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: 'fmt ' chunk: %u channels, 1 to %d are read",
                       h->s->name, channels, AUDIO_MOST_CHANNELS);
    if (rate < AUDIO_LEAST_RATE || rate > AUDIO_MOST_RATE)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: 'fmt ' chunk: %u Hz, %d to %d are read",
                       h->s->name, rate, AUDIO_LEAST_RATE, AUDIO_MOST_RATE);
    if (block != frame_bytes)
        return err_set(err, REEL_E_FORMAT,
                       "%s: 'fmt ' chunk: frames of %u bytes, %u channels of %u bits need %zu",
                       h->s->name, block, channels, load_u16(fmt + 14), frame_bytes);
    h->format.channels = (int)channels;
    h->format.rate = (int)rate;
    return REEL_OK;
}

static enum reel_status read_format(struct header *h, uint32_t n, struct reel_error *err) {
    unsigned char fmt[EXTENSIBLE_BYTES] = { 0 };
    if (h->seen_format)
        return err_set(err, REEL_E_FORMAT, "%s: a second 'fmt ' chunk, one is allowed", h->s->name);
    size_t want = n >= EXTENSIBLE_BYTES ? EXTENSIBLE_BYTES : FMT_BYTES;
    enum reel_status status = read_chunk(h, "fmt ", n, want, fmt, err);
    if (status != REEL_OK) return status;
    uint32_t tag = load_u16(fmt);
    if (tag == TAG_EXTENSIBLE) status = read_sub_format(h, fmt, n, &tag, err);
    if (status == REEL_OK) status = read_encoding(h, tag, load_u16(fmt + 14), err);
    if (status == REEL_OK) status = check_numbers(h, fmt, err);
    h->seen_format = status == REEL_OK;
    return status;
}

static enum reel_status read_wide_sizes(struct header *h, uint32_t n, struct reel_error *err) {
    unsigned char ds64[DS64_BYTES] = { 0 };
    enum reel_status status = read_chunk(h, "ds64", n, sizeof ds64, ds64, err);
    if (status != REEL_OK) return status;
    h->riff_bytes = load_u64(ds64);
    h->wide_data = load_u64(ds64 + 8);
    h->seen_wide = true;
    return REEL_OK;
}

/* Sizes that programs leave in the header when they cannot come back to it. */
static bool left_open(uint64_t n) {
    return (n >= 0x7fff0000u && n <= 0x80000000u) || (n >= 0xffff0000u && n <= 0xffffffffu) ||
           n == UINT64_MAX;
}

/* The stream stands at the first sample. */
static uint64_t data_bytes(const struct header *h, uint32_t size) {
    const struct byte_stream *s = h->s;
    uint64_t n = h->wide && size == UINT32_MAX ? h->wide_data : size;
    bool there = byte_stream_seekable(s) && range_ok(s->at, n, (uint64_t)s->size);
    if (n == 0) {
        /* Nothing, if other chunks are announced behind it; else a size that was never filled in.
         */
        bool more = !left_open(h->riff_bytes) && h->riff_bytes > s->at - 8;
        return more ? 0 : WAV_UNTIL_END;
    }
    return left_open(n) && !there ? WAV_UNTIL_END : n;
}

static enum reel_status check_data(const struct header *h, struct reel_error *err) {
    if (!h->seen_format)
        return err_set(err, REEL_E_FORMAT, "%s: the 'data' chunk comes before any 'fmt ' chunk",
                       h->s->name);
    if (h->wide && !h->seen_wide)
        return err_set(err, REEL_E_FORMAT, "%s: a 64-bit WAV file without a 'ds64' chunk",
                       h->s->name);
    return REEL_OK;
}

static enum reel_status skip_chunk(struct header *h, const unsigned char *id, uint32_t n,
                                   struct reel_error *err) {
    bool whole = false;
    enum reel_status status = byte_stream_skip(h->s, (uint64_t)n + (n & 1), &whole, err);
    if (status != REEL_OK || whole) return status;
    char name[5] = { 0 };
    memcpy(name, id, 4);
    return ends_inside(h, name, err);
}

/* One chunk; *at_data when it is the samples. */
static enum reel_status next_chunk(struct header *h, struct wav *wav, bool *at_data,
                                   struct reel_error *err) {
    unsigned char head[8] = { 0 };
    size_t got = 0;
    enum reel_status status = byte_stream_full(h->s, head, sizeof head, &got, err);
    if (status != REEL_OK) return status;
    if (got < sizeof head)
        return err_set(err, REEL_E_FORMAT, "%s: ends after %llu bytes without a '%s' chunk",
                       h->s->name, (unsigned long long)h->s->at, h->seen_format ? "data" : "fmt ");
    uint32_t n = load_u32(head + 4);
    if (is(head, "fmt ")) return read_format(h, n, err);
    if (is(head, "ds64") && h->wide) return read_wide_sizes(h, n, err);
    if (!is(head, "data")) return skip_chunk(h, head, n, err);
    status = check_data(h, err);
    if (status != REEL_OK) return status;
    *wav = (struct wav){ .format = h->format, .data_bytes = data_bytes(h, n) };
    *at_data = true;
    return REEL_OK;
}

enum reel_status wav_header(struct wav *wav, struct byte_stream *s,
                            const unsigned char head[WAV_HEAD], struct reel_error *err) {
    struct header h = { .s = s, .riff_bytes = load_u32(head + 4) };
    bool at_data = false;
    *wav = (struct wav){ 0 };
    if (is(head, "RIFX"))
        return err_set(err, REEL_E_UNSUPPORTED, "%s: a big-endian WAV file (RIFX), RIFF is read",
                       s->name);
    if (!is(head + 8, "WAVE"))
        return err_set(err, REEL_E_FORMAT, "%s: a RIFF file of type '%.4s', 'WAVE' is read",
                       s->name, (const char *)head + 8);
    h.wide = !is(head, "RIFF");
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && !at_data)
        status = next_chunk(&h, wav, &at_data, err);
    return status;
}
