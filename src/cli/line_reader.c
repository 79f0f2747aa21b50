#include "cli/line_reader.h"

#include "cli/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum reel_status line_reader_open(struct line_reader *reader, const char *history_path,
                                  struct reel_error *err) {
    *reader = (struct line_reader){ .interactive = terminal_is(stdin) && terminal_is(stdout),
                                    .text = { .limit = LINE_MAX_BYTES } };
    if (!line_editor_can()) return REEL_OK;
    enum reel_status status = line_editor_open(&reader->editor, history_path, err);
    reader->edited = status == REEL_OK;
    return status;
}

void line_reader_listen(struct line_reader *reader) {
    if (reader->edited) line_editor_listen(&reader->editor);
}

static enum line_end read_edited(struct line_reader *reader, struct reel_error *err) {
    const enum line_end end = line_editor_read(&reader->editor, err);
    const struct buffer *text = &reader->editor.edit.text;
    reader->empty = text->size == 0;
    if (end != LINE_READ) return end;
    return buffer_append(&reader->text, text->bytes, text->size, err) == REEL_OK ? LINE_READ
                                                                                 : LINE_FAILED;
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
    reader->empty = true;
    if (interrupt_take()) return LINE_INTERRUPTED;
    if (reader->edited) return read_edited(reader, err);
    do {
        size_t before = reader->text.size;
        end = read_plain(reader, err);
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
    if (reader->edited) line_editor_close(&reader->editor);
    buffer_release(&reader->text);
    *reader = (struct line_reader){ 0 };
}
