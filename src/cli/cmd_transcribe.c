/* reel transcribe: recordings to text. */
#include "base/clock.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/live_view.h"
#include "cli/microphone.h"
#include "cli/open_model.h"
#include "cli/pace.h"
#include "cli/progress.h"
#include "cli/sound.h"
#include "cli/terminal.h"
#include "cli/transcribe_many.h"
#include "cli/transcript_notes.h"
#include "cli/transcript_out.h"

#include <limits.h>
#include <string.h>

#define DEFAULT_MODEL "Qwen/Qwen3-ASR-0.6B"
#define DEMO_SEGMENT  8               /* seconds */
#define DEMO_PAUSE    0.45            /* longer ones between words it has not learned from */
#define DEFAULT_CHUNK 2               /* seconds */
#define PIECE         REEL_AUDIO_RATE /* samples read at once at most: a second */

#define MOST_STREAM_SEGMENT 55 /* seconds: include/reel.h, stream_seconds */

static const struct cli_option options[] = {
    { .name = "model",
      .letter = 'm',
      .kind = CLI_TEXT,
      .argument = "MODEL",
      .help = "a speech model; default " DEFAULT_MODEL },
    { .name = "format",
      .kind = CLI_CHOICE,
      .argument = "FORMAT",
      .choices = "text json verbose_json srt vtt",
      .help = "text, as it is made; json; verbose_json, with segments; srt or vtt, subtitles; "
              "default text" },
    { .name = "output",
      .letter = 'o',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help =
          "write there, at the end or when the work is stopped, instead of to standard output" },
    { .name = "output-dir",
      .kind = CLI_TEXT,
      .argument = "FOLDER",
      .help = "write a file for each recording there: a.wav to a.txt, a.json, a.srt or a.vtt" },
    { .name = "language",
      .letter = 'l',
      .kind = CLI_TEXT,
      .argument = "NAME",
      .help = "what is spoken: English or en, ...; default: the model finds out" },
    { .name = "context",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .help = "names and words to expect, or what is spoken about" },
    { .name = "segment",
      .kind = CLI_REAL,
      .argument = "SECONDS",
      .low = 1,
      .high = 1200,
      .help = "about how long the pieces of a recording may be; they end in pauses, or without one "
              "where it is quietest; default 30, for demo-speech 8" },
    { .name = "pause",
      .kind = CLI_REAL,
      .argument = "SECONDS",
      .low = 0.3,
      .high = 10,
      .help = "how long a pause ends a piece of any length; a shorter one ends a longer piece; "
              "default 2, for demo-speech 0.45" },
    { .name = "past-text",
      .kind = CLI_FLAG,
      .help = "tell the model the end of the text before each segment" },
    { .name = "skip-silence",
      .kind = CLI_FLAG,
      .help = "call more silent: what is less than 12 dB louder than the noise, or under -55 dB" },
    { .name = "tokens",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = INT_MAX,
      .help = "stop a segment's text after N tokens; default 8 a second of --segment, at least 512 "
              "and at most 4096" },
    { .name = "parallel",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 64,
      .help = "up to N recordings at once; their texts come in the order of the files and are the "
              "same; default: as many as share a pass over the model's weights; "
              "with --stream it is 1" },
    { .name = "quiet", .letter = 'q', .kind = CLI_FLAG, .help = "no figures on standard error" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static const struct cli_option live_options[] = {
    { .name = "stream",
      .kind = CLI_FLAG,
      .help = "transcribe while it is spoken: text as soon as it is certain, at a terminal with "
              "what may still change dimmed behind it" },
    { .name = "chunk",
      .kind = CLI_REAL,
      .argument = "SECONDS",
      .low = 0.5,
      .high = 10,
      .help = "how often --stream and --mic look for more text; default 2" },
    { .name = "mic",
      .kind = CLI_FLAG,
      .argument = "[=DEVICE]",
      .help =
          "hear a microphone, as --stream, until Ctrl-C; through PulseAudio, PipeWire or ALSA" },
    { .name = "list-mics", .kind = CLI_FLAG, .help = "list what --mic=DEVICE takes, and end" },
};
static const struct cli_group live_group = CLI_GROUP("While it is spoken", live_options);

static const struct cli_option raw_options[] = {
    { .name = "raw",
      .kind = CLI_CHOICE,
      .argument = "TYPE",
      .choices = "s16le s24le s32le f32le",
      .help = "the input is samples without a header: integers of 16, 24 or 32 bits or 32-bit "
              "floats, little-endian" },
    { .name = "rate",
      .kind = CLI_INTEGER,
      .argument = "HZ",
      .least = 8000,
      .most = 192000,
      .help = "samples a second of --raw; default 16000" },
    { .name = "channels",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 64,
      .help = "channels of --raw, whose samples come in turn; default 1" },
};
static const struct cli_group raw_group = CLI_GROUP("Raw input", raw_options);

struct job {
    const struct cli_args *args;
    struct reel_model *model;
    struct reel_transcriber *transcriber;
    double chunk; /* seconds from step to step; 0: no stream */
    enum reel_transcript_format format;
    bool microphone; /* that is the one recording */
    struct transcript_out out;
    bool live;      /* text goes to stdout as it is made */
    bool line_open; /* and the line is not ended */
    /* the file at hand */
    int index;
    const char *name;
    bool headed;    /* its heading is written */
    double seconds; /* of it; -1 when unknown */
    double start_ms;
    struct progress progress;
    float *samples; /* [PIECE] */
    struct live_view view;
    bool input_ended; /* by Ctrl-C */
    bool stepped;     /* in the call at hand */
    bool told_late;
    struct pace pace;
};

static const char *const format_names[] = { "text", "json", "verbose_json", "srt", "vtt" };

static enum reel_transcript_format format_of(const struct cli_args *args) {
    const char *name = cli_text(args, "format", "text");
    int i = 0;
    while (strcmp(format_names[i], name) != 0)
        i++;
    return (enum reel_transcript_format)i;
}

/* ---- Ctrl-C ---- */

/* Of what is heard live, the first one ends the input, and the rest is written down. */
static bool is_live(const struct job *job) {
    const bool comes = job->microphone || strcmp(job->name, "-") == 0;
    return job->chunk > 0 && comes && !job->input_ended;
}

static bool cancelled(const struct job *job) { return !is_live(job) && interrupt_pending(); }

static bool input_ends(struct job *job) {
    if (!is_live(job) || !interrupt_take()) return false;
    job->input_ended = true;
    return true;
}

/* ---- what the library calls ---- */

static void put_heading(struct job *job) {
    if (!job->headed) transcript_out_heading(&job->out, job->index);
    job->headed = true;
}

static bool on_text(void *user, const char *text, size_t n_bytes, int segment) {
    struct job *job = user;
    (void)segment;
    if (job->live) {
        progress_end(&job->progress);
        put_heading(job);
        live_view_text(&job->view, text, n_bytes);
        job->line_open = true;
    }
    return !cancelled(job) && !ferror(stdout);
}

static bool on_partial(void *user, const char *text, size_t n_bytes, int segment) {
    struct job *job = user;
    (void)segment;
    job->stepped = true;
    if (job->live && n_bytes > 0) put_heading(job);
    if (job->live) live_view_rest(&job->view, text, n_bytes);
    return !cancelled(job) && !ferror(stdout);
}

/* The library knows how much is done, the file how much there is. */
static bool on_progress(void *user, const char *stage, uint64_t done_ms, uint64_t total) {
    struct job *job = user;
    double elapsed_ms = clock_ms() - job->start_ms;
    (void)total;
    if (cancelled(job)) return false;
    double factor = elapsed_ms > 0 ? (double)done_ms / elapsed_ms : 0;
    if (factor > 0)
        snprintf(job->progress.note, sizeof job->progress.note, ", %.*fx real time",
                 factor < 100 ? 1 : 0, factor);
    (void)progress_update(&job->progress, stage, done_ms / 1000,
                          job->seconds > 0 ? (uint64_t)(job->seconds + 0.999) : 0);
    return true;
}

/* ---- one recording ---- */

static void tell_that_it_is_late(struct job *job) {
    if (job->told_late || !pace_is_late(&job->pace)) return;
    job->told_late = true;
    live_view_end(&job->view);
    if (job->line_open && terminal_is(stdout)) putchar('\n');
    fflush(stdout);
    fprintf(stderr, "reel: %s: the text of a live input is %.0f s behind by now; see --chunk\n",
            job->name, job->pace.late_ms / 1e3);
}

/* Whether a call that began at start_ms made a step, and how long it took. */
static enum reel_status after_call(struct job *job, double start_ms, struct reel_error *err) {
    if (!job->stepped) return REEL_OK;
    job->stepped = false;
    enum reel_status status = pace_step(&job->pace, clock_ms() - start_ms, err);
    if (job->microphone || strcmp(job->name, "-") == 0) tell_that_it_is_late(job);
    return status;
}

static enum reel_status push(struct job *job, size_t n, struct reel_error *err) {
    const double start_ms = clock_ms();
    pace_hear(&job->pace, (double)n * 1e3 / REEL_AUDIO_RATE);
    enum reel_status status = reel_transcriber_push(job->transcriber, job->samples, n, err);
    return status == REEL_OK ? after_call(job, start_ms, err) : status;
}

static enum reel_status finish(struct job *job, struct reel_transcript *transcript,
                               struct reel_error *err) {
    const double start_ms = clock_ms();
    enum reel_status status = reel_transcriber_finish(job->transcriber, transcript, err);
    return status == REEL_OK ? after_call(job, start_ms, err) : status;
}

static enum reel_status push_all(struct job *job, struct sound *sound, bool *unreadable,
                                 struct reel_error *err) {
    enum reel_status status = REEL_OK;
    while (status == REEL_OK) {
        size_t n = 0;
        if (input_ends(job) && !sound_stop(sound)) return REEL_OK;
        status = sound_read(sound, job->samples, PIECE, &n, err);
        if (status == REEL_E_CANCELLED && input_ends(job)) {
            if (!sound_stop(sound)) return REEL_OK;
            status = sound_read(sound, job->samples, PIECE, &n, err);
        }
        *unreadable = status != REEL_OK;
        if (status != REEL_OK || n == 0) break;
        status = push(job, n, err);
    }
    return status;
}

static enum reel_status put_result(struct job *job, const struct reel_transcript *transcript,
                                   struct reel_error *err) {
    if (!job->live) return transcript_out_add(&job->out, job->index, transcript, NULL, err);
    live_view_end(&job->view);
    put_heading(job);
    putchar('\n');
    job->line_open = false;
    return REEL_OK;
}

/* What is finished of a recording that goes no further. */
static enum reel_status keep_part(struct job *job, const char *problem) {
    struct reel_transcript part = { .size = sizeof part };
    struct reel_error err = { 0 };
    if (job->live) return REEL_OK; /* it is written already */
    enum reel_status status = reel_transcriber_so_far(job->transcriber, &part, &err);
    if (status == REEL_OK && part.n_segments > 0)
        status = transcript_out_add(&job->out, job->index, &part, problem, &err);
    else if (status == REEL_OK)
        status = transcript_out_fail(&job->out, job->index, problem, &err);
    if (status != REEL_OK) fprintf(stderr, "reel: %s\n", err.text);
    return status;
}

/* What is said of a recording that is finished. */
static enum reel_status put_notes(struct job *job, const struct reel_transcript *t,
                                  struct reel_error *err) {
    struct buffer notes = { 0 };
    enum reel_status status = note_cut_short(&notes, job->name, t, err);
    if (status == REEL_OK && !cli_has(job->args, "quiet")) {
        status = note_figures(&notes, job->name, t, clock_ms() - job->start_ms, err);
        if (status == REEL_OK && job->chunk > 0)
            status = buffer_printf(&notes, err, " | %d step%s, median %.1f ms, slowest %.1f ms",
                                   t->stream_steps, t->stream_steps == 1 ? "" : "s",
                                   pace_median(&job->pace), t->stream_worst_ms);
        if (status == REEL_OK) status = buffer_text(&notes, "\n", err);
    }
    if (notes.size > 0) fputs(notes.bytes, stderr);
    buffer_release(&notes);
    return status;
}

static void start_recording(struct job *job, int index) {
    job->index = index;
    job->name = job->out.names[index];
    job->start_ms = clock_ms();
    job->stepped = job->input_ended = job->headed = false;
    pace_start(&job->pace);
    progress_start(&job->progress);
    live_view_start(&job->view, stdout);
    if (job->live && terminal_is(stdout)) job->progress.enabled = false; /* the text has the line */
    reel_transcriber_reset(job->transcriber);
}

static enum reel_status open_sound(const struct job *job, struct sound *sound,
                                   struct reel_error *err) {
    if (!job->microphone) return sound_open(sound, job->args, job->name, err);
    enum reel_status status = sound_open_microphone(sound, cli_text(job->args, "mic", NULL), err);
    if (status == REEL_OK && terminal_is(stderr) && !cli_has(job->args, "quiet"))
        fputs("listening; Ctrl-C ends\n", stderr);
    return status;
}

/* *unreadable: the recording is what failed, and others may do better. */
static enum reel_status transcribe(struct job *job, bool *unreadable, struct reel_error *err) {
    struct reel_transcript transcript = { .size = sizeof transcript };
    struct sound sound;
    enum reel_status status = open_sound(job, &sound, err);
    *unreadable = status != REEL_OK;
    if (status == REEL_OK) {
        job->seconds = sound_seconds(&sound);
        status = push_all(job, &sound, unreadable, err);
    }
    if (status == REEL_OK) status = finish(job, &transcript, err);
    progress_end(&job->progress);
    if (status == REEL_OK && sound_warning(&sound))
        fprintf(stderr, "reel: %s\n", sound_warning(&sound));
    if (status != REEL_OK)
        (void)keep_part(job, err->text);
    else
        status = put_result(job, &transcript, err);
    fflush(stdout);
    if (status == REEL_OK) status = put_notes(job, &transcript, err);
    live_view_end(&job->view);
    if (job->line_open) putchar('\n');
    job->line_open = false;
    sound_close(&sound);
    return status;
}

/* ---- the command ---- */

/* All recordings in turn: one that fails does not stop the others. The first such is the status. */
static enum reel_status transcribe_all(struct job *job, struct reel_error *err) {
    const int n = job->out.n_names;
    enum reel_status first = REEL_OK;
    int n_failed = 0;
    for (int i = 0; i < n; i++) {
        bool unreadable = false;
        start_recording(job, i);
        enum reel_status status = transcribe(job, &unreadable, err);
        if (status == REEL_OK) continue;
        if (n == 1 || transcribing_stops(status, unreadable)) return status;
        if (n_failed++ == 0) first = status;
        fprintf(stderr, "reel: %s\n", err->text);
    }
    if (n_failed == 0) return REEL_OK;
    err_clear(err); /* said already */
    fprintf(stderr, "reel: %d of %d recordings failed\n", n_failed, n);
    return first;
}

static enum reel_status check(const struct job *job, struct reel_error *err) {
    const struct cli_args *args = job->args;
    int n_stdin = 0;
    for (int i = 0; i < args->n_arguments; i++)
        n_stdin += strcmp(args->arguments[i], "-") == 0;
    if (n_stdin > 1)
        return err_set(err, REEL_E_ARGUMENT, "standard input (-) is given %d times", n_stdin);
    if (cli_has(args, "chunk") && job->chunk == 0)
        return err_set(err, REEL_E_ARGUMENT, "--chunk is for --stream and --mic");
    if (job->chunk > 0 && cli_real(args, "segment", 0) > MOST_STREAM_SEGMENT)
        return err_set(
            err, REEL_E_ARGUMENT,
            "--segment %g: with --stream or --mic at most %d s, so that a minute is held",
            cli_real(args, "segment", 0), MOST_STREAM_SEGMENT);
    if (job->microphone && (args->n_arguments > 0 || cli_has(args, "raw")))
        return err_set(err, REEL_E_ARGUMENT, "--mic excludes files and --raw");
    if (!job->microphone && args->n_arguments == 0)
        return err_set(err, REEL_E_ARGUMENT, "something is missing; usage: reel transcribe %s",
                       args->command->arguments);
    if (cli_integer(args, "parallel", 1) > 1 && (job->chunk > 0 || job->microphone))
        return err_set(err, REEL_E_ARGUMENT,
                       "--parallel is for recordings that are there, not for --stream and --mic");
    if (!cli_has(args, "raw") && (cli_has(args, "rate") || cli_has(args, "channels")))
        return err_set(err, REEL_E_ARGUMENT, "--rate and --channels describe --raw input");
    return REEL_OK;
}

static enum reel_status open_model(struct job *job, struct reel_error *err) {
    const char *name = cli_text(job->args, "model", DEFAULT_MODEL);
    struct reel_error why = { 0 };
    enum reel_status status = cli_model_open(&job->model, job->args, name, &why);
    if (status == REEL_OK) return status;
    if (status == REEL_E_NOT_FOUND && !cli_has(job->args, "model"))
        return err_set(err, status, "%s; or name another with --model", why.text);
    return err_set(err, status, "%s", why.text);
}

/* Most recordings that demo-speech has learned from are under 6 s, and have no pause of half a
 * second. */
static bool is_demo(const struct cli_args *args) {
    return strcmp(cli_text(args, "model", ""), "demo-speech") == 0;
}

static struct reel_transcriber_options transcriber_options(struct job *job) {
    const struct cli_args *args = job->args;
    return (struct reel_transcriber_options){
        .size = sizeof(struct reel_transcriber_options),
        .language = cli_text(args, "language", NULL),
        .context = cli_text(args, "context", NULL),
        .segment_seconds = cli_real(args, "segment", is_demo(args) ? DEMO_SEGMENT : 0),
        .max_tokens = (int)cli_integer(args, "tokens", 0),
        .past_text = cli_has(args, "past-text"),
        .on_text = on_text,
        .user = job,
        .progress = on_progress,
        .progress_user = job,
        .skip_silence = cli_has(args, "skip-silence"),
        .stream_seconds = job->chunk,
        .on_partial = on_partial,
        .pause_seconds = cli_real(args, "pause", is_demo(args) ? DEMO_PAUSE : 0),
    };
}

static enum reel_status open_transcriber(struct job *job, struct reel_error *err) {
    const struct reel_transcriber_options set = transcriber_options(job);
    struct reel_error why = { 0 };
    enum reel_status status = reel_transcriber_open(&job->transcriber, job->model, &set, &why);
    if (status != REEL_OK)
        return err_set(err, status, "%s%s", why.text,
                       status == REEL_E_LIMIT ? "; see --segment and --tokens" : "");
    job->samples = mem_alloc(PIECE * sizeof *job->samples);
    return job->samples ? REEL_OK : err_memory(err, "samples", PIECE * sizeof *job->samples);
}

/* How many recordings at once: as --parallel says, else as many as one reading of the weights
 * serves. */
static int at_once(const struct job *job) {
    const int n = job->out.n_names;
    if (job->chunk > 0 || job->microphone) return 1;
    const int most =
        (int)cli_integer(job->args, "parallel", cli_model_info(job->model).most_columns);
    return most < n ? most : n;
}

static enum reel_status transcribe_together(struct job *job, struct reel_error *err) {
    const struct reel_transcriber_options set = transcriber_options(job);
    const struct transcribe_many many = { .args = job->args,
                                          .model = job->model,
                                          .set = &set,
                                          .out = &job->out,
                                          .at_once = at_once(job),
                                          .live = job->live,
                                          .quiet = cli_has(job->args, "quiet") };
    return transcribe_many(&many, err);
}

static enum reel_status open_all(struct job *job, struct reel_error *err) {
    enum reel_status status = check(job, err);
    if (status == REEL_OK) status = transcript_out_open(&job->out, err);
    if (status == REEL_OK) status = open_model(job, err);
    if (status == REEL_OK && at_once(job) == 1) status = open_transcriber(job, err);
    return status;
}

static enum reel_status work(struct job *job, struct reel_error *err) {
    return at_once(job) > 1 ? transcribe_together(job, err) : transcribe_all(job, err);
}

/* What the work has come to is written whatever stopped it. */
static enum reel_status close_out(struct job *job, enum reel_status status,
                                  struct reel_error *err) {
    struct reel_error own = { 0 };
    enum reel_status written = transcript_out_close(&job->out, &own);
    if (written == REEL_OK) return status;
    if (status == REEL_OK) return err_set(err, written, "%s", own.text);
    fprintf(stderr, "reel: %s\n", own.text);
    return status;
}

/* "-" is where text goes anyway. */
static const char *output_path(const struct cli_args *args) {
    const char *path = cli_text(args, "output", NULL);
    return path && strcmp(path, "-") == 0 ? NULL : path;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    static const char *const microphone[] = { "microphone" };
    struct job job = { .args = args,
                       .format = format_of(args),
                       .microphone = cli_has(args, "mic") };
    if (cli_has(args, "list-mics")) return microphone_list(err);
    job.out = (struct transcript_out){ .format = job.format,
                                       .path = output_path(args),
                                       .folder = cli_text(args, "output-dir", NULL),
                                       .names = job.microphone ? microphone : args->arguments,
                                       .n_names = job.microphone ? 1 : args->n_arguments };
    job.live = transcript_out_live(&job.out);
    if (cli_has(args, "stream") || job.microphone)
        job.chunk = cli_real(args, "chunk", DEFAULT_CHUNK);
    interrupt_install();
    interrupt_by_signals();
    enum reel_status status = open_all(&job, err);
    if (status == REEL_OK) status = close_out(&job, work(&job, err), err);
    pace_release(&job.pace);
    mem_free(job.samples);
    transcript_out_release(&job.out);
    reel_transcriber_close(job.transcriber);
    reel_model_close(job.model);
    return status;
}

const struct cli_command cmd_transcribe = {
    .name = "transcribe",
    .arguments = "FILE... [-m MODEL]",
    .least_arguments = 0,
    .most_arguments = INT_MAX,
    .summary = "speech to text",
    .description =
        "Writes down what is said in recordings: WAV files, with libsndfile installed FLAC, Ogg, "
        "Opus and MP3, and with ffmpeg all that it reads, as m4a, mp4 and webm; - is standard "
        "input. Several files go through one model, several at once where that is faster "
        "(--parallel); one that fails is reported and the rest goes on. Their texts stand under "
        "their names, in the order given, and JSON is one list; --output-dir writes a file for "
        "each.\n\n"
        "A recording is cut in pauses of 2 s (--pause), and the longer a piece is, the shorter "
        "ones "
        "will do; without any it is cut where it is quietest within 5 s of 30 (--segment). What is "
        "silent, judged against the noise of the recording, is left out. The times of segments and "
        "subtitles are those of the cuts, not of words.\n\n"
        "With --stream text comes while it is spoken: ... | reel transcribe --stream --raw s16le "
        "-; "
        "--mic hears a microphone so. What has been written stays; it may differ from the "
        "text without --stream where the model would have changed its mind. Ctrl-C ends a live "
        "input; the rest of the text is still written.\n\n"
        "The text streams to standard output; everything else goes to standard error. With "
        "--output, "
        "Ctrl-C, SIGTERM or a failure leaves a file with the pieces that are finished.\n\n"
        "-m demo-speech is a small model inside this program. It hears English digits and a few "
        "short phrases, as speech synthesisers say them.",
    .groups = { &group, &live_group, &raw_group, &cli_model_group },
    .run = run,
};
