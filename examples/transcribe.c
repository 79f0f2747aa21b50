/* usage: transcribe MODEL RECORDING - prints what is said in it. Builds as C and as C++. */
#include <reel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_text(void *user, const char *text, size_t n_bytes, int segment) {
    (void)segment;
    return fwrite(text, 1, n_bytes, (FILE *)user) == n_bytes;
}

static void check(enum reel_status status, const struct reel_error *err) {
    if (status == REEL_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit((int)status);
}

int main(int argc, char **argv) {
    static float samples[REEL_AUDIO_RATE]; /* a second; any number will do */
    struct reel_error err;
    struct reel_model *model;
    struct reel_audio *audio;
    struct reel_transcriber *transcriber;
    struct reel_transcriber_options options;
    struct reel_transcript transcript;
    size_t n;
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL RECORDING\n", argv[0]), 2;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.on_text = print_text;
    options.user = stdout;
    check(reel_model_open(&model, argv[1], NULL, &err), &err);
    check(reel_transcriber_open(&transcriber, model, &options, &err), &err);
    check(reel_audio_open(&audio, argv[2], NULL, &err), &err);

    for (;;) {
        check(reel_audio_read(audio, samples, REEL_AUDIO_RATE, &n, &err), &err);
        if (n == 0) break;
        check(reel_transcriber_push(transcriber, samples, n, &err), &err);
    }
    memset(&transcript, 0, sizeof transcript);
    transcript.size = sizeof transcript;
    check(reel_transcriber_finish(transcriber, &transcript, &err), &err);
    printf("\n%.1f s, %d segments\n", transcript.seconds, transcript.n_segments);
    reel_audio_close(audio);
    reel_transcriber_close(transcriber);
    reel_model_close(model);
    return 0;
}
