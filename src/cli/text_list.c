#include "cli/text_list.h"

#include "base/memory.h"
#include "cli/input.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Of all lines of a file, or of a file that is one text. */
#define MOST_BYTES ((size_t)1 << 30)

const char *text_list_place(const struct listed_text *t, char place[TEXT_LIST_PLACE]) {
    if (t->line)
        snprintf(place, TEXT_LIST_PLACE, "%.120s, line %d", t->origin, t->line);
    else if (t->argument)
        snprintf(place, TEXT_LIST_PLACE, "text %d after the model", t->argument);
    else
        snprintf(place, TEXT_LIST_PLACE, "%.150s", t->origin);
    return place;
}

static enum reel_status add(struct text_list *list, const char *text, size_t n,
                            const struct listed_text *where, struct reel_error *err) {
    if (list->n == list->room) {
        const int room = list->room ? 2 * list->room : 64;
        if (list->room > INT_MAX / 4)
            return err_set(err, REEL_E_LIMIT, "more than %d texts", list->n);
        void *more = mem_resize(list->texts, (size_t)room * sizeof *list->texts);
        if (!more) return err_memory(err, "a list of texts", (size_t)room * sizeof *list->texts);
        list->texts = more;
        list->room = room;
    }
    struct listed_text *t = &list->texts[list->n];
    char place[TEXT_LIST_PLACE];
    *t = *where;
    t->n = n;
    const char *zero = memchr(text, '\0', n);
    if (zero)
        return err_set(err, REEL_E_ARGUMENT, "%s: a zero byte at offset %zu",
                       text_list_place(t, place), (size_t)(zero - text));
    enum reel_status status = input_check(text_list_place(t, place), text, n, err);
    if (status == REEL_OK) status = mem_text(&t->text, text, n, "a text", err);
    if (status == REEL_OK) list->n++;
    return status;
}

enum reel_status text_list_add_argument(struct text_list *list, const char *text, int number,
                                        struct reel_error *err) {
    const struct listed_text where = { .origin = "the text after the model", .argument = number };
    return add(list, text, strlen(text), &where, err);
}

static const char *name_of(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

enum reel_status text_list_add_file(struct text_list *list, const char *path,
                                    struct reel_error *err) {
    struct buffer text = { 0 };
    const struct listed_text where = { .origin = name_of(path) };
    enum reel_status status = input_read_path(path, MOST_BYTES, &text, err);
    if (status == REEL_OK) status = add(list, text.bytes, text.size, &where, err);
    buffer_release(&text);
    return status;
}

enum reel_status text_list_add_lines(struct text_list *list, const char *path,
                                     struct reel_error *err) {
    struct buffer text = { 0 };
    struct listed_text where = { .origin = name_of(path) };
    enum reel_status status = input_read_path(path, MOST_BYTES, &text, err);
    for (size_t at = 0; status == REEL_OK && at < text.size;) {
        const char *line = text.bytes + at, *end = memchr(line, '\n', text.size - at);
        size_t n = end ? (size_t)(end - line) : text.size - at;
        at += n + (end ? 1 : 0);
        if (n > 0 && line[n - 1] == '\r') n--;
        where.line++;
        status = add(list, line, n, &where, err);
    }
    buffer_release(&text);
    return status;
}

void text_list_release(struct text_list *list) {
    for (int i = 0; i < list->n; i++)
        mem_free(list->texts[i].text);
    mem_free(list->texts);
    *list = (struct text_list){ 0 };
}
