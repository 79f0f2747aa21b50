#include "asr/stream.h"

#include "asr/answer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "model/tokenizer_utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
    UNFIXED_STEPS = 2, /* both as in Qwen3-ASR's published program */
    UNFIXED_IDS = 5,
    WORD_BYTES = 30 /* that most words are shorter than */
};

static const char text_tag[] = "<asr_text>";

enum reel_status stream_open(struct stream *s, struct reel_error *err) {
    return mem_zeroed(&s->fixed, (size_t)s->max_tokens, sizeof *s->fixed, "an answer", err);
}

void stream_release(struct stream *s) { mem_free(s->fixed); }

void stream_begin(struct stream *s) {
    s->n_fixed = s->n_steps = 0;
    s->n_heard = s->n_answered = 0;
    s->ending = false;
    outlet_begin(s->outlet);
}

/* ---- what is fixed ---- */

/* Whether raw[at] is what follows the language tag. */
static bool behind_tag(const struct recognized *a, size_t at) {
    const size_t n = sizeof text_tag - 1;
    return at >= n && memcmp(a->raw + at - n, text_tag, n) == 0;
}

/* Whether id k begins a word of the transcript, and a character. */
static bool begins_word(const struct recognized *a, const struct reel_tokenizer *tok, int k) {
    const size_t at = a->ends[k - 1];
    const char *text = a->raw + at;
    size_t n = 0;
    int length;
    const char *bytes = tokenizer_bytes(tok, a->ids[k], &n);
    if (at >= a->n_bytes || !bytes || n == 0) return false;
    if (bytes[0] != text[0] || ((unsigned char)text[0] & 0xc0) == 0x80) return false;
    return live_text_space_before(text, a->n_bytes - at) > 0 || behind_tag(a, at) ||
           transcript_dense(utf8_decode((const unsigned char *)text, &length));
}

int stream_fixed_ids(const struct recognized *answer, const struct reel_tokenizer *tok, bool forced,
                     int before) {
    const int n_stop = answer->cut_short ? 0 : 1;
    struct live_text live;
    live_text_start(&live, forced);
    live_text_push(&live, answer->raw, answer->n_bytes);
    if (!live.has_begin || live.looping) return before;
    for (int k = answer->n_ids - n_stop - UNFIXED_IDS; k > before; k--) {
        const size_t end = answer->ends[k - 1];
        if (end < live.begin && !behind_tag(answer, end)) return before;
        if (end <= live.certain && begins_word(answer, tok, k)) return k;
    }
    return before;
}

static void fix(struct stream *s, const struct recognized *heard) {
    const int n = stream_fixed_ids(heard, s->tok, s->language != NULL, s->n_fixed);
    memcpy(s->fixed + s->n_fixed, heard->ids + s->n_fixed,
           (size_t)(n - s->n_fixed) * sizeof *s->fixed);
    s->n_fixed = n;
}

/* ---- hearing ---- */

/* Where the last bytes of a text begin: at a word, or where none begins nearby, as in a script
 * without spaces, at a character. */
static const char *past_text(const struct buffer *text) {
    if (text->size <= STREAM_PAST_BYTES) return text->size ? text->bytes : "";
    const char *from = text->bytes + text->size - STREAM_PAST_BYTES;
    while (((unsigned char)*from & 0xc0) == 0x80)
        from++;
    const char *space = memchr(from, ' ', WORD_BYTES);
    return space ? space + 1 : from;
}

/* The end of the text so far, after the caller's context. */
static enum reel_status set_past_text(struct stream *s, struct reel_error *err) {
    struct buffer context = { 0 };
    const char *past = past_text(&s->transcript->text);
    enum reel_status status = buffer_text(&context, s->context ? s->context : "", err);
    if (status == REEL_OK && *past)
        status = buffer_printf(&context, err, "%s%s", context.size ? "\n" : "", past);
    if (status == REEL_OK) status = recognizer_set_context(s->recognizer, context.bytes, err);
    buffer_release(&context);
    return status;
}

/* Exactly the first n samples, anew when more was heard, or otherwise. */
static enum reel_status hear(struct stream *s, const float *samples, size_t n, float divisor,
                             struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (s->past_text && s->n_steps == 0) status = set_past_text(s, err);
    if (s->n_heard == 0 || s->n_heard > n || s->divisor != divisor) {
        recognizer_begin(s->recognizer);
        s->n_heard = 0;
        s->divisor = divisor;
    }
    if (status == REEL_OK)
        status = recognizer_hear(s->recognizer, samples + s->n_heard, n - s->n_heard, divisor, err);
    s->n_heard = n;
    return status;
}

static enum reel_status answer(struct stream *s, const float *samples, size_t n, float divisor,
                               struct recognized *out, struct reel_error *err) {
    struct recognizer_turn turn = { .ids = s->fixed, .n_ids = s->n_fixed, .last = s->ending };
    if (!s->ending && s->n_fixed + s->step_tokens < s->max_tokens)
        turn.max_tokens = s->n_fixed + s->step_tokens;
    s->outlet->asked_ms = clock_ms();
    enum reel_status status = hear(s, samples, n, divisor, err);
    const double heard_ms = clock_ms() - s->outlet->asked_ms;
    if (status == REEL_OK) status = recognizer_answer(s->recognizer, &turn, out, err);
    out->features_ms += heard_ms;
    s->n_answered = n;
    return status;
}

bool stream_heard(struct stream *s, const char *raw, size_t n) {
    return !s->ending || outlet_certain(s->outlet, raw, n, false);
}

/* What its text took, from when its last sample was there. */
static void count(struct stream *s) {
    struct reel_transcript *sum = &s->transcript->sum;
    const double ms = clock_ms() - s->outlet->asked_ms;
    if (s->step_tokens == 0) return;
    sum->stream_steps++;
    if (ms > sum->stream_worst_ms) sum->stream_worst_ms = ms;
}

enum reel_status stream_step(struct stream *s, const float *samples, size_t n, float divisor,
                             bool may_fix, struct reel_error *err) {
    struct recognized heard = { 0 };
    enum reel_status status = answer(s, samples, n, divisor, &heard, err);
    if (status != REEL_OK) return status;
    s->n_steps++;
    transcript_spent(s->transcript, &heard);
    if (may_fix && s->n_steps > UNFIXED_STEPS) fix(s, &heard);
    if (s->n_fixed) (void)outlet_certain(s->outlet, heard.raw, heard.ends[s->n_fixed - 1], true);
    status = outlet_rest(s->outlet, heard.raw, heard.n_bytes, err);
    count(s);
    return status;
}

enum reel_status stream_end(struct stream *s, const float *samples, size_t n, float divisor,
                            uint64_t begin, struct reel_error *err) {
    struct recognized heard = { 0 };
    struct asr_answer final = { 0 };
    s->ending = true;
    enum reel_status status = answer(s, samples, n, divisor, &heard, err);
    if (status == REEL_OK)
        status = asr_answer_read(&final, heard.raw, heard.n_bytes, s->language, err);
    if (status == REEL_OK) status = outlet_end(s->outlet, heard.raw, final.text, err);
    if (status == REEL_OK)
        status = transcript_add(s->transcript, (double)begin / REEL_AUDIO_RATE,
                                (double)(begin + n) / REEL_AUDIO_RATE, final.text, final.language,
                                &heard, err);
    asr_answer_release(&final);
    if (status != REEL_OK) return status;
    count(s);
    stream_begin(s);
    return REEL_OK;
}
