#include "cli/sound.h"

#include "cli/ffmpeg.h"
#include "cli/microphone.h"
#include "cli/terminal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files of the library ---- */

/* So that Ctrl-C ends the wait for a live input, too. */
static bool wait_for_input(void *user, int fd) {
    (void)user;
    return fd == fileno(stdin) ? interrupt_or_input(stdin) : !interrupt_pending();
}

static enum reel_status open_audio(struct sound *s, const struct cli_args *args, const char *name,
                                   struct reel_error *err) {
    static const char *const types[] = { "", "s16le", "s24le", "s32le", "f32le" };
    const char *raw = cli_text(args, "raw", "");
    struct reel_audio_options set = { .size = sizeof set,
                                      .rate = (int)cli_integer(args, "rate", 0),
                                      .channels = (int)cli_integer(args, "channels", 0) };
    set.wait = wait_for_input;
    int type = 0;
    while (strcmp(types[type], raw) != 0)
        type++;
    set.encoding = (enum reel_audio_encoding)type;
    if (strcmp(name, "-") == 0 && terminal_is(stdin))
        return err_set(err, REEL_E_ARGUMENT,
                       "standard input is a terminal; pipe a recording into reel transcribe -");
    return reel_audio_open(&s->audio, name, &set, err);
}

/* ---- files of ffmpeg ---- */

/* A regular file that is not WAV: of those reel says itself what is wrong. */
static bool may_be_foreign(const char *name) {
    char head[12] = { 0 };
    struct stat found;
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const bool regular = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    const bool whole = regular && read(fd, head, sizeof head) == (ssize_t)sizeof head;
    close(fd);
    return whole && memcmp(head + 8, "WAVE", 4) != 0;
}

/* failed: why the library does not read it. */
static enum reel_status open_foreign(struct sound *s, const char *name,
                                     const struct reel_error *failed, struct reel_error *err) {
    struct reel_error why = { 0 };
    enum reel_status status = ffmpeg_open(&s->ffmpeg, name, &why);
    switch (status) {
    case REEL_OK:
        return REEL_OK;
    case REEL_E_NOT_FOUND:
        return err_set(err, failed->status,
                       "%s; what else there is, as m4a, mp4 and webm, reel reads through ffmpeg, "
                       "which is not installed (Debian and Ubuntu: apt install ffmpeg)",
                       failed->text);
    case REEL_E_FORMAT:
        return err_set(err, failed->status, "%s; nor does ffmpeg: %s", failed->text, why.text);
    default:
        return err_set(err, status, "%s", why.text);
    }
}

/* ---- all of them ---- */

enum reel_status sound_open(struct sound *s, const struct cli_args *args, const char *name,
                            struct reel_error *err) {
    struct reel_error failed = { 0 };
    *s = (struct sound){ 0 };
    enum reel_status status = open_audio(s, args, name, &failed);
    if (status == REEL_OK) return REEL_OK;
    const bool unread = status == REEL_E_FORMAT || status == REEL_E_UNSUPPORTED;
    if (unread && !cli_has(args, "raw") && strcmp(name, "-") != 0 && may_be_foreign(name))
        return open_foreign(s, name, &failed, err);
    return err_set(err, status, "%s", failed.text);
}

enum reel_status sound_open_microphone(struct sound *s, const char *device,
                                       struct reel_error *err) {
    *s = (struct sound){ 0 };
    return microphone_open(&s->microphone, device, err);
}

bool sound_stop(struct sound *s) {
    if (s->microphone) microphone_stop(s->microphone);
    return s->microphone != NULL;
}

enum reel_status sound_read(struct sound *s, float *out, size_t n, size_t *n_read,
                            struct reel_error *err) {
    if (s->microphone) return microphone_read(s->microphone, out, n, n_read, err);
    return s->audio ? reel_audio_read(s->audio, out, n, n_read, err)
                    : ffmpeg_read(s->ffmpeg, out, n, n_read, err);
}

double sound_seconds(const struct sound *s) { return s->audio ? reel_audio_seconds(s->audio) : -1; }

const char *sound_warning(const struct sound *s) {
    if (s->microphone) return microphone_warning(s->microphone);
    return s->audio ? reel_audio_warning(s->audio) : ffmpeg_warning(s->ffmpeg);
}

void sound_close(struct sound *s) {
    reel_audio_close(s->audio);
    ffmpeg_close(s->ffmpeg);
    microphone_close(s->microphone);
    *s = (struct sound){ 0 };
}
