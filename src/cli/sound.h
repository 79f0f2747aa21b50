/* A recording as reel transcribe hears it: mono float32 at 16,000 Hz from a file that the library
 * reads, from ffmpeg, or from a microphone. */
#ifndef REEL_CLI_SOUND_H
#define REEL_CLI_SOUND_H

#include "cli/options.h"
#include "reel_speech.h"

/* One of the three is set. */
struct sound {
    struct reel_audio *audio;
    struct ffmpeg *ffmpeg;
    struct microphone *microphone;
};

/* name: as typed, "-" is standard input. --raw, --rate and --channels say what is in it. */
enum reel_status sound_open(struct sound *s, const struct cli_args *args, const char *name,
                            struct reel_error *err);

/* What is heard from now on; device: of --mic, or NULL. */
enum reel_status sound_open_microphone(struct sound *s, const char *device, struct reel_error *err);

/* A microphone hears no more; what it has heard can still be read. False: it is none. */
bool sound_stop(struct sound *s);

/* 1 to n samples; *n_read 0: the end. Ctrl-C in a wait is REEL_E_CANCELLED. */
enum reel_status sound_read(struct sound *s, float *out, size_t n, size_t *n_read,
                            struct reel_error *err);

/* Seconds of all of it, -1 when that is not known. */
double sound_seconds(const struct sound *s);
/* What was wrong with it and did not stop it; NULL: nothing. */
const char *sound_warning(const struct sound *s);
void sound_close(struct sound *s);

#endif
