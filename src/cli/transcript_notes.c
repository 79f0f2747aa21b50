#include "cli/transcript_notes.h"

enum reel_status note_cut_short(struct buffer *notes, const char *name,
                                const struct reel_transcript *t, struct reel_error *err) {
    const struct reel_segment *first = NULL;
    int n = 0;
    for (int i = t->n_segments - 1; i >= 0; i--) {
        const struct reel_segment *segment = reel_transcript_segment(t, i);
        if (!segment->cut_short) continue;
        first = segment;
        n++;
    }
    if (!first) return REEL_OK;
    enum reel_status status = buffer_printf(
        notes, err, "reel: %s: the text from %.1f s to %.1f s was cut short after %d tokens", name,
        first->start, first->end, first->n_ids);
    if (status == REEL_OK && n > 1)
        status =
            buffer_printf(notes, err, ", and that of %d more segment%s", n - 1, n > 2 ? "s" : "");
    if (status == REEL_OK) status = buffer_text(notes, "; see --tokens\n", err);
    return status;
}

enum reel_status note_figures(struct buffer *notes, const char *name,
                              const struct reel_transcript *t, double ms, struct reel_error *err) {
    enum reel_status status =
        buffer_printf(notes, err, "%s: %.1f s of audio in %.2f s", name, t->seconds, ms / 1e3);
    if (status == REEL_OK && ms > 0)
        status = buffer_printf(notes, err, ", %.1fx real time", t->seconds * 1e3 / ms);
    if (status == REEL_OK)
        status = buffer_printf(
            notes, err,
            " | features %.1f ms, encoder %.1f ms, prompt %d tokens %.1f ms, text %d tokens "
            "%.1f ms",
            t->features_ms, t->encoder_ms, t->n_prompt_tokens + t->n_audio_tokens, t->prompt_ms,
            t->n_tokens, t->generate_ms);
    if (status == REEL_OK && t->first_text_ms > 0)
        status = buffer_printf(notes, err, ", first after %.1f ms", t->first_text_ms);
    return status;
}
