#include "cli/line_editor.h"

#include "cli/grapheme.h"
#include "cli/keys.h"
#include "cli/raw_mode.h"
#include "cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long to wait for what follows a byte that is Esc alone, or the beginning of many keys; and
 * for the rest of a key that has begun for certain. */
#define ESCAPE_MS   100
#define REST_MS     2000
#define CHUNK_BYTES ((size_t)1 << 14)
/* As much as two of the longest lines; the terminal holds back what is more. */
#define TYPED_BYTES (2 * LINE_MAX_BYTES)

/* What a key leaves to be done. */
enum outcome { GO_ON, ENTERED, INTERRUPTED, CLOSED };

bool line_editor_can(void) {
    const char *term = getenv("TERM");
    return terminal_is(stdin) && terminal_is(stdout) && term && term[0] &&
           strcmp(term, "dumb") != 0;
}

static void ring(void) { fputc('\a', stdout); }

/* ---- bytes from the terminal ----------------------------------------------------------------- */

static size_t n_waiting(const struct line_editor *ed) { return ed->typed.size - ed->n_taken; }
static const char *waiting(const struct line_editor *ed) { return ed->typed.bytes + ed->n_taken; }

static void take_bytes(struct line_editor *ed, size_t n) {
    ed->n_taken += n;
    if (ed->n_taken < ed->typed.size) return;
    ed->n_taken = ed->typed.size = 0;
}

/* Reads once; false at the end of input, or where no memory is left. */
static bool read_typed(struct line_editor *ed) {
    char chunk[CHUNK_BYTES];
    const ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) return false;
    /* a paste whose end got lost would take every key: Ctrl-C alone is none of its text */
    if (n == 1 && chunk[0] == 3) ed->pasting = false;
    if (ed->n_taken > 0) {
        memmove(ed->typed.bytes, waiting(ed), n_waiting(ed));
        ed->typed.size -= ed->n_taken;
        ed->n_taken = 0;
    }
    return buffer_append(&ed->typed, chunk, (size_t)n, NULL) == REEL_OK;
}

static const char *last_of(const struct line_editor *ed, const char *text) {
    const char *found = NULL, *at = n_waiting(ed) ? waiting(ed) : NULL;
    while (at && (at = strstr(at, text)))
        found = at++;
    return found;
}

/* Whether the last byte stands in a paste. */
static bool ends_in_paste(const struct line_editor *ed) {
    const char *begin = last_of(ed, PASTE_BEGIN), *end = last_of(ed, PASTE_END);
    return begin ? !end || end < begin : ed->pasting && !end;
}

void line_editor_listen(struct line_editor *ed) {
    while (n_waiting(ed) < TYPED_BYTES && !interrupt_pending() && terminal_wait(0) &&
           raw_mode_in_front()) {
        if (!read_typed(ed)) return;
        /* Ctrl-C is a signal now, but one that was typed a moment too early came as a byte */
        if (n_waiting(ed) && ed->typed.bytes[ed->typed.size - 1] == 3 && !ends_in_paste(ed)) {
            ed->typed.size--;
            interrupt_raise();
        }
    }
}

/* ---- pasted text ----------------------------------------------------------------------------- */

/* Puts a part of a paste into the text: ends of lines become newlines, what is no UTF-8 becomes
 * U+FFFD, NUL is dropped, and no character is a key. */
static enum reel_status insert_paste(struct line_editor *ed, const char *bytes, size_t n,
                                     struct reel_error *err) {
    struct buffer clean = { 0 };
    enum reel_status status = REEL_OK;
    int32_t c;
    for (size_t at = 0, length; at < n && status == REEL_OK; at += length) {
        length = character_read(bytes, n, at, &c);
        const bool second_half = bytes[at] == '\n' && ed->paste_cut;
        ed->paste_cut = bytes[at] == '\r';
        if (bytes[at] == '\0' || second_half) continue;
        if (bytes[at] == '\r')
            status = buffer_append(&clean, "\n", 1, err);
        else if (c == 0xfffd)
            status = buffer_append(&clean, "\xef\xbf\xbd", 3, err);
        else
            status = buffer_append(&clean, bytes + at, length, err);
    }
    if (status == REEL_OK && clean.size)
        status = edit_insert(&ed->edit, clean.bytes, clean.size, err);
    buffer_release(&clean);
    if (status != REEL_E_LIMIT) return status;
    ring(); /* the text is full: the rest has no place */
    return REEL_OK;
}

/* How many of the last bytes could be the beginning of the paste's end, or of a character. */
static size_t undecided(const char *bytes, size_t n) {
    size_t held = n < strlen(PASTE_END) - 1 ? n : strlen(PASTE_END) - 1;
    while (held > 0 && memcmp(bytes + n - held, PASTE_END, held) != 0)
        held--;
    if (held > 0) return held;
    for (size_t back = 1; back < 4 && back <= n; back++) {
        const unsigned char c = (unsigned char)bytes[n - back];
        if (c >= 0xc0) return back < (c < 0xe0 ? 2u : c < 0xf0 ? 3u : 4u) ? back : 0;
        if (c < 0x80) return 0;
    }
    return 0;
}

static const char *find_end(const char *bytes, size_t n) {
    const size_t length = strlen(PASTE_END);
    for (const char *at = bytes; (size_t)(bytes + n - at) >= length; at++) {
        at = memchr(at, PASTE_END[0], n - (size_t)(at - bytes));
        if (!at || (size_t)(bytes + n - at) < length) return NULL;
        if (memcmp(at, PASTE_END, length) == 0) return at;
    }
    return NULL;
}

static enum reel_status take_paste(struct line_editor *ed, struct reel_error *err) {
    const char *bytes = waiting(ed), *end = find_end(bytes, n_waiting(ed));
    const size_t n = end ? (size_t)(end - bytes) : n_waiting(ed) - undecided(bytes, n_waiting(ed));
    enum reel_status status = insert_paste(ed, bytes, n, err);
    take_bytes(ed, n + (end ? strlen(PASTE_END) : 0));
    ed->pasting = !end;
    return status;
}

/* ---- history --------------------------------------------------------------------------------- */

static enum reel_status show_entry(struct line_editor *ed, int entry, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (entry < 0 || entry > ed->history.n) {
        ring();
        return REEL_OK;
    }
    if (ed->browsed == ed->history.n && entry < ed->history.n) {
        ed->draft.size = 0;
        status = buffer_append(&ed->draft, ed->edit.text.bytes, ed->edit.text.size, err);
    }
    ed->browsed = entry;
    if (status != REEL_OK) return status;
    const char *text = entry < ed->history.n ? ed->history.entries[entry] : ed->draft.bytes;
    return edit_set(&ed->edit, text ? text : "", text ? strlen(text) : 0, err);
}

/* Looks for the pattern from the entry `from` on, that one included where `stay`. */
static void look(struct line_editor *ed, int from, int step, bool stay) {
    const int found = history_search(&ed->history, stay ? from - step : from, step,
                                     ed->pattern.bytes, ed->pattern.size);
    if (found >= 0)
        ed->found = found;
    else
        ring();
}

static enum reel_status end_search(struct line_editor *ed, bool keep, struct reel_error *err) {
    ed->searching = false;
    return keep && ed->found >= 0 ? show_entry(ed, ed->found, err) : REEL_OK;
}

static enum reel_status begin_search(struct line_editor *ed, struct reel_error *err) {
    ed->searching = true;
    ed->found = -1;
    ed->pattern.size = 0;
    return buffer_append(&ed->pattern, "", 0, err);
}

/* True when the key was for the search. */
static bool search_key(struct line_editor *ed, const struct key *key, enum reel_status *status,
                       struct reel_error *err) {
    const int from = ed->found >= 0 ? ed->found : ed->history.n - 1;
    switch (key->code) {
    case KEY_TEXT:
        *status = buffer_append(&ed->pattern, key->text, key->n, err);
        if (*status == REEL_OK) look(ed, from, -1, true);
        return true;
    case KEY_BACKSPACE:
        if (ed->pattern.size)
            ed->pattern.size =
                grapheme_begin(ed->pattern.bytes, ed->pattern.size, ed->pattern.size);
        ed->pattern.bytes[ed->pattern.size] = '\0';
        return true;
    case KEY_SEARCH:
        look(ed, from, -1, ed->found < 0);
        return true;
    case KEY_SEARCH_BACK:
        look(ed, from, 1, ed->found < 0);
        return true;
    case KEY_LEAVE:
    case KEY_INTERRUPT:
        *status = end_search(ed, false, err);
        return true;
    case KEY_NONE:
        return true;
    default:
        *status = end_search(ed, true, err);
        return *status != REEL_OK;
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void move(struct line_editor *ed, size_t place) {
    ed->edit.cursor = place;
    ed->edit.killing = false;
}

/* True when the key was one that moves the cursor. */
static bool moving_key(struct line_editor *ed, enum key_code code) {
    const struct edit_text *e = &ed->edit;
    switch (code) {
    case KEY_LEFT:
        move(ed, edit_left(e));
        return true;
    case KEY_RIGHT:
        move(ed, edit_right(e));
        return true;
    case KEY_WORD_LEFT:
        move(ed, edit_word_left(e));
        return true;
    case KEY_WORD_RIGHT:
        move(ed, edit_word_right(e));
        return true;
    case KEY_BEGIN:
        move(ed, edit_line_begin(e));
        return true;
    case KEY_END:
        move(ed, edit_line_end(e));
        return true;
    default:
        return false;
    }
}

/* True when the key was one that takes text out. A line that ends here is joined with the next. */
static bool cutting_key(struct line_editor *ed, enum key_code code) {
    struct edit_text *e = &ed->edit;
    const size_t end = edit_line_end(e), begin = edit_line_begin(e);
    switch (code) {
    case KEY_BACKSPACE:
        edit_erase(e, edit_left(e));
        return true;
    case KEY_DELETE:
        edit_erase(e, edit_right(e));
        return true;
    case KEY_CUT_TO_END:
        edit_kill(e, end == e->cursor ? edit_right(e) : end);
        return true;
    case KEY_CUT_TO_BEGIN:
        edit_kill(e, begin == e->cursor ? edit_left(e) : begin);
        return true;
    case KEY_CUT_BLANK_LEFT:
        edit_kill(e, edit_blank_left(e));
        return true;
    case KEY_CUT_WORD_LEFT:
        edit_kill(e, edit_word_left(e));
        return true;
    case KEY_CUT_WORD_RIGHT:
        edit_kill(e, edit_word_right(e));
        return true;
    default:
        return false;
    }
}

/* A backslash at the end asks for another line. */
static bool takes_backslash(struct edit_text *e) {
    const size_t n = e->text.size;
    if (n == 0 || e->text.bytes[n - 1] != '\\') return false;
    e->text.bytes[n - 1] = '\n';
    e->cursor = n;
    return true;
}

static enum reel_status insert(struct line_editor *ed, const char *text, size_t n,
                               struct reel_error *err) {
    enum reel_status status = edit_insert(&ed->edit, text, n, err);
    if (status != REEL_E_LIMIT) return status;
    ring();
    return REEL_OK;
}

static enum reel_status vertical(struct line_editor *ed, int step, struct reel_error *err) {
    if (edit_vertical(&ed->edit, step)) return REEL_OK;
    return show_entry(ed, ed->browsed + step, err);
}

static void stop_here(struct line_editor *ed) {
    line_view_end(&ed->view);
    raw_mode_suspend();
}

static void quit_here(struct line_editor *ed) {
    line_view_end(&ed->view);
    raise(SIGQUIT);
}

static enum outcome other_key(struct line_editor *ed, const struct key *key,
                              enum reel_status *status, struct reel_error *err) {
    switch (key->code) {
    case KEY_TEXT:
        *status = insert(ed, key->text, key->n, err);
        break;
    case KEY_NEWLINE:
        *status = insert(ed, "\n", 1, err);
        break;
    case KEY_ENTER:
        return takes_backslash(&ed->edit) ? GO_ON : ENTERED;
    case KEY_UP:
        *status = vertical(ed, -1, err);
        break;
    case KEY_DOWN:
        *status = vertical(ed, 1, err);
        break;
    case KEY_DELETE_OR_CLOSE:
        if (ed->edit.text.size == 0) return CLOSED;
        edit_erase(&ed->edit, edit_right(&ed->edit));
        break;
    case KEY_YANK:
        *status = edit_yank(&ed->edit, err);
        if (*status == REEL_E_LIMIT) *status = REEL_OK;
        break;
    case KEY_TRANSPOSE:
        edit_transpose(&ed->edit);
        break;
    case KEY_CLEAR_SCREEN:
        fputs("\033[H\033[2J", stdout);
        line_view_forget(&ed->view);
        break;
    case KEY_SEARCH:
    case KEY_SEARCH_BACK:
        *status = begin_search(ed, err);
        break;
    case KEY_PASTE:
        ed->pasting = true;
        ed->paste_cut = false;
        break;
    case KEY_INTERRUPT:
        return INTERRUPTED;
    case KEY_SUSPEND:
        stop_here(ed);
        break;
    case KEY_QUIT:
        quit_here(ed);
        break;
    default:
        break;
    }
    return GO_ON;
}

/* Looks at what was typed until a line is entered or nothing is left. */
static enum outcome take_typed(struct line_editor *ed, enum reel_status *status,
                               struct reel_error *err) {
    enum outcome outcome = GO_ON;
    while (outcome == GO_ON && *status == REEL_OK && n_waiting(ed)) {
        struct key key;
        if (ed->pasting) {
            const size_t before = n_waiting(ed);
            *status = take_paste(ed, err);
            if (ed->pasting && n_waiting(ed) == before) break;
            continue;
        }
        const size_t n = key_read(waiting(ed), n_waiting(ed), ed->waited, &key);
        if (n == 0) break;
        if ((!ed->searching || !search_key(ed, &key, status, err)) && *status == REEL_OK &&
            !moving_key(ed, key.code) && !cutting_key(ed, key.code))
            outcome = other_key(ed, &key, status, err);
        take_bytes(ed, n);
    }
    ed->waited = false;
    return outcome;
}

/* ---- reading a line -------------------------------------------------------------------------- */

static void draw(struct line_editor *ed) {
    const struct buffer *text = &ed->edit.text;
    size_t cursor = ed->edit.cursor;
    if (ed->searching) {
        ed->shown.size = 0;
        const char *entry = ed->found >= 0 ? ed->history.entries[ed->found] : "";
        if (buffer_printf(&ed->shown, NULL, "(search) %s", ed->pattern.bytes) != REEL_OK) return;
        cursor = ed->shown.size;
        if (buffer_printf(&ed->shown, NULL, ": %s", entry) != REEL_OK) return;
        text = &ed->shown;
    }
    line_view_draw(&ed->view, text->bytes, text->size, cursor);
}

/* Waits for more; false at the end of input. */
static bool wait_for_more(struct line_editor *ed) {
    const bool begun = n_waiting(ed) && !ed->pasting && *waiting(ed) == '\033';
    const int most_ms = !begun ? -1 : n_waiting(ed) == 1 ? ESCAPE_MS : REST_MS;
    if (terminal_wait(most_ms)) return read_typed(ed);
    ed->waited = begun;
    return true;
}

static void begin(struct line_editor *ed) {
    ed->edit.text.size = ed->edit.cursor = 0;
    ed->edit.text.bytes[0] = '\0';
    ed->edit.killing = ed->searching = ed->pasting = false;
    ed->browsed = ed->history.n;
    line_view_forget(&ed->view);
    (void)raw_mode_resumed();
    raw_mode_signals(false);
}

/* The cursor leaves the text, which stays on the screen as it was entered. */
static void end(struct line_editor *ed) {
    ed->searching = false;
    ed->edit.cursor = ed->edit.text.size;
    draw(ed);
    line_view_end(&ed->view);
    raw_mode_signals(true);
}

enum line_end line_editor_read(struct line_editor *ed, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    enum outcome outcome = GO_ON;
    begin(ed);
    for (;;) {
        outcome = take_typed(ed, &status, err);
        if (outcome != GO_ON || status != REEL_OK) break;
        if (interrupt_take()) {
            outcome = INTERRUPTED;
            break;
        }
        if (raw_mode_resumed()) line_view_forget(&ed->view);
        (void)raw_mode_resized(); /* what is drawn now has the new width */
        if (!ed->pasting && !terminal_wait(0)) draw(ed);
        if (ferror(stdout) || !wait_for_more(ed)) {
            outcome = CLOSED;
            break;
        }
    }
    end(ed);
    if (status != REEL_OK) return LINE_FAILED;
    if (outcome == CLOSED) return LINE_CLOSED;
    if (outcome == INTERRUPTED) return LINE_INTERRUPTED;
    while (ed->edit.text.size && ed->edit.text.bytes[ed->edit.text.size - 1] == '\n')
        ed->edit.text.bytes[--ed->edit.text.size] = '\0';
    status = history_add(&ed->history, ed->edit.text.bytes, err);
    return status == REEL_OK ? LINE_READ : LINE_FAILED;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What was typed before the terminal was taken over has newlines where Enter was pressed. */
static void take_early_keys(struct line_editor *ed) {
    while (terminal_wait(0) && read_typed(ed) && ed->typed.size < CHUNK_BYTES)
        for (size_t i = 0; i < ed->typed.size; i++)
            if (ed->typed.bytes[i] == '\n') ed->typed.bytes[i] = '\r';
}

enum reel_status line_editor_open(struct line_editor *ed, const char *history_path,
                                  struct reel_error *err) {
    *ed = (struct line_editor){ 0 };
    line_view_open(&ed->view, stdout);
    enum reel_status status = edit_open(&ed->edit, LINE_MAX_BYTES, err);
    if (status == REEL_OK) status = history_open(&ed->history, history_path, err);
    if (status == REEL_OK && !raw_mode_enter())
        status = err_set(err, REEL_E_IO, "the terminal: %s", strerror(errno));
    if (status == REEL_OK)
        take_early_keys(ed);
    else
        line_editor_close(ed);
    return status;
}

void line_editor_close(struct line_editor *ed) {
    raw_mode_leave();
    edit_close(&ed->edit);
    line_view_close(&ed->view);
    history_close(&ed->history);
    buffer_release(&ed->typed);
    buffer_release(&ed->draft);
    buffer_release(&ed->pattern);
    buffer_release(&ed->shown);
    *ed = (struct line_editor){ 0 };
}
