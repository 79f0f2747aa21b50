#include "asr/outlet.h"

#include "asr/answer.h"
#include "base/clock.h"
#include "model/tokenizer_utf8.h"

#include <string.h>

void outlet_release(struct outlet *o) { buffer_release(&o->partial); }

void outlet_begin(struct outlet *o) {
    live_text_start(&o->live, o->language != NULL);
    o->shown = 0;
    o->stopped = false;
}

static void tell(struct outlet *o, const char *text, size_t n) {
    if (n == 0 || o->stopped || !o->on_text) return;
    if (!o->on_text(o->user, text, n, o->transcript->n_segments)) o->stopped = true;
}

/* Text behind what was told; before the first stands what joins it to the segments before. */
static bool show(struct outlet *o, const char *text, size_t n) {
    if (n == 0) return !o->stopped;
    const char *joint = o->shown ? "" : transcript_joint(o->transcript, text, n);
    double *first_ms = &o->transcript->sum.first_text_ms;
    if (*first_ms == 0) *first_ms = clock_ms() - o->asked_ms;
    tell(o, joint, strlen(joint));
    tell(o, text, n);
    o->shown += n;
    return !o->stopped;
}

static bool begins_word(const char *text, size_t n) {
    int length;
    return n == 0 || live_text_space_before(text, n) > 0 ||
           transcript_dense(utf8_decode((const unsigned char *)text, &length));
}

/* The last place up to `end` and behind `from` where no word of the n bytes is cut in two, without
 * white space before it; or `from`. */
static size_t whole_words(const char *raw, size_t n, size_t from, size_t end) {
    while (end > from && !begins_word(raw + end, n - end)) {
        do
            end--;
        while (end > from && ((unsigned char)raw[end] & 0xc0) == 0x80);
    }
    return end - live_text_space_after(raw + from, end - from);
}

bool outlet_certain(struct outlet *o, const char *raw, size_t n, bool words) {
    live_text_push(&o->live, raw, n);
    const size_t from = o->live.begin + o->shown;
    if (!o->live.has_begin || o->live.certain <= from) return !o->stopped;
    const size_t end = words ? whole_words(raw, n, from, o->live.certain) : o->live.certain;
    return show(o, raw + from, end - from);
}

static enum reel_status told(const struct outlet *o, struct reel_error *err) {
    if (!o->stopped) return REEL_OK;
    return err_set(err, REEL_E_CANCELLED, "cancelled by the caller");
}

/* Whether the text goes on where what was told of the answer ends. */
static bool goes_on(const struct outlet *o, const char *raw, const char *text) {
    return o->shown <= strlen(text) && memcmp(raw + o->live.begin, text, o->shown) == 0;
}

static enum reel_status tell_rest(struct outlet *o, const char *text, struct reel_error *err) {
    const size_t n = strlen(text);
    const char *joint = o->shown ? "" : transcript_joint(o->transcript, text, n);
    o->partial.size = 0;
    enum reel_status status = buffer_text(&o->partial, joint, err);
    if (status == REEL_OK) status = buffer_text(&o->partial, text, err);
    if (status != REEL_OK) return status;
    if (!o->on_partial(o->user, o->partial.bytes, o->partial.size, o->transcript->n_segments))
        o->stopped = true;
    return told(o, err);
}

enum reel_status outlet_rest(struct outlet *o, const char *raw, size_t n, struct reel_error *err) {
    struct asr_answer answer = { 0 };
    struct live_text tagged;
    if (o->stopped || !o->on_partial) return told(o, err);
    live_text_start(&tagged, o->language != NULL);
    live_text_push(&tagged, raw, n);
    if (!tagged.has_begin) return tell_rest(o, "", err);
    enum reel_status status = asr_answer_read(&answer, raw, n, o->language, err);
    if (status == REEL_OK)
        status = tell_rest(o, goes_on(o, raw, answer.text) ? answer.text + o->shown : "", err);
    asr_answer_release(&answer);
    return status;
}

enum reel_status outlet_end(struct outlet *o, const char *raw, const char *text,
                            struct reel_error *err) {
    if (goes_on(o, raw, text)) (void)show(o, text + o->shown, strlen(text) - o->shown);
    if (!o->stopped && o->on_partial) return tell_rest(o, "", err);
    return told(o, err);
}
