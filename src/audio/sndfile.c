/* The few declarations used are written out here, as libsndfile 1.0 to 1.2 have them, so that its
 * header is not needed to build. */
#include "audio/sndfile.h"

#include "audio/mp3_length.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char library_name[] = "libsndfile.so.1";

/* sf_count_t is int64_t. */
struct sf_info {
    int64_t frames;
    int samplerate, channels, format, sections, seekable;
};
struct sf_virtual_io {
    int64_t (*get_filelen)(void *user);
    int64_t (*seek)(int64_t offset, int whence, void *user);
    int64_t (*read)(void *out, int64_t n, void *user);
    int64_t (*write)(const void *bytes, int64_t n, void *user);
    int64_t (*tell)(void *user);
};
enum {
    SF_MODE_READ = 0x10,
    SF_TYPE = 0x0fff0000,
    SF_TYPE_OGG = 0x00200000,
    SF_TYPE_MPEG = 0x00230000
};

/* Frames that an MP3 decoder may leave out at both ends, which its encoder has added. */
enum { MP3_ADDED = 4608 };

struct calls {
    void *(*open)(struct sf_virtual_io *io, int mode, struct sf_info *info, void *user);
    int64_t (*read)(void *file, float *out, int64_t n_frames);
    int (*error)(void *file);
    const char *(*text)(void *file);
    int (*close)(void *file);
};

struct sndfile {
    void *library;
    struct calls call;
    void *file;
    struct byte_stream *s;
    struct reel_error failed; /* of the stream, inside a callback */
    int64_t frames_left;      /* by the header; -1: not known */
    bool lacks_end;
    bool is_mp3;
    struct mp3_length mp3;
    uint64_t at; /* where libsndfile reads */
    int64_t n_read;
};

/* Positions are those of the file with what mp3_length.h adds to it. */
static int64_t io_size(void *user) {
    const struct sndfile *f = user;
    return f->s->size + (int64_t)f->mp3.n_xing;
}
static int64_t io_tell(void *user) { return (int64_t)((struct sndfile *)user)->at; }

static int64_t io_seek(int64_t offset, int whence, void *user) {
    struct sndfile *f = user;
    int64_t base = whence == SEEK_CUR ? io_tell(f) : whence == SEEK_END ? io_size(f) : 0;
    int64_t at;
    if (__builtin_add_overflow(base, offset, &at) || at < 0 || at > io_size(f)) return -1;
    f->at = (uint64_t)at;
    return at;
}

/* Up to n bytes of the file itself, from there on. */
static size_t read_file(struct sndfile *f, void *out, size_t n, uint64_t at) {
    size_t got = 0;
    enum reel_status status = REEL_OK;
    if (f->s->at != at) status = byte_stream_seek(f->s, at, &f->failed);
    if (status == REEL_OK) status = byte_stream_full(f->s, out, n, &got, &f->failed);
    return status == REEL_OK ? got : 0;
}

static size_t read_part(struct sndfile *f, unsigned char *out, size_t n) {
    const struct mp3_length *m = &f->mp3;
    if (f->at < m->at) return read_file(f, out, n < m->at - f->at ? n : m->at - f->at, f->at);
    const size_t behind = f->at - m->at;
    if (behind >= m->n_xing) return read_file(f, out, n, f->at - m->n_xing);
    if (n > m->n_xing - behind) n = m->n_xing - behind;
    memcpy(out, m->xing + behind, n);
    return n;
}

static int64_t io_read(void *out, int64_t n, void *user) {
    struct sndfile *f = user;
    size_t done = 0, got = 1;
    while (n > 0 && done < (size_t)n && got > 0) {
        got = read_part(f, (unsigned char *)out + done, (size_t)n - done);
        f->at += got;
        done += got;
    }
    return f->failed.status == REEL_OK ? (int64_t)done : 0;
}

static int64_t io_write(const void *bytes, int64_t n, void *user) {
    (void)bytes;
    (void)n;
    (void)user;
    return 0;
}

static enum reel_status bind_calls(struct sndfile *f, struct reel_error *err) {
    const struct {
        const char *name;
        size_t offset;
    } wanted[] = {
        { "sf_open_virtual", offsetof(struct calls, open) },
        { "sf_readf_float", offsetof(struct calls, read) },
        { "sf_error", offsetof(struct calls, error) },
        { "sf_strerror", offsetof(struct calls, text) },
        { "sf_close", offsetof(struct calls, close) },
    };
    f->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!f->library)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: not a WAV file, and %s, which reads FLAC, Ogg, Opus and MP3, is not "
                       "there: install it (Debian and Ubuntu: libsndfile1), or give WAV",
                       f->s->name, library_name);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(f->library, wanted[i].name);
        if (!symbol)
            return err_set(err, REEL_E_UNSUPPORTED, "%s lacks %s: it is too old", library_name,
                           wanted[i].name);
        memcpy((char *)&f->call + wanted[i].offset, &symbol, sizeof symbol);
    }
    return REEL_OK;
}

static enum reel_status open_file(struct sndfile *f, struct sf_info *info, struct reel_error *err) {
    struct sf_virtual_io io = { io_size, io_seek, io_read, io_write, io_tell };
    enum reel_status status = byte_stream_seek(f->s, 0, err);
    if (status != REEL_OK) return status;
    f->file = f->call.open(&io, SF_MODE_READ, info, f);
    if (f->failed.status != REEL_OK) return err_set(err, f->failed.status, "%s", f->failed.text);
    if (f->file) return REEL_OK;
    return err_set(err, REEL_E_FORMAT,
                   "%s: neither WAV nor a format that libsndfile reads (FLAC, Ogg, Opus, MP3): %s",
                   f->s->name, f->call.text(NULL));
}

/* What libsndfile says of an MP3 file's length is a guess where there is no Xing header. */
static enum reel_status measure_mp3(struct sndfile *f, struct reel_error *err) {
    f->is_mp3 = true;
    f->frames_left = -1;
    if (f->mp3.samples >= 0) return REEL_OK;
    enum reel_status status = mp3_length_read(&f->mp3, f->s, true, err);
    f->mp3.n_xing = 0; /* too late */
    return status;
}

enum reel_status sndfile_open(struct sndfile **out, struct byte_stream *s, int *rate, int *channels,
                              int64_t *frames, struct reel_error *err) {
    struct sndfile *f = NULL;
    struct sf_info info = { 0 };
    *out = NULL;
    enum reel_status status = mem_zeroed(&f, 1, sizeof *f, "libsndfile's calls", err);
    if (status != REEL_OK) return status;
    f->s = s;
    status = bind_calls(f, err);
    if (status == REEL_OK) status = mp3_length_read(&f->mp3, s, false, err);
    if (status == REEL_OK) status = open_file(f, &info, err);
    if (status != REEL_OK) {
        sndfile_close(f);
        return status;
    }
    /* Streams without a length are given one near 2^63. */
    f->frames_left = info.frames >= 0 && info.frames < INT64_MAX / 2 ? info.frames : -1;
    /* An Ogg file's length is in its last page. */
    f->lacks_end = f->frames_left < 0 && (info.format & SF_TYPE) == SF_TYPE_OGG;
    *rate = info.samplerate;
    *channels = info.channels;
    *frames = f->frames_left;
    if ((info.format & SF_TYPE) == SF_TYPE_MPEG) {
        status = measure_mp3(f, err);
        if (llabs(*frames - f->mp3.samples) > MP3_ADDED) *frames = f->mp3.samples;
    }
    if (status != REEL_OK) {
        sndfile_close(f);
        return status;
    }
    *out = f;
    return REEL_OK;
}

/* What is wrong with an MP3 file of which nothing more comes; NULL: nothing. */
static const char *mp3_damage(const struct sndfile *f) {
    const struct mp3_length *m = &f->mp3;
    if (m->samples >= 0 && m->announced > m->samples + MP3_ADDED)
        return "some of what it announces is missing";
    if (m->samples > f->n_read + MP3_ADDED)
        return "libsndfile gave no more of it, though the file goes on";
    return NULL;
}

enum reel_status sndfile_read(struct sndfile *f, float *out, size_t n, size_t *n_read,
                              const char **damage, struct reel_error *err) {
    int64_t got = f->call.read(f->file, out, (int64_t)n);
    *n_read = got > 0 ? (size_t)got : 0;
    *damage = NULL;
    if (f->failed.status != REEL_OK) return err_set(err, f->failed.status, "%s", f->failed.text);
    if (f->frames_left > 0) f->frames_left -= got < f->frames_left ? got : f->frames_left;
    f->n_read += (int64_t)*n_read;
    if (*n_read > 0) return REEL_OK;
    if (f->is_mp3) *damage = mp3_damage(f);
    if (f->call.error(f->file) != 0)
        *damage = f->call.text(f->file);
    else if (f->frames_left > 0)
        *damage = "some of what it announces is missing";
    else if (f->lacks_end)
        *damage = "the end of the file is missing";
    return REEL_OK;
}

void sndfile_close(struct sndfile *f) {
    if (!f) return;
    if (f->file) f->call.close(f->file);
    if (f->library) dlclose(f->library);
    mem_free(f);
}
