/* NULL in each pointer argument of each public function in turn: none crashes, and what is needed
 * is refused with REEL_E_ARGUMENT. The headers are read, so that a function without a row here
 * fails. */
#include "reel_measure.h"
#include "support/speech_model.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char demo[] = "models/demo";
static struct speech_model speech;
static struct reel_model *model;
static struct reel_session *session;
static const struct reel_tokenizer *tok;
static struct reel_audio *audio;
static struct reel_resampler *resampler;
static struct reel_transcriber *transcriber;

/* One call with pointer argument number `null` (from 0) as NULL, err (the last) not counted. A call
 * without a status answers REEL_OK where it gave what the header promises for nothing. */
typedef enum reel_status (*call_fn)(int null, struct reel_error *err);
#define P(i, p)        (null == (i) ? NULL : (p))
#define CALL(name)     static enum reel_status call_##name(int null, struct reel_error *err)
#define OK_IF(expect)  ((expect) ? REEL_OK : REEL_E_MISMATCH)
#define NOTHING(given) ((void)err, (given), REEL_OK)

static const int32_t ids[] = { 1, 2, 3 };
static float floats[16];
static char bytes[64];
static size_t n_bytes;
static int32_t some_ids[64];

static bool no_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user, (void)stage, (void)done, (void)total;
    return false;
}
static void *no_alloc(void *user, size_t n, size_t alignment) {
    (void)user, (void)n, (void)alignment;
    return NULL;
}
static void *no_resize(void *user, void *p, size_t n) {
    (void)user, (void)p, (void)n;
    return NULL;
}
static void no_release(void *user, void *p) { (void)user, (void)p; }

/* ---- reel.h ---- */

CALL(reel_free) { return NOTHING(reel_free(P(0, NULL))); }
CALL(reel_set_allocator) {
    const struct reel_allocator a = {
        .size = sizeof a, .alloc = no_alloc, .resize = no_resize, .release = no_release
    };
    return reel_set_allocator(P(0, &a), err);
}
CALL(reel_model_open) {
    const struct reel_model_options o = { .size = sizeof o, .device = "cpu" };
    struct reel_model *m = NULL;
    enum reel_status status = reel_model_open(P(0, &m), P(1, demo), P(2, &o), err);
    reel_model_close(m);
    return status;
}
CALL(reel_model_open_memory) {
    const struct reel_model_options o = { .size = sizeof o, .device = "cpu" };
    const struct reel_memory_file file = { "config.json", "{", 1 };
    struct reel_model *m = NULL;
    return reel_model_open_memory(P(0, &m), P(1, "name"), P(2, &file), 1, P(3, &o), err);
}
CALL(reel_model_close) { return NOTHING(reel_model_close(P(0, NULL))); }
CALL(reel_model_get_info) {
    struct reel_model_info info = { .size = sizeof info };
    return reel_model_get_info(P(0, model), P(1, &info), err);
}
CALL(reel_model_default_sampling) {
    struct reel_sampling sampling = { .size = sizeof sampling };
    return reel_model_default_sampling(P(0, model), P(1, &sampling), err);
}
CALL(reel_model_check) {
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 8, "
                                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
                                 "\"intermediate_size\": 12, \"vocab_size\": 10}";
    const struct reel_memory_file file = { "config.json", config, sizeof config - 1 };
    bool complete = false;
    return reel_model_check(P(0, "model"), P(1, &file), 1, P(2, &complete), err);
}
CALL(reel_model_inspect) {
    char *json = NULL;
    return reel_model_inspect(P(0, demo), P(1, &json), err);
}
CALL(reel_model_quantize) {
    const struct reel_quantize_options o = { .size = sizeof o, .weights = "int4" };
    struct reel_quantize_result result = { .size = sizeof result };
    /* a folder that exists already */
    enum reel_status status =
        reel_model_quantize(P(0, model), P(1, "tests"), P(2, &o), P(3, &result), err);
    return status == REEL_E_ARGUMENT && null == 3 ? REEL_OK : status;
}
CALL(reel_model_plan) {
    char *text = NULL;
    enum reel_status status = reel_model_plan(P(0, demo), P(1, "h200"), P(2, &text), err);
    reel_free(text);
    return status;
}
CALL(reel_model_plan_with) {
    const struct reel_plan_options o = { .size = sizeof o, .gpu = "h200" };
    char *text = NULL;
    enum reel_status status = reel_model_plan_with(P(0, demo), P(1, &o), P(2, &text), err);
    reel_free(text);
    return status;
}
CALL(reel_devices) {
    const struct reel_devices_options o = { .size = sizeof o };
    char *json = NULL;
    enum reel_status status = reel_devices(P(0, &o), P(1, &json), err);
    reel_free(json);
    return status;
}
CALL(reel_model_tokenizer) {
    (void)err;
    return OK_IF(!reel_model_tokenizer(P(0, model)));
}
CALL(reel_tokenizer_open) {
    struct reel_tokenizer *t = NULL;
    enum reel_status status =
        reel_tokenizer_open(P(0, &t), P(1, demo), P(2, "/nowhere/at/all"), err);
    reel_tokenizer_close(t);
    return status;
}
CALL(reel_tokenizer_close) { return NOTHING(reel_tokenizer_close(P(0, NULL))); }
CALL(reel_tokenizer_size) {
    (void)err;
    return OK_IF(reel_tokenizer_size(P(0, tok)) == 0);
}
CALL(reel_encode) {
    return reel_encode(P(0, tok), P(1, "a b"), 3, 0, P(2, some_ids), 64, P(3, &n_bytes), err);
}
CALL(reel_token_bytes) {
    (void)err;
    n_bytes = 7;
    const char *text = reel_token_bytes(P(0, tok), 65, P(1, &n_bytes));
    return OK_IF(null == 0 ? !text && n_bytes == 0 : text && n_bytes == 7);
}
CALL(reel_token_is_control) {
    (void)err;
    return OK_IF(!reel_token_is_control(P(0, tok), reel_tokenizer_size(tok) - 1));
}
CALL(reel_token_find) {
    (void)err;
    return OK_IF(reel_token_find(P(0, tok), P(1, "a"), 1) == -1);
}
static const struct reel_message hello = { .size = sizeof hello, .role = "user", .content = "x" };
static const struct reel_chat_options chat = { .size = sizeof chat };
CALL(reel_chat_text) {
    char *text = NULL;
    enum reel_status status =
        reel_chat_text(P(0, model), P(1, &hello), 1, P(2, &chat), P(3, &text), P(4, &n_bytes), err);
    reel_free(text);
    return status;
}
CALL(reel_chat_ids) {
    int32_t *made = NULL;
    enum reel_status status =
        reel_chat_ids(P(0, model), P(1, &hello), 1, P(2, &chat), P(3, &made), P(4, &n_bytes), err);
    reel_free(made);
    return status;
}
CALL(reel_chat_opens_thinking) {
    (void)err;
    return OK_IF(!reel_chat_opens_thinking(P(0, model), P(1, &chat)));
}
CALL(reel_chat_read_answer) {
    struct reel_answer answer = { .size = sizeof answer };
    enum reel_status status =
        reel_chat_read_answer(P(0, model), P(1, &chat), P(2, "x"), 1, P(3, &answer), err);
    reel_answer_release(&answer);
    return status;
}
static bool any_piece(void *user, const struct reel_answer_piece *piece) {
    (void)user, (void)piece;
    return true;
}
static const struct reel_answer_reader_options pieces = { .size = sizeof pieces,
                                                          .on_piece = any_piece };
CALL(reel_answer_reader_open) {
    struct reel_answer_reader *reader = NULL;
    enum reel_status status =
        reel_answer_reader_open(P(0, &reader), P(1, model), P(2, &pieces), err);
    reel_answer_reader_close(reader);
    return status;
}
CALL(reel_answer_reader_push) {
    struct reel_answer_reader *reader = NULL;
    enum reel_status status = reel_answer_reader_open(&reader, model, &pieces, err);
    if (status == REEL_OK) status = reel_answer_reader_push(P(0, reader), P(1, "x"), 1, err);
    reel_answer_reader_close(reader);
    return status;
}
CALL(reel_answer_reader_finish) {
    struct reel_answer_reader *reader = NULL;
    enum reel_status status = reel_answer_reader_open(&reader, model, &pieces, err);
    if (status == REEL_OK) status = reel_answer_reader_finish(P(0, reader), err);
    reel_answer_reader_close(reader);
    return status;
}
CALL(reel_answer_reader_close) { return NOTHING(reel_answer_reader_close(P(0, NULL))); }
CALL(reel_answer_release) { return NOTHING(reel_answer_release(P(0, NULL))); }
CALL(reel_session_open) {
    const struct reel_session_options o = { .size = sizeof o, .max_context = 16 };
    struct reel_session *s = NULL;
    enum reel_status status = reel_session_open(P(0, &s), P(1, model), P(2, &o), err);
    reel_session_close(s);
    return status;
}
CALL(reel_session_close) { return NOTHING(reel_session_close(P(0, NULL))); }
CALL(reel_session_length) {
    (void)err;
    return OK_IF(reel_session_length(P(0, session)) == 0);
}
CALL(reel_session_max_context) {
    (void)err;
    return OK_IF(reel_session_max_context(P(0, session)) == 0);
}
CALL(reel_session_ids) {
    (void)err;
    return OK_IF(!reel_session_ids(P(0, session)));
}
CALL(reel_session_sync) {
    int reused;
    return reel_session_sync(P(0, session), P(1, ids), 3, P(2, &reused), err);
}
CALL(reel_session_eval) {
    const struct reel_eval e = { .size = sizeof e, .n = 1, .ids = ids };
    return reel_session_eval(P(0, session), P(1, &e), err);
}
CALL(reel_model_get_embed_info) {
    struct reel_embed_info info = { .size = sizeof info };
    return reel_model_get_embed_info(P(0, model), P(1, &info), err);
}
CALL(reel_model_embed_prompt) {
    const char *text = NULL;
    (void)err;
    return OK_IF(!reel_model_embed_prompt(P(0, model), 0, P(1, &text)) && !text);
}
CALL(reel_session_embed) {
    const struct reel_embed e = { .size = sizeof e, .n_texts = 1 };
    return reel_session_embed(P(0, session), P(1, &e), err);
}
CALL(reel_session_rerank) {
    const struct reel_rerank r = { .size = sizeof r, .n_documents = 1 };
    return reel_session_rerank(P(0, session), P(1, &r), err);
}
CALL(reel_session_truncate) { return reel_session_truncate(P(0, session), 0, err); }
CALL(reel_session_copy) { return reel_session_copy(P(0, session), P(1, session), err); }
CALL(reel_session_snapshot_bytes) {
    (void)err;
    return OK_IF(reel_session_snapshot_bytes(P(0, session)) == 0);
}
CALL(reel_session_snapshot) {
    return reel_session_snapshot(P(0, session), P(1, bytes), sizeof bytes, err);
}
CALL(reel_session_restore) {
    return reel_session_restore(P(0, session), P(1, bytes), sizeof bytes, err);
}
CALL(reel_session_cancel) { return NOTHING(reel_session_cancel(P(0, session))); }
static enum reel_status with_prompt(enum reel_status *status) {
    *status = reel_session_sync(session, ids, 3, NULL, NULL);
    return *status;
}
CALL(reel_generate) {
    const struct reel_generation g = { .size = sizeof g, .max_tokens = 1 };
    struct reel_generation_result result = { .size = sizeof result };
    enum reel_status status;
    if (with_prompt(&status) != REEL_OK) return status;
    return reel_generate(P(0, session), P(1, &g), P(2, &result), err);
}
CALL(reel_generation_start) {
    const struct reel_generation g = { .size = sizeof g, .max_tokens = 1 };
    enum reel_status status;
    if (with_prompt(&status) != REEL_OK) return status;
    status = reel_generation_start(P(0, session), P(1, &g), err);
    (void)reel_generation_finish(session, NULL, NULL);
    return status;
}
CALL(reel_generation_next) {
    const struct reel_token *token;
    return reel_generation_next(P(0, session), P(1, &token), err);
}
CALL(reel_generation_finish) {
    struct reel_generation_result result = { .size = sizeof result };
    return reel_generation_finish(P(0, session), P(1, &result), err);
}

/* ---- reel_speech.h ---- */

CALL(reel_audio_open) {
    const struct reel_audio_options o = { .size = sizeof o };
    struct reel_audio *a = NULL;
    enum reel_status status = reel_audio_open(P(0, &a), P(1, "no.wav"), P(2, &o), err);
    reel_audio_close(a);
    return status;
}
CALL(reel_audio_open_memory) {
    const struct reel_audio_options o = { .size = sizeof o, .encoding = REEL_AUDIO_S16LE };
    struct reel_audio *a = NULL;
    enum reel_status status =
        reel_audio_open_memory(P(0, &a), P(1, "no.wav"), P(2, "bytes"), 4, P(3, &o), err);
    reel_audio_close(a);
    return status;
}
CALL(reel_audio_read) {
    return reel_audio_read(P(0, audio), P(1, floats), 16, P(2, &n_bytes), err);
}
CALL(reel_audio_seconds) {
    (void)err;
    return OK_IF(reel_audio_seconds(P(0, audio)) == -1);
}
CALL(reel_audio_warning) {
    (void)err;
    return OK_IF(!reel_audio_warning(P(0, audio)));
}
CALL(reel_audio_close) { return NOTHING(reel_audio_close(P(0, NULL))); }
CALL(reel_resampler_open) {
    struct reel_resampler *r = NULL;
    enum reel_status status = reel_resampler_open(P(0, &r), 24000, err);
    reel_resampler_close(r);
    return status;
}
CALL(reel_resampler_run) {
    size_t taken = 0;
    return reel_resampler_run(P(0, resampler), P(1, floats), 16, P(2, &taken), P(3, floats), 16,
                              P(4, &n_bytes), err);
}
CALL(reel_resampler_close) { return NOTHING(reel_resampler_close(P(0, NULL))); }
CALL(reel_transcriber_open) {
    const struct reel_transcriber_options o = { .size = sizeof o };
    struct reel_transcriber *t = NULL;
    enum reel_status status = reel_transcriber_open(P(0, &t), P(1, speech.model), P(2, &o), err);
    reel_transcriber_close(t);
    return status;
}
CALL(reel_transcriber_close) { return NOTHING(reel_transcriber_close(P(0, NULL))); }
CALL(reel_transcriber_push) {
    return reel_transcriber_push(P(0, transcriber), P(1, floats), 16, err);
}
CALL(reel_transcriber_finish) {
    struct reel_transcript t = { .size = sizeof t };
    return reel_transcriber_finish(P(0, transcriber), P(1, &t), err);
}
CALL(reel_transcriber_so_far) {
    struct reel_transcript t = { .size = sizeof t };
    return reel_transcriber_so_far(P(0, transcriber), P(1, &t), err);
}
CALL(reel_transcriber_reset) { return NOTHING(reel_transcriber_reset(P(0, transcriber))); }
CALL(reel_transcript_segment) {
    (void)err;
    return OK_IF(!reel_transcript_segment(P(0, NULL), 0));
}
CALL(reel_transcript_text) {
    const struct reel_transcript t = { .size = sizeof t, .text = "", .language = "" };
    char *text = NULL;
    enum reel_status status =
        reel_transcript_text(P(0, &t), REEL_TRANSCRIPT_TEXT, P(1, &text), P(2, &n_bytes), err);
    reel_free(text);
    return status;
}

/* ---- reel_measure.h ---- */

CALL(reel_measure_read_bandwidth) {
    double rate;
    return reel_measure_read_bandwidth(1, P(0, &rate), err);
}
CALL(reel_gpu_limits) {
    const struct reel_limits_options o = { .size = sizeof o, .cuda_dir = "/nowhere" };
    char *json = NULL;
    enum reel_status status = reel_gpu_limits(P(0, &o), P(1, &json), err);
    reel_free(json);
    return status;
}
CALL(reel_meter_open) {
    struct reel_meter *m = NULL;
    return reel_meter_open(P(0, &m), P(1, model), P(2, "/nowhere"), err);
}
CALL(reel_meter_read) { /* what stands there is looked at after its reading */
    struct reel_meter_reading reading = { .size = sizeof reading };
    return reel_meter_read(P(0, (const struct reel_meter *)(const void *)bytes), P(1, &reading),
                           err);
}
CALL(reel_meter_close) { return NOTHING(reel_meter_close(P(0, NULL))); }
CALL(reel_gpu_option) {
    struct reel_gpu_option option = { .size = sizeof option };
    return reel_gpu_option(0, P(0, &option), err);
}
CALL(reel_session_profile) {
    const struct reel_profile_options o = { .size = sizeof o };
    char *json = NULL, *trace = NULL;
    return reel_session_profile(P(0, session), P(1, &o), P(2, &json), P(3, &trace), err);
}
CALL(reel_model_tune) {
    const struct reel_tune_options o = { .size = sizeof o };
    struct reel_tune_result result = { .size = sizeof result };
    return reel_model_tune(P(0, model), P(1, &o), P(2, &result), err);
}
CALL(reel_synthesize) {
    return reel_synthesize(P(0, "/nowhere/at/all"), P(1, "qwen3-0.6b"), 1, no_progress, P(2, bytes),
                           err);
}

/* ---- the table ---- */

/* A letter for each pointer argument but err: n needed, o optional, v answers a value. "" where
 * there is none. */
#define ROW(name, letters)                                                                         \
    { #name, letters, call_##name }
static const struct row {
    const char *name, *letters;
    call_fn call;
} rows[] = {
    { "reel_status_name", "", NULL },
    { "reel_status_text", "", NULL },
    { "reel_version", "", NULL },
    ROW(reel_free, "v"),
    ROW(reel_set_allocator, "n"),
    ROW(reel_model_open, "nno"),
    ROW(reel_model_open_memory, "nono"),
    ROW(reel_model_close, "v"),
    ROW(reel_model_get_info, "nn"),
    ROW(reel_model_default_sampling, "nn"),
    ROW(reel_model_check, "nno"),
    ROW(reel_model_inspect, "nn"),
    ROW(reel_model_plan, "non"),
    ROW(reel_model_plan_with, "non"),
    ROW(reel_model_quantize, "nnno"),
    ROW(reel_devices, "on"),
    ROW(reel_model_tokenizer, "v"),
    ROW(reel_tokenizer_open, "nno"),
    ROW(reel_tokenizer_close, "v"),
    ROW(reel_tokenizer_size, "v"),
    ROW(reel_encode, "nnnn"),
    ROW(reel_token_bytes, "vv"),
    ROW(reel_token_is_control, "v"),
    ROW(reel_token_find, "vv"),
    ROW(reel_chat_text, "nnono"),
    ROW(reel_chat_ids, "nnonn"),
    ROW(reel_chat_opens_thinking, "vv"),
    ROW(reel_chat_read_answer, "nonn"),
    ROW(reel_answer_release, "v"),
    ROW(reel_answer_reader_open, "nnn"),
    ROW(reel_answer_reader_push, "nn"),
    ROW(reel_answer_reader_finish, "n"),
    ROW(reel_answer_reader_close, "v"),
    ROW(reel_session_open, "nno"),
    ROW(reel_session_close, "v"),
    ROW(reel_session_length, "v"),
    ROW(reel_session_max_context, "v"),
    ROW(reel_session_ids, "v"),
    ROW(reel_session_sync, "nno"),
    ROW(reel_session_eval, "nn"),
    ROW(reel_model_get_embed_info, "nn"),
    ROW(reel_model_embed_prompt, "vv"),
    ROW(reel_session_embed, "nn"),
    ROW(reel_session_rerank, "nn"),
    ROW(reel_session_truncate, "n"),
    ROW(reel_session_copy, "nn"),
    ROW(reel_session_snapshot_bytes, "v"),
    ROW(reel_session_snapshot, "nn"),
    ROW(reel_session_restore, "nn"),
    ROW(reel_session_cancel, "v"),
    ROW(reel_generate, "nno"),
    ROW(reel_generation_start, "nn"),
    ROW(reel_generation_next, "nn"),
    ROW(reel_generation_finish, "no"),
    ROW(reel_audio_open, "nno"),
    ROW(reel_audio_open_memory, "nnno"),
    ROW(reel_audio_read, "nnn"),
    ROW(reel_audio_seconds, "v"),
    ROW(reel_audio_warning, "v"),
    ROW(reel_audio_close, "v"),
    ROW(reel_resampler_open, "n"),
    ROW(reel_resampler_run, "nonnn"),
    ROW(reel_resampler_close, "v"),
    ROW(reel_transcriber_open, "nno"),
    ROW(reel_transcriber_close, "v"),
    ROW(reel_transcriber_push, "nn"),
    ROW(reel_transcriber_finish, "no"),
    ROW(reel_transcriber_so_far, "nn"),
    ROW(reel_transcriber_reset, "v"),
    ROW(reel_transcript_segment, "v"),
    ROW(reel_transcript_text, "nno"),
    ROW(reel_measure_read_bandwidth, "n"),
    ROW(reel_gpu_limits, "on"),
    ROW(reel_meter_open, "nno"),
    ROW(reel_meter_read, "nn"),
    ROW(reel_meter_close, "v"),
    ROW(reel_gpu_option, "n"),
    ROW(reel_session_profile, "nono"),
    ROW(reel_model_tune, "noo"),
    ROW(reel_synthesize, "nno"),
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const struct row *find_row(const char *name, size_t n) {
    for (int i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) return &rows[i];
    return NULL;
}

static void null_is_refused_or_means_nothing(void **state) {
    (void)state;
    for (int r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        for (int i = 0; row->letters[i]; i++) {
            struct reel_error err = { 0 };
            const enum reel_status status = row->call(i, &err), without = row->call(i, NULL);
            const bool needed = row->letters[i] == 'n';
            if (status != without)
                fail_msg("%s: pointer %d: %s, without err %s", row->name, i,
                         reel_status_name(status), reel_status_name(without));
            if (needed ? status != REEL_E_ARGUMENT || !err.text[0]
                       : status == REEL_E_MISMATCH || status == REEL_E_ARGUMENT)
                fail_msg("%s: pointer %d: %s: %s", row->name, i, reel_status_name(status),
                         err.text);
        }
    }
}

/* ---- the headers ---- */

/* Without comments; freed by the caller. */
static char *read_header(const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 17);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 17) - 1, file);
    fclose(file);
    assert_true(n > 1000 && n < (1 << 17) - 1);
    for (char *at = text; (at = strstr(at, "/*"));) {
        char *end = strstr(at, "*/");
        assert_non_null(end);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
    return text;
}

/* Pointer arguments of a declaration "(...)" without err: those with an asterisk. */
static int count_pointers(const char *at) {
    int n = 0;
    for (bool counted = false; *at != ')'; at++) {
        if (*at == ',') counted = false;
        if (*at == '*' && !counted) n++, counted = true;
        if (strncmp(at, "struct reel_error *err", 22) == 0) return n;
    }
    return n;
}

static void every_function_of_the_headers_has_its_row(void **state) {
    (void)state;
    static const char *const headers[] = { "include/reel.h", "include/reel_speech.h",
                                           "include/reel_measure.h" };
    bool seen[N_ROWS] = { false };
    for (size_t h = 0; h < sizeof headers / sizeof *headers; h++) {
        char *text = read_header(headers[h]);
        for (char *at = text; (at = strstr(at, "\nREEL_API "));) {
            char *open = strchr(++at, '('), *name = open;
            while (name[-1] == '_' || isalnum((unsigned char)name[-1]))
                name--;
            const struct row *row = find_row(name, (size_t)(open - name));
            if (!row) fail_msg("%s: %.*s has no row", headers[h], (int)(open - name), name);
            if (count_pointers(open) != (int)strlen(row->letters))
                fail_msg("%s: %s has %d pointers, its row \"%s\"", headers[h], row->name,
                         count_pointers(open), row->letters);
            seen[row - rows] = true;
        }
        free(text);
    }
    for (int i = 0; i < N_ROWS; i++)
        if (!seen[i]) fail_msg("no header declares %s", rows[i].name);
}

/* ---- main ---- */

static int set_up(void **state) {
    (void)state;
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .chat_template = "chatml" };
    const struct reel_session_options small = { .size = sizeof small, .max_context = 32 };
    const struct reel_audio_options raw = { .size = sizeof raw, .encoding = REEL_AUDIO_F32LE };
    struct reel_error err = { 0 };
    enum reel_status status = reel_model_open(&model, demo, &options, &err);
    if (status == REEL_OK) status = reel_session_open(&session, model, &small, &err);
    if (status == REEL_OK) status = reel_audio_open(&audio, "LICENSE", &raw, &err);
    if (status == REEL_OK) status = reel_resampler_open(&resampler, 24000, &err);
    tok = reel_model_tokenizer(model);
    if (status != REEL_OK || speech_model_open(&speech, 1) != 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    return reel_transcriber_open(&transcriber, speech.model, NULL, &err) == REEL_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    reel_transcriber_close(transcriber);
    reel_audio_close(audio);
    reel_resampler_close(resampler);
    reel_session_close(session);
    reel_model_close(model);
    return speech_model_close(&speech);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_refused_or_means_nothing),
        cmocka_unit_test(every_function_of_the_headers_has_its_row),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
