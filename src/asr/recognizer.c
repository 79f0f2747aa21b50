#include "asr/recognizer.h"

#include "asr/prompt.h"
#include "audio/mel.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "runtime/model_handle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FRAMES   3200  /* encoded at once, where a window is not longer: 32 s */
#define MOST_ROWS     1040  /* evaluated at once: vectors of 10 windows */
#define IDS_AT_ONCE   256   /* that fit behind the vectors of a short piece */
#define PREPARED      65536 /* samples scaled at once */
#define MOST_THREADS  8     /* that make features: more would not be noticed */
#define MAX_OWN_STOPS (MODEL_MAX_STOP_IDS + 2)

struct recognizer {
    const struct reel_model *model; /* borrowed */
    struct recognizer_options set;
    struct asr_prompt prompt;
    struct reel_session *session;
    struct model_tower tower;
    struct mel *mel;
    int window;      /* frames that see each other */
    int n_frames;    /* encoded at once: whole windows of the encoder */
    float *prepared; /* [PREPARED] samples on their way to mel */
    /* the backend's host memory, where it has some */
    float *features; /* f32 [MEL_BINS, n_frames] */
    float *rows;     /* f32 [most_rows, hidden] */
    int most_rows, n_rows;
    int32_t stop_ids[MAX_OWN_STOPS];
    int n_stop_ids;
    int32_t text_tag; /* the id of <asr_text>, or -1 */
    /* the piece: the session holds the prefix, then the vectors of so many whole windows */
    int n_kept;
    float *lowest; /* [windows] smallest value of each, before the floor */
    float floor;   /* when they were encoded */
    /* the answer */
    char *raw; /* text so far */
    size_t raw_room, raw_size;
    int32_t *ids; /* [max_tokens] */
    size_t *ends; /* [max_tokens] */
    int n_ids;
    bool cancelled;
};

static enum reel_status cancelled(struct reel_error *err) {
    return err_set(err, REEL_E_CANCELLED, "cancelled by the caller");
}

static bool go_on(struct recognizer *r) {
    if (r->set.go_on && !r->set.go_on(r->set.user)) r->cancelled = true;
    return !r->cancelled;
}

static bool session_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)done, (void)total;
    return go_on(user);
}

/* ---- opening ---- */

static int most_frames(const struct recognizer_options *o) {
    size_t samples = o->most_samples > MEL_LEAST_SAMPLES ? o->most_samples : MEL_LEAST_SAMPLES;
    return (int)(samples / MEL_HOP);
}

/* The ids that end an answer: the model's, and the two that the published programs stop at, which
 * not every folder names. */
static void find_stop_ids(struct recognizer *r) {
    static const char *const names[] = { "<|im_end|>", "<|endoftext|>" };
    const struct model_config *c = &r->model->model.config;
    for (int i = 0; i < c->n_stop_ids; i++)
        r->stop_ids[r->n_stop_ids++] = c->stop_ids[i];
    for (int k = 0; k < 2; k++) {
        int32_t id = tokenizer_find_added(r->model->model.tokenizer, names[k]);
        if (id >= 0 && id < c->vocab) r->stop_ids[r->n_stop_ids++] = id;
    }
}

static enum reel_status check_model(const struct reel_model *model, struct reel_error *err) {
    const struct model_config *c = &model->model.config;
    const char *name = model->model.name ? model->model.name : "the model";
    if (c->audio.n_layers == 0)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s is a model of family %s, which does not hear; speech is transcribed by "
                       "models of family qwen3_asr",
                       name, model_family_name(c->family));
    if (!model->model.tokenizer)
        return err_set(err, REEL_E_UNSUPPORTED, "%s has no tokenizer; prompts need one", name);
    if (c->audio.n_bins != MEL_BINS)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s hears features of %d bins; features of %d are supported", name,
                       c->audio.n_bins, MEL_BINS);
    return REEL_OK;
}

/* The tokenizer and config.json must mean the same ids. */
static enum reel_status check_prompt(const struct recognizer *r, struct reel_error *err) {
    const struct model_config *c = &r->model->model.config;
    int n = r->prompt.n_prefix + r->prompt.n_suffix;
    int32_t pad = tokenizer_find_added(r->model->model.tokenizer, "<|audio_pad|>");
    if (pad != c->audio.token_id)
        return err_set(err, REEL_E_FORMAT,
                       "%s: the audio token is %d in config.json and %d in the tokenizer",
                       r->model->model.name, c->audio.token_id, (int)pad);
    for (int i = 0; i < n; i++)
        if (r->prompt.ids[i] >= c->vocab)
            return err_set(err, REEL_E_FORMAT, "%s: the prompt has id %d; the model has %d ids",
                           r->model->model.name, (int)r->prompt.ids[i], c->vocab);
    return REEL_OK;
}

static enum reel_status open_session(struct recognizer *r, struct reel_error *err) {
    const struct model_config *c = &r->model->model.config;
    int64_t audio = audio_tokens(most_frames(&r->set));
    int64_t wanted = r->prompt.n_prefix + r->prompt.n_suffix + (int64_t)r->set.most_context +
                     audio + r->set.max_tokens + 1;
    if (wanted > c->max_context)
        return err_set(
            err, REEL_E_LIMIT,
            "a prompt of %d tokens, %lld of audio and an answer of %d need %lld positions; "
            "the model has %d",
            r->prompt.n_prefix + r->prompt.n_suffix, (long long)audio, r->set.max_tokens,
            (long long)wanted, c->max_context);
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = (int)wanted,
                                                  .progress = session_progress,
                                                  .progress_user = r };
    return reel_session_open(&r->session, r->model, &options, err);
}

static int feature_threads(const struct recognizer *r) {
    int n = r->model->backend_info.host_threads;
    if (n == 0) n = thread_pool_cores();
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}

static enum reel_status allocate(struct recognizer *r, struct reel_error *err) {
    const struct model_config *c = &r->model->model.config;
    const int frames = most_frames(&r->set), tokens = audio_tokens(frames);
    r->window = c->audio.window_chunks * M_AUDIO_CHUNK_FRAMES;
    r->n_frames = r->window < MOST_FRAMES ? MOST_FRAMES / r->window * r->window : r->window;
    r->most_rows = tokens + IDS_AT_ONCE < MOST_ROWS ? tokens + IDS_AT_ONCE : MOST_ROWS;
    if (r->most_rows < audio_tokens(r->n_frames)) r->most_rows = audio_tokens(r->n_frames);
    r->raw_room = (size_t)r->set.max_tokens * DETOKENIZER_ROOM(r->model->max_token_bytes) + 16;
    enum reel_status status =
        mem_aligned(&r->prepared, PREPARED, sizeof *r->prepared, "samples", err);
    if (status == REEL_OK)
        status = model_floats_alloc(r->model, &r->features, (size_t)MEL_BINS * (size_t)r->n_frames,
                                    "a window of features", err);
    if (status == REEL_OK)
        status = model_floats_alloc(r->model, &r->rows, (size_t)r->most_rows * (size_t)c->hidden,
                                    "audio vectors", err);
    if (status == REEL_OK) status = mem_zeroed(&r->raw, r->raw_room, 1, "an answer", err);
    if (status == REEL_OK)
        status = mem_zeroed(&r->ids, (size_t)r->set.max_tokens, sizeof *r->ids, "an answer", err);
    if (status == REEL_OK)
        status = mem_zeroed(&r->ends, (size_t)r->set.max_tokens, sizeof *r->ends, "an answer", err);
    if (status == REEL_OK)
        status = mem_zeroed(&r->lowest, (size_t)(frames / r->window) + 1, sizeof *r->lowest,
                            "what is known of windows", err);
    return status;
}

enum reel_status recognizer_open(struct recognizer **out, const struct reel_model *model,
                                 const struct recognizer_options *options, struct reel_error *err) {
    struct recognizer *r = NULL;
    *out = NULL;
    enum reel_status status = check_model(model, err);
    if (status == REEL_OK) status = mem_zeroed(&r, 1, sizeof *r, "a recognizer", err);
    if (status != REEL_OK) return status;
    r->model = model;
    r->set = *options;
    r->text_tag = tokenizer_find_added(model->model.tokenizer, "<asr_text>");
    find_stop_ids(r);
    status = recognizer_set_context(r, options->context, err);
    if (status == REEL_OK) status = open_session(r, err);
    if (status == REEL_OK) status = mel_open(&r->mel, feature_threads(r), err);
    if (status == REEL_OK) status = model_tower_open(&r->tower, model, err);
    if (status == REEL_OK) status = allocate(r, err);
    if (status != REEL_OK) {
        recognizer_close(r);
        return status;
    }
    *out = r;
    return REEL_OK;
}

void recognizer_close(struct recognizer *r) {
    if (!r) return;
    model_tower_close(&r->tower);
    mel_close(r->mel);
    reel_session_close(r->session);
    asr_prompt_release(&r->prompt);
    mem_free(r->lowest);
    mem_free(r->ends);
    mem_free(r->ids);
    mem_free(r->raw);
    model_floats_free(r->model, r->rows);
    model_floats_free(r->model, r->features);
    mem_free(r->prepared);
    mem_free(r);
}

enum reel_status recognizer_set_context(struct recognizer *r, const char *context,
                                        struct reel_error *err) {
    struct asr_prompt old = r->prompt;
    enum reel_status status =
        asr_prompt_build(&r->prompt, r->model->model.tokenizer, context, r->set.language, err);
    if (status == REEL_OK) status = check_prompt(r, err);
    if (status == REEL_OK) {
        asr_prompt_release(&old);
        return REEL_OK;
    }
    asr_prompt_release(&r->prompt);
    r->prompt = old;
    return status;
}

/* ---- hearing ---- */

void recognizer_begin(struct recognizer *r) {
    mel_restart(r->mel);
    r->n_kept = 0;
}

enum reel_status recognizer_hear(struct recognizer *r, const float *samples, size_t n,
                                 float divisor, struct reel_error *err) {
    float *prepared = r->prepared;
    for (size_t at = 0; at < n;) {
        size_t piece = n - at < PREPARED ? n - at : PREPARED;
        for (size_t i = 0; i < piece; i++) {
            float x = samples[at + i] / divisor;
            prepared[i] = x > 1 ? 1 : x < -1 ? -1 : x;
        }
        enum reel_status status = mel_push(r->mel, prepared, piece, err);
        if (status != REEL_OK) return status;
        at += piece;
    }
    return REEL_OK;
}

/* ---- the prompt ---- */

/* Appends the rows that are waiting to the session. The last ones leave it with logits to go on
 * from. */
static enum reel_status evaluate_rows(struct recognizer *r, bool last, double *prompt_ms,
                                      struct reel_error *err) {
    double start = clock_ms();
    if (r->n_rows == 0) return REEL_OK;
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = r->n_rows,
                                    .embeddings = r->rows,
                                    .output = last ? REEL_OUTPUT_LAST_LOGITS : REEL_OUTPUT_NONE };
    enum reel_status status = reel_session_eval(r->session, &eval, err);
    r->n_rows = 0;
    *prompt_ms += clock_ms() - start;
    return status;
}

/* Windows at the beginning of the piece that the session holds as they would be made now. */
static int windows_kept(const struct recognizer *r) {
    const float floor = mel_floor(r->mel);
    for (int i = 0; i < r->n_kept && floor > r->floor; i++)
        if (r->lowest[i] < floor) return i;
    return r->n_kept;
}

/* The session keeps the prefix and the windows that can stay. */
static enum reel_status keep_windows(struct recognizer *r, double *prompt_ms,
                                     struct reel_error *err) {
    double start = clock_ms();
    int n_reused;
    r->n_kept = windows_kept(r);
    enum reel_status status =
        r->n_kept > 0
            ? reel_session_truncate(r->session,
                                    r->prompt.n_prefix + audio_tokens(r->n_kept * r->window), err)
            : reel_session_sync(r->session, r->prompt.ids, r->prompt.n_prefix, &n_reused, err);
    *prompt_ms += clock_ms() - start;
    return status;
}

/* Whole windows of features into rows, or the piece's last frames. */
static enum reel_status encode_windows(struct recognizer *r, int first, int n, double *encoder_ms,
                                       struct reel_error *err) {
    const struct reel_model *m = r->model;
    float *to = r->rows + (size_t)r->n_rows * (size_t)m->model.config.hidden;
    double start = clock_ms();
    mel_write(r->mel, first, n, r->features);
    enum reel_status status = model_tower_run(&r->tower, r->features, n, to, err);
    r->n_rows += audio_tokens(n);
    *encoder_ms += clock_ms() - start;
    return status;
}

/* The vectors of all windows that are not kept. */
static enum reel_status add_audio(struct recognizer *r, struct recognized *out,
                                  struct reel_error *err) {
    const int n_frames = mel_frames(r->mel);
    enum reel_status status = REEL_OK;
    for (int first = r->n_kept * r->window; first < n_frames && status == REEL_OK;
         first += r->n_frames) {
        int n = n_frames - first < r->n_frames ? n_frames - first : r->n_frames;
        if (!go_on(r)) return cancelled(err);
        if (r->n_rows + audio_tokens(n) > r->most_rows)
            status = evaluate_rows(r, false, &out->prompt_ms, err);
        if (status == REEL_OK) status = encode_windows(r, first, n, &out->encoder_ms, err);
    }
    out->n_audio_tokens = audio_tokens(n_frames);
    out->n_reused = audio_tokens(r->n_kept * r->window);
    return status;
}

/* Ids go the way of the vectors, as embeddings: one evaluation for both. */
static enum reel_status add_ids(struct recognizer *r, const int32_t *ids, int n, double *prompt_ms,
                                struct reel_error *err) {
    const size_t hidden = (size_t)r->model->model.config.hidden;
    for (int i = 0; i < n; i++) {
        if (r->n_rows == r->most_rows) {
            enum reel_status status = evaluate_rows(r, false, prompt_ms, err);
            if (status != REEL_OK) return status;
        }
        matrix_row_f32(&r->model->model.weights.embedding, ids[i],
                       r->rows + (size_t)r->n_rows++ * hidden);
    }
    return REEL_OK;
}

static void note_windows(struct recognizer *r) {
    const int n = mel_frames(r->mel) / r->window;
    r->floor = mel_floor(r->mel);
    for (; r->n_kept < n; r->n_kept++)
        r->lowest[r->n_kept] = mel_lowest(r->mel, r->n_kept * r->window, r->window);
}

/* ---- answering ---- */

/* A zero byte, which no text may hold, is U+FFFD, as in asr/answer.h. The text may lie where it
 * goes, and moves up by what that takes. */
static void add_text(struct recognizer *r, const char *text, size_t n) {
    static const char replacement[] = { '\xef', '\xbf', '\xbd' };
    size_t more = 0;
    for (size_t i = 0; i < n; i++)
        if (!text[i]) more += sizeof replacement - 1;
    if (n + more > r->raw_room - r->raw_size) return; /* cannot be: it is for the longest tokens */
    char *to = r->raw + r->raw_size, *from = to + more;
    if (n) memmove(from, text, n);
    for (size_t i = 0; i < n; i++) {
        const size_t length = from[i] ? 1 : sizeof replacement;
        memmove(to, from[i] ? from + i : replacement, length);
        to += length;
    }
    r->raw_size = (size_t)(to - r->raw);
}

/* text: NULL for a control token. */
static void add_id(struct recognizer *r, int32_t id, const char *text, size_t n) {
    r->ids[r->n_ids] = id;
    if (n == 0 && id == r->text_tag) { /* some folders call it a control token */
        text = "<asr_text>";
        n = strlen(text);
    }
    add_text(r, text, n);
    r->ends[r->n_ids++] = r->raw_size;
}

static bool on_token(void *user, const struct reel_token *token) {
    struct recognizer *r = user;
    size_t before = r->raw_size;
    add_id(r, token->id, token->text, token->text_bytes);
    if (r->raw_size > before && r->set.on_raw && !r->set.on_raw(r->set.user, r->raw, r->raw_size))
        r->cancelled = true;
    return go_on(r);
}

static void begin_answer(struct recognizer *r, const int32_t *ids, int n_ids) {
    const struct reel_tokenizer *tok = r->model->model.tokenizer;
    struct detokenizer characters = { 0 };
    r->n_ids = 0;
    r->raw_size = 0;
    for (int i = 0; i < n_ids; i++) {
        size_t n = 0, room = r->raw_room - r->raw_size;
        char *to = r->raw + r->raw_size;
        const char *bytes = tokenizer_bytes(tok, ids[i], &n);
        bool text = bytes && !tokenizer_is_control(tok, ids[i]) && DETOKENIZER_ROOM(n) <= room;
        n = text ? detokenizer_push(&characters, bytes, n, to) : 0;
        add_id(r, ids[i], to, n);
    }
}

static enum reel_status generate(struct recognizer *r, int max_tokens, struct recognized *out,
                                 struct reel_error *err) {
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation generation = { .size = sizeof generation,
                                                .max_tokens = max_tokens,
                                                .stop_ids = r->stop_ids,
                                                .n_stop_ids = r->n_stop_ids,
                                                .on_token = on_token,
                                                .user = r };
    enum reel_status status = reel_generate(r->session, &generation, &result, err);
    if (status == REEL_OK && r->cancelled) status = cancelled(err);
    out->generate_ms = result.total_ms;
    out->cut_short = result.reason == REEL_STOP_MAX_TOKENS || result.reason == REEL_STOP_CONTEXT ||
                     result.reason == REEL_STOP_MEMORY;
    return status;
}

static enum reel_status read_prompt(struct recognizer *r, const struct recognizer_turn *turn,
                                    struct recognized *out, struct reel_error *err) {
    r->n_rows = 0;
    enum reel_status status = keep_windows(r, &out->prompt_ms, err);
    if (status == REEL_OK) status = add_audio(r, out, err);
    if (status == REEL_OK)
        status = add_ids(r, r->prompt.ids + r->prompt.n_prefix, r->prompt.n_suffix, &out->prompt_ms,
                         err);
    if (status == REEL_OK) status = add_ids(r, turn->ids, turn->n_ids, &out->prompt_ms, err);
    if (status == REEL_OK) status = evaluate_rows(r, true, &out->prompt_ms, err);
    if (status != REEL_OK || turn->last)
        r->n_kept = 0; /* the session may hold less; or nobody asks again */
    else
        note_windows(r);
    return status;
}

enum reel_status recognizer_answer(struct recognizer *r, const struct recognizer_turn *turn,
                                   struct recognized *out, struct reel_error *err) {
    const int most = turn->max_tokens ? turn->max_tokens : r->set.max_tokens;
    assert(most <= r->set.max_tokens && turn->n_ids <= most);
    *out = (struct recognized){ .n_prompt_tokens =
                                    r->prompt.n_prefix + r->prompt.n_suffix + turn->n_ids };
    r->cancelled = false;
    double start = clock_ms();
    enum reel_status status = turn->last ? mel_finish(r->mel, MEL_LEAST_SAMPLES, err) : REEL_OK;
    out->features_ms = clock_ms() - start;
    begin_answer(r, turn->ids, turn->n_ids);
    if (status == REEL_OK) status = read_prompt(r, turn, out, err);
    if (status == REEL_OK && turn->n_ids < most)
        status = generate(r, most - turn->n_ids, out, err);
    else
        out->cut_short = true;
    out->raw = r->raw;
    out->n_bytes = r->raw_size;
    out->ids = r->ids;
    out->ends = r->ends;
    out->n_ids = r->n_ids;
    out->n_given = turn->n_ids;
    return status;
}

enum reel_status recognizer_run(struct recognizer *r, const float *samples, size_t n, float divisor,
                                struct recognized *out, struct reel_error *err) {
    const struct recognizer_turn whole = { .last = true };
    double start = clock_ms();
    recognizer_begin(r);
    enum reel_status status = recognizer_hear(r, samples, n, divisor, err);
    double features_ms = clock_ms() - start;
    if (status == REEL_OK) status = recognizer_answer(r, &whole, out, err);
    out->features_ms += features_ms;
    return status;
}
