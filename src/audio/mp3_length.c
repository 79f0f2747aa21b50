/* ISO/IEC 11172-3 and 13818-3, and what mp3-tech.org says of the Xing header. */
#include "audio/mp3_length.h"

#include "base/memory.h"

#include <string.h>

enum {
    HEAD = 4,
    ROOM = 1 << 16,
    XING_LEAST = 48, /* bytes of a first frame that hold a Xing header's count, at most */
    ID3_HEAD = 10,
};

/* A window of the file that moves on. */
struct window {
    struct byte_stream *s;
    unsigned char *bytes; /* [ROOM] */
    size_t at, n;
    uint64_t skip; /* bytes to leave out before the next are read */
};

struct frame {
    size_t bytes;
    int samples, rate;
    int side; /* bytes between the header and a Xing header */
    int kind; /* version and layer */
};

/* At least n bytes from w->at on, where the file has them. */
static enum reel_status fill(struct window *w, size_t n, struct reel_error *err) {
    if (w->n - w->at >= n && w->skip == 0) return REEL_OK;
    size_t got = 0;
    bool whole = true;
    enum reel_status status = REEL_OK;
    memmove(w->bytes, w->bytes + w->at, w->n - w->at);
    w->n -= w->at;
    w->at = 0;
    if (w->skip > 0) status = byte_stream_skip(w->s, w->skip, &whole, err);
    w->skip = 0;
    if (status == REEL_OK && whole)
        status = byte_stream_full(w->s, w->bytes + w->n, ROOM - w->n, &got, err);
    w->n += got;
    return status;
}

static void pass(struct window *w, size_t n) {
    const size_t left = w->n - w->at;
    if (n <= left) {
        w->at += n;
    } else {
        w->skip += n - left;
        w->at = w->n;
    }
}

/* False for what begins no frame, and for one of a bit rate of its own, whose end nobody knows. */
static bool read_head(const unsigned char *p, struct frame *f) {
    /* kbit/s: of MPEG 1 layers I, II, III; of MPEG 2 layer I, and II and III */
    static const short rates[5][16] = {
        { 0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 0 },
        { 0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 0 },
        { 0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0 },
        { 0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256, 0 },
        { 0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0 },
    };
    static const int samplings[3] = { 44100, 48000, 32000 };
    const int version = p[1] >> 3 & 3, layer = 4 - (p[1] >> 1 & 3); /* 3: MPEG 1, 2: 2, 0: 2.5 */
    const int sampling = p[2] >> 2 & 3, padding = p[2] >> 1 & 1;
    const bool first = version == 3, mono = p[3] >> 6 == 3;
    if (p[0] != 0xff || p[1] < 0xe0 || version == 1 || layer == 4 || sampling == 3) return false;
    const int rate = 1000 * rates[first ? layer - 1 : layer == 1 ? 3 : 4][p[2] >> 4];
    if (rate == 0) return false;
    f->rate = samplings[sampling] >> (first ? 0 : version == 2 ? 1 : 2);
    f->samples = layer == 1 ? 384 : layer == 3 && !first ? 576 : 1152;
    f->bytes = layer == 1 ? (size_t)(12 * rate / f->rate + padding) * 4
                          : (size_t)(f->samples / 8 * rate / f->rate + padding);
    f->side = first ? (mono ? 17 : 32) : (mono ? 9 : 17);
    f->kind = p[1] >> 1 & 15;
    return f->bytes > HEAD;
}

static bool tag_begins(const unsigned char *p, size_t n) {
    return n >= 3 && (memcmp(p, "TAG", 3) == 0 || (n >= 8 && memcmp(p, "APETAGEX", 8) == 0) ||
                      (n >= 11 && memcmp(p, "LYRICSBEGIN", 11) == 0));
}

/* Tags in front. */
static enum reel_status pass_id3(struct window *w, struct reel_error *err) {
    for (;;) {
        enum reel_status status = fill(w, ID3_HEAD, err);
        const unsigned char *p = w->bytes + w->at;
        if (status != REEL_OK || w->n - w->at < ID3_HEAD || memcmp(p, "ID3", 3) != 0) return status;
        const size_t size = (size_t)(p[6] & 127) << 21 | (size_t)(p[7] & 127) << 14 |
                            (size_t)(p[8] & 127) << 7 | (size_t)(p[9] & 127);
        pass(w, ID3_HEAD + size + (p[5] & 16 ? ID3_HEAD : 0));
    }
}

/* Frames that the first frame, when it is a Xing header, announces; -1 when it is none. */
static int64_t xing_frames(const unsigned char *p, size_t n, const struct frame *f) {
    const size_t at = HEAD + (size_t)f->side;
    if (n < at + 12) return -1;
    if (memcmp(p + at, "Xing", 4) != 0 && memcmp(p + at, "Info", 4) != 0) return -1;
    const unsigned char *count = p + at + 8;
    if (!(p[at + 7] & 1)) return -1;
    return (int64_t)count[0] << 24 | count[1] << 16 | count[2] << 8 | count[3];
}

/* A frame of the first one's kind, with a bit rate that makes it long enough, which has the count
 * and nothing else in it. */
static void make_xing(struct mp3_length *length, const unsigned char *first) {
    enum { MIDDLE_RATE = 9 << 4, KEPT = 0x0d }; /* of the third byte; no padding */
    struct frame f;
    unsigned char *const x = length->xing;
    memcpy(x, first, HEAD);
    x[1] |= 1; /* no checksum */
    x[2] = (unsigned char)((x[2] & KEPT) | MIDDLE_RATE);
    if (!read_head(x, &f) || f.bytes > MP3_XING || f.bytes < XING_LEAST) return;
    const int64_t n = length->samples / f.samples;
    unsigned char *const tag = x + HEAD + f.side;
    memcpy(tag, "Xing", 4);
    tag[7] = 1; /* the number of frames follows */
    for (int i = 0; i < 4; i++)
        tag[8 + i] = (unsigned char)(n >> (24 - 8 * i) & 255);
    length->n_xing = f.bytes;
}

struct counting {
    struct mp3_length *length;
    struct frame first; /* kind -1: none so far */
    unsigned char head[HEAD];
};

static bool is_alike(const struct counting *c, const unsigned char *p, struct frame *f) {
    return read_head(p, f) &&
           (c->first.kind < 0 || (f->kind == c->first.kind && f->rate == c->first.rate));
}

/* A whole frame f begins at p, of which n bytes are held. */
static void count_frame(struct counting *c, const struct frame *f, const unsigned char *p, size_t n,
                        uint64_t at) {
    int64_t announced = -1;
    if (c->first.kind < 0) {
        announced = xing_frames(p, n, f);
        memcpy(c->head, p, HEAD);
        c->length->at = at;
        c->first = *f;
    }
    if (announced >= 0)
        c->length->announced = announced * f->samples;
    else
        c->length->samples += f->samples;
}

/* Junk is passed byte by byte, until a frame of the same kind begins. */
static enum reel_status count_frames(struct window *w, struct counting *c, struct reel_error *err) {
    struct frame f;
    for (;;) {
        enum reel_status status = fill(w, XING_LEAST, err);
        const size_t n = w->n - w->at;
        const unsigned char *p = w->bytes + w->at;
        if (status != REEL_OK || n < HEAD || tag_begins(p, n)) return status;
        if (!is_alike(c, p, &f)) {
            pass(w, 1);
            continue;
        }
        const uint64_t at = w->s->at - n;
        if (at + f.bytes > (uint64_t)w->s->size) return REEL_OK; /* cut off */
        count_frame(c, &f, p, n, at);
        pass(w, f.bytes);
    }
}

/* Two frames of a kind at the window's beginning. */
static enum reel_status look_for_two(struct window *w, bool *found, struct reel_error *err) {
    struct counting c = { .first = { .kind = -1 } };
    enum reel_status status = fill(w, 2 * MP3_XING, err);
    const unsigned char *p = w->bytes + w->at;
    const size_t n = w->n - w->at;
    *found = n >= HEAD && read_head(p, &c.first) && n >= c.first.bytes + HEAD;
    if (*found) *found = is_alike(&c, p + c.first.bytes, &(struct frame){ 0 });
    return status;
}

enum reel_status mp3_length_read(struct mp3_length *length, struct byte_stream *s, bool known,
                                 struct reel_error *err) {
    struct window w = { .s = s };
    struct counting c = { .length = length, .first = { .kind = -1 } };
    *length = (struct mp3_length){ .announced = -1 };
    enum reel_status status = mem_zeroed(&w.bytes, ROOM, 1, "a part of an MP3 file", err);
    if (status == REEL_OK) status = byte_stream_seek(s, 0, err);
    if (status == REEL_OK) status = pass_id3(&w, err);
    if (status == REEL_OK && !known) status = look_for_two(&w, &known, err);
    if (status == REEL_OK && known) status = count_frames(&w, &c, err);
    if (status == REEL_OK) status = byte_stream_seek(s, 0, err);
    if (length->samples > 0 && length->announced < 0) make_xing(length, c.head);
    if (length->samples == 0) length->samples = -1;
    mem_free(w.bytes);
    return status;
}
