#include "runtime/stop_text.h"

#include <string.h>

static void find_borders(struct stop_string *s) {
    int k = 0;
    s->border[0] = 0;
    for (int i = 1; i < s->n_bytes; i++) {
        while (k > 0 && s->text[i] != s->text[k])
            k = s->border[k - 1];
        if (s->text[i] == s->text[k]) k++;
        s->border[i] = (uint16_t)k;
    }
}

enum reel_status stop_text_start(struct stop_text *stop, const char *const *strings, int n_strings,
                                 struct reel_error *err) {
    stop->n_strings = stop->n_held = 0;
    if (n_strings < 0 || n_strings > STOP_TEXT_STRINGS || (n_strings > 0 && !strings))
        return err_set(err, REEL_E_ARGUMENT, "%d stop strings with %s list; allowed are 0 to %d",
                       n_strings, strings ? "a" : "no", STOP_TEXT_STRINGS);
    for (int i = 0; i < n_strings; i++) {
        size_t n = strings[i] ? strnlen(strings[i], STOP_TEXT_BYTES + 1) : 0;
        if (n < 1 || n > STOP_TEXT_BYTES)
            return err_set(err, REEL_E_ARGUMENT, "stop string %d has %s bytes; allowed are 1 to %d",
                           i, n ? "more" : "no", STOP_TEXT_BYTES);
        /* It would match inside a character and leave half of it. */
        if (((unsigned char)strings[i][0] & 0xc0) == 0x80)
            return err_set(err, REEL_E_ARGUMENT,
                           "stop string %d begins in the middle of a UTF-8 character", i);
        struct stop_string *s = &stop->strings[i];
        s->text = strings[i];
        s->n_bytes = (int)n;
        s->matched = 0;
        find_borders(s);
    }
    stop->n_strings = n_strings;
    return REEL_OK;
}

static bool advance(struct stop_string *s, char byte) {
    while (s->matched > 0 && s->text[s->matched] != byte)
        s->matched = s->border[s->matched - 1];
    if (s->text[s->matched] == byte) s->matched++;
    return s->matched == s->n_bytes;
}

/* The longest stop string that this byte completes, or -1. */
static int advance_all(struct stop_text *stop, char byte) {
    int found = -1;
    for (int i = 0; i < stop->n_strings; i++)
        if (advance(&stop->strings[i], byte) &&
            (found < 0 || stop->strings[i].n_bytes > stop->strings[found].n_bytes))
            found = i;
    return found;
}

size_t stop_text_push(struct stop_text *stop, const char *text, size_t n, char *out, int *match) {
    size_t n_out = (size_t)stop->n_held;
    memcpy(out, stop->held, n_out);
    for (size_t i = 0; i < n; i++) {
        out[n_out++] = text[i];
        *match = advance_all(stop, text[i]);
        if (*match < 0) continue;
        stop->n_held = 0;
        return n_out - (size_t)stop->strings[*match].n_bytes;
    }
    *match = -1;
    int hold = 0;
    for (int i = 0; i < stop->n_strings; i++)
        if (stop->strings[i].matched > hold) hold = stop->strings[i].matched;
    n_out -= (size_t)hold;
    memcpy(stop->held, out + n_out, (size_t)hold);
    stop->n_held = hold;
    return n_out;
}

size_t stop_text_finish(struct stop_text *stop, char *out) {
    size_t n = (size_t)stop->n_held;
    memcpy(out, stop->held, n);
    stop->n_held = 0;
    return n;
}
