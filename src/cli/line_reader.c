#include "cli/line_reader.h"

#include "base/memory.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#define LINE_MAX_BYTES ((size_t)1 << 20)

#ifdef REEL_WITH_EDIT
#include <histedit.h>

#define HISTORY_LINES 1000

static char *prompt(EditLine *el) {
    static char first[] = "> ", next[] = ". ";
    struct line_reader *reader = NULL;
    el_get(el, EL_CLIENTDATA, &reader);
    return reader->continued ? next : first;
}

/* One character for the editor. Its own reader would go on after a Ctrl-C. */
static int read_character(EditLine *el, wchar_t *out) {
    mbstate_t state = { 0 };
    (void)el;
    for (;;) {
        char byte;
        if (!interrupt_or_input(stdin)) return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used <= 1) return 1;
        if (used == (size_t)-1) state = (mbstate_t){ 0 }; /* no character: skipped */
    }
}

/* Only this user may read what was typed: the file is made with that mode before it is written. */
static void load_history(struct line_reader *reader) {
    HistEvent event;
    int fd = open(reader->history_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    fchmod(fd, 0600);
    close(fd);
    history(reader->history, &event, H_LOAD, reader->history_path);
}

static void open_editor(struct line_reader *reader) {
    HistEvent event;
    EditLine *el = el_init("reel", stdin, stdout, stderr);
    if (!el) return;
    reader->editor = el;
    reader->history = history_init();
    el_set(el, EL_CLIENTDATA, reader);
    el_set(el, EL_PROMPT, prompt);
    el_set(el, EL_EDITOR, "emacs");
    el_set(el, EL_GETCFN, read_character);
    if (!reader->history) return;
    history(reader->history, &event, H_SETSIZE, HISTORY_LINES);
    history(reader->history, &event, H_SETUNIQUE, 1);
    el_set(el, EL_HIST, history, reader->history);
    if (reader->history_path) load_history(reader);
    el_source(el, NULL); /* the user's ~/.editrc */
}

static void close_editor(struct line_reader *reader) {
    HistEvent event;
    if (reader->history && reader->history_path)
        history(reader->history, &event, H_SAVE, reader->history_path);
    if (reader->history) history_end(reader->history);
    if (reader->editor) el_end(reader->editor);
}

static enum line_end read_edited(struct line_reader *reader, struct reel_error *err) {
    HistEvent event;
    int n = 0;
    const char *line = el_gets(reader->editor, &n);
    if (interrupt_take()) {
        putchar('\n');
        return LINE_INTERRUPTED;
    }
    if (!line || n <= 0) return LINE_CLOSED;
    if (reader->history && n > 1) history(reader->history, &event, H_ENTER, line);
    return buffer_append(&reader->text, line, (size_t)n, err) == REEL_OK ? LINE_READ : LINE_FAILED;
}

#else

static void open_editor(struct line_reader *reader) { (void)reader; }
static void close_editor(struct line_reader *reader) { (void)reader; }
static enum line_end read_edited(struct line_reader *reader, struct reel_error *err) {
    (void)reader;
    err_set(err, REEL_E_STATE, "built without line editing");
    return LINE_FAILED;
}

#endif

enum reel_status line_reader_open(struct line_reader *reader, const char *history_path,
                                  struct reel_error *err) {
    *reader = (struct line_reader){ .interactive = terminal_is(stdin) && terminal_is(stdout),
                                    .text = { .limit = LINE_MAX_BYTES } };
    if (history_path) {
        enum reel_status status =
            mem_text(&reader->history_path, history_path, strlen(history_path), "a path", err);
        if (status != REEL_OK) return status;
    }
    if (reader->interactive) open_editor(reader);
    return REEL_OK;
}

static enum line_end interrupted(const struct line_reader *reader) {
    interrupt_take();
    clearerr(stdin);
    if (reader->interactive) putchar('\n');
    return LINE_INTERRUPTED;
}

/* As fgets, but a NUL byte is a byte. Returns how many were read. */
static size_t read_piece(char *chunk, size_t cap) {
    size_t n = 0;
    int c = 0;
    errno = 0;
    while (n < cap && c != '\n' && (c = getc(stdin)) != EOF)
        chunk[n++] = (char)c;
    return n;
}

/* One line with its newline appended to reader->text. */
static enum line_end read_plain(struct line_reader *reader, struct reel_error *err) {
    char chunk[4096];
    if (reader->interactive) {
        fputs(reader->continued ? ". " : "> ", stdout);
        fflush(stdout);
        if (!interrupt_or_input(stdin)) return interrupted(reader);
    }
    for (size_t n = sizeof chunk; n == sizeof chunk;) { /* until less is left */
        n = read_piece(chunk, sizeof chunk);
        enum reel_status status = buffer_append(&reader->text, chunk, n, err);
        if (status == REEL_E_LIMIT)
            err_set(err, status, "standard input: a line of more than %zu bytes", LINE_MAX_BYTES);
        if (status != REEL_OK) return LINE_FAILED;
        if (n > 0 && chunk[n - 1] == '\n') return LINE_READ;
    }
    if (interrupt_pending()) return interrupted(reader);
    if (ferror(stdin)) {
        err_set(err, REEL_E_IO, "standard input: %s", strerror(errno));
        return LINE_FAILED;
    }
    return reader->text.size ? LINE_READ : LINE_CLOSED; /* a last line without a newline */
}

/* Takes the newline off; true when a backslash before it asks for another line. */
static bool take_newline(struct buffer *text) {
    while (text->size && strchr("\r\n", text->bytes[text->size - 1]))
        text->size--;
    bool more = text->size && text->bytes[text->size - 1] == '\\';
    if (more) text->bytes[text->size - 1] = '\n';
    text->bytes[text->size] = '\0';
    return more;
}

enum line_end line_reader_next(struct line_reader *reader, struct reel_error *err) {
    enum line_end end;
    reader->text.size = 0;
    reader->continued = false;
    if (interrupt_take()) return LINE_INTERRUPTED;
    do {
        size_t before = reader->text.size;
        end = reader->editor ? read_edited(reader, err) : read_plain(reader, err);
        if (end == LINE_CLOSED && reader->continued) return LINE_READ;
        if (end != LINE_READ) break;
        if (memchr(reader->text.bytes + before, '\0', reader->text.size - before)) {
            err_set(err, REEL_E_ARGUMENT, "standard input: a line holds a NUL byte");
            return LINE_FAILED;
        }
        reader->continued = take_newline(&reader->text);
    } while (reader->continued);
    return end;
}

void line_reader_close(struct line_reader *reader) {
    close_editor(reader);
    mem_free(reader->history_path);
    buffer_release(&reader->text);
    *reader = (struct line_reader){ 0 };
}
