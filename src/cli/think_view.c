#include "cli/think_view.h"

#include "cli/terminal.h"

#include <string.h>

static void flush_held(struct think_view *v) {
    for (size_t i = 0; i < v->n_held; i++)
        if (!strchr(" \n", v->held[i])) v->started = true;
    fwrite(v->held, 1, v->n_held, v->out);
    v->n_held = 0;
}

static void toggle(struct think_view *v) {
    v->n_held = 0;
    v->started = true;
    v->inside = !v->inside;
    terminal_dim(v->out, v->inside);
}

static void put_byte(struct think_view *v, char c) {
    const char *tag = v->inside ? "</think>" : "<think>";
    if (!v->inside && v->started) { /* thinking comes first or not at all */
        fputc(c, v->out);
        return;
    }
    if (c != tag[v->n_held]) flush_held(v); /* c may begin a tag itself: '<' is only at a start */
    if (c != tag[v->n_held] || (!v->inside && v->started)) {
        if (!strchr(" \n", c)) v->started = true;
        fputc(c, v->out);
        return;
    }
    v->held[v->n_held++] = c;
    if (v->n_held == strlen(tag)) toggle(v);
}

void think_view_start(struct think_view *v, bool inside) {
    if (!inside) return;
    if (!v->styled)
        fputs(THINK_OPENING, v->out);
    else
        toggle(v);
}

void think_view_put(void *user, const char *text, size_t n_bytes) {
    struct think_view *v = user;
    if (v->styled) {
        for (size_t i = 0; i < n_bytes; i++) {
            char c = terminal_byte(text, n_bytes, i);
            if (c) put_byte(v, c);
        }
    } else {
        terminal_write(v->out, text, n_bytes);
    }
    fflush(v->out);
}

void think_view_finish(struct think_view *v) {
    flush_held(v);
    if (v->inside) terminal_dim(v->out, false);
    v->inside = false;
    v->started = false;
}
