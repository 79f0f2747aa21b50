#include "model/chat_words.h"

#include "base/memory.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

enum reel_status loose_word_from(struct loose_word *w, struct span s, struct reel_error *err) {
    *w = (struct loose_word){ 0 };
    enum reel_status status = mem_zeroed(&w->text, s.n + 1, 1, "a word of answers", err);
    if (status != REEL_OK) return status;
    s = span_without_blanks(s);
    for (size_t i = 0; i < s.n; i++) {
        if (!is_blank(s.at[i]))
            w->text[w->n++] = s.at[i];
        else if (!w->run)
            w->run = w->n;
    }
    if (!w->run) w->run = w->n;
    return REEL_OK;
}

enum reel_status loose_word_init(struct loose_word *w, const char *first, const char *second,
                                 struct reel_error *err) {
    char *both = NULL;
    const size_t n = first ? strlen(first) : 0, m = second ? strlen(second) : 0;
    enum reel_status status = mem_zeroed(&both, n + m + 1, 1, "a word of answers", err);
    if (status != REEL_OK) return status;
    if (n) memcpy(both, first, n);
    if (m) memcpy(both + n, second, m);
    status = loose_word_from(w, (struct span){ both, n + m }, err);
    mem_free(both);
    return status;
}

void loose_word_release(struct loose_word *w) { mem_free(w->text); }

enum loose loose_match_go(struct loose_match *m, const struct loose_word *w, struct span text) {
    for (; m->matched < w->n; m->at++) {
        if (m->at >= text.n) return LOOSE_MAYBE;
        if (is_blank(text.at[m->at])) continue;
        if (text.at[m->at] != w->text[m->matched]) return LOOSE_NO;
        m->matched++;
    }
    return LOOSE_YES;
}

/* The same with the first run in one piece. */
static enum loose go_from_place(struct loose_search *s, const struct loose_word *w,
                                struct span text) {
    for (; s->match.matched < w->run; s->match.at++, s->match.matched++) {
        if (s->match.at >= text.n) return LOOSE_MAYBE;
        if (text.at[s->match.at] != w->text[s->match.matched]) return LOOSE_NO;
    }
    return loose_match_go(&s->match, w, text);
}

enum loose loose_search_go(struct loose_search *s, const struct loose_word *w, struct span text,
                           bool whole) {
    while (w->n && s->from < text.n) {
        if (!s->inside) {
            const char *place = memchr(text.at + s->from, w->text[0], text.n - s->from);
            if (!place) break;
            s->from = (size_t)(place - text.at);
            s->match = (struct loose_match){ .at = s->from };
            s->inside = true;
        }
        const enum loose found = go_from_place(s, w, text);
        if (found == LOOSE_YES || (found == LOOSE_MAYBE && !whole)) return found;
        s->inside = false;
        s->from++;
    }
    s->from = text.n;
    return LOOSE_NO;
}
