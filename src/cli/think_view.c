#include "cli/think_view.h"

#include "cli/terminal.h"

#include <string.h>

static void put_text(struct think_view *v, const char *text, size_t n) {
    if (v->page)
        page_text(v->page, text, n);
    else
        fwrite(text, 1, n, v->out);
}

static void dim(struct think_view *v, bool on) {
    if (v->page)
        page_dim(v->page, on);
    else
        terminal_dim(v->out, on);
}

static void flush_held(struct think_view *v) {
    for (size_t i = 0; i < v->n_held; i++)
        if (!strchr(" \n", v->held[i])) v->started = true;
    put_text(v, v->held, v->n_held);
    v->n_held = 0;
}

static void toggle(struct think_view *v) {
    v->n_held = 0;
    v->started = true;
    v->inside = !v->inside;
    dim(v, v->inside);
}

static void put_byte(struct think_view *v, char c) {
    const char *tag = v->inside ? "</think>" : "<think>";
    if (!v->inside && v->started) { /* thinking comes first or not at all */
        put_text(v, &c, 1);
        return;
    }
    if (c != tag[v->n_held]) flush_held(v); /* c may begin a tag itself: '<' is only at a start */
    if (c != tag[v->n_held] || (!v->inside && v->started)) {
        if (!strchr(" \n", c)) v->started = true;
        put_text(v, &c, 1);
        return;
    }
    v->held[v->n_held++] = c;
    if (v->n_held == strlen(tag)) toggle(v);
}

void think_view_start(struct think_view *v, bool inside) {
    if (!inside) return;
    if (!v->styled)
        put_text(v, THINK_OPENING, strlen(THINK_OPENING));
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
    } else if (v->page) {
        page_text(v->page, text, n_bytes);
    } else {
        terminal_write(v->out, text, n_bytes);
    }
    fflush(v->out);
}

void think_view_finish(struct think_view *v) {
    flush_held(v);
    if (v->inside) dim(v, false);
    if (v->page) page_end(v->page);
    v->inside = false;
    v->started = false;
}
