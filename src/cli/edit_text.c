#include "cli/edit_text.h"

#include "cli/grapheme.h"

#include <string.h>

enum reel_status edit_open(struct edit_text *e, size_t limit, struct reel_error *err) {
    *e = (struct edit_text){ .text = { .limit = limit }, .killed = { .limit = limit } };
    return buffer_append(&e->text, "", 0, err);
}

void edit_close(struct edit_text *e) {
    buffer_release(&e->text);
    buffer_release(&e->killed);
    *e = (struct edit_text){ 0 };
}

enum reel_status edit_set(struct edit_text *e, const char *text, size_t n, struct reel_error *err) {
    e->text.size = 0;
    e->cursor = 0;
    e->text.bytes[0] = '\0';
    return edit_insert(e, text, n, err);
}

enum reel_status edit_insert(struct edit_text *e, const char *text, size_t n,
                             struct reel_error *err) {
    const size_t before = e->text.size;
    enum reel_status status = buffer_append(&e->text, text, n, err);
    if (status != REEL_OK) return status;
    char *place = e->text.bytes + e->cursor;
    memmove(place + n, place, before - e->cursor);
    memcpy(place, text, n);
    e->cursor += n;
    e->killing = false;
    return REEL_OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

size_t edit_left(const struct edit_text *e) {
    return e->cursor ? grapheme_begin(e->text.bytes, e->text.size, e->cursor) : 0;
}

size_t edit_right(const struct edit_text *e) {
    return e->cursor < e->text.size ? grapheme_end(e->text.bytes, e->text.size, e->cursor, NULL)
                                    : e->text.size;
}

static bool is_word(const struct edit_text *e, size_t at) {
    int32_t c;
    (void)character_read(e->text.bytes, e->text.size, at, &c);
    return character_in_word(c);
}

static bool is_no_blank(const struct edit_text *e, size_t at) {
    return !strchr(" \t\n", e->text.bytes[at]);
}

/* Where a run of characters that `wanted` takes begins, before the cursor. */
static size_t run_left(const struct edit_text *e,
                       bool (*wanted)(const struct edit_text *e, size_t at)) {
    bool inside = false;
    size_t at = e->cursor;
    while (at > 0) {
        const size_t before = grapheme_begin(e->text.bytes, e->text.size, at);
        if (inside && !wanted(e, before)) break;
        inside = inside || wanted(e, before);
        at = before;
    }
    return at;
}

size_t edit_word_left(const struct edit_text *e) { return run_left(e, is_word); }
size_t edit_blank_left(const struct edit_text *e) { return run_left(e, is_no_blank); }

size_t edit_word_right(const struct edit_text *e) {
    size_t at = e->cursor;
    while (at < e->text.size && !is_word(e, at))
        at = grapheme_end(e->text.bytes, e->text.size, at, NULL);
    while (at < e->text.size && is_word(e, at))
        at = grapheme_end(e->text.bytes, e->text.size, at, NULL);
    return at;
}

size_t edit_line_begin(const struct edit_text *e) {
    size_t at = e->cursor;
    while (at > 0 && e->text.bytes[at - 1] != '\n')
        at--;
    return at;
}

size_t edit_line_end(const struct edit_text *e) {
    const char *end = memchr(e->text.bytes + e->cursor, '\n', e->text.size - e->cursor);
    return end ? (size_t)(end - e->text.bytes) : e->text.size;
}

bool edit_vertical(struct edit_text *e, int direction) {
    const char *text = e->text.bytes;
    const size_t begin = edit_line_begin(e), end = edit_line_end(e), n = e->text.size;
    int wanted = 0, columns;
    if (direction < 0 ? begin == 0 : end == n) return false;
    for (size_t at = begin; at < e->cursor; wanted += columns)
        at = grapheme_end(text, n, at, &columns);
    if (direction < 0) {
        e->cursor = begin - 1;
        e->cursor = edit_line_begin(e);
    } else {
        e->cursor = end + 1;
    }
    const size_t stop = edit_line_end(e);
    while (e->cursor < stop) {
        const size_t next = grapheme_end(text, stop, e->cursor, &columns);
        if (columns > wanted) break;
        wanted -= columns;
        e->cursor = next;
    }
    e->killing = false;
    return true;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void take_out(struct edit_text *e, size_t from, size_t to) {
    memmove(e->text.bytes + from, e->text.bytes + to, e->text.size - to + 1);
    e->text.size -= to - from;
    e->cursor = from;
}

void edit_erase(struct edit_text *e, size_t place) {
    const bool before = place < e->cursor;
    take_out(e, before ? place : e->cursor, before ? e->cursor : place);
    e->killing = false;
}

void edit_kill(struct edit_text *e, size_t place) {
    const bool before = place < e->cursor;
    const size_t from = before ? place : e->cursor, n = (before ? e->cursor : place) - from;
    if (!e->killing) e->killed.size = 0;
    const size_t had = e->killed.size;
    if (n > 0 && buffer_append(&e->killed, e->text.bytes + from, n, NULL) == REEL_OK && before) {
        memmove(e->killed.bytes + n, e->killed.bytes, had);
        memcpy(e->killed.bytes, e->text.bytes + from, n);
    }
    take_out(e, from, from + n);
    e->killing = true;
}

enum reel_status edit_yank(struct edit_text *e, struct reel_error *err) {
    return e->killed.size ? edit_insert(e, e->killed.bytes, e->killed.size, err) : REEL_OK;
}

void edit_transpose(struct edit_text *e) {
    e->killing = false;
    if (e->cursor == e->text.size) e->cursor = edit_left(e);
    if (e->cursor == 0) return;
    const size_t first = edit_left(e), middle = e->cursor, end = edit_right(e);
    char moved[256]; /* as long as a cluster is taken to be at most */
    if (middle - first > sizeof moved) return;
    memcpy(moved, e->text.bytes + first, middle - first);
    memmove(e->text.bytes + first, e->text.bytes + middle, end - middle);
    memcpy(e->text.bytes + first + (end - middle), moved, middle - first);
    e->cursor = end;
}
