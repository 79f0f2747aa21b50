#include "server/page_files.h"

#include "server/handlers.h"

#include "server/api_error.h"

#include <string.h>

/* What the page may do, for a browser that is given hostile text by a model: run scripts of this
 * server's files alone, load and ask nothing elsewhere, and never turn text into HTML or scripts
 * (trusted types). blob: is for listening to a recording that was dropped on the page. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

static const struct page_file *find_file(const char *path) {
    const char *name = strcmp(path, "/") == 0 ? "index.html" : path + strlen("/page/");
    int n = 0;
    const struct page_file *files = page_files(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(files[i].name, name) == 0) return &files[i];
    return NULL;
}

void handle_page(struct exchange *x) {
    const struct page_file *file = find_file(exchange_path(x));
    if (!file) {
        api_error(x, 404, NULL, NULL, "there is no %.100s", exchange_path(x));
        return;
    }
    const char *takes = exchange_header(x, "Accept-Encoding");
    if (takes && !strstr(takes, "gzip")) {
        api_error(x, 406, NULL, NULL, "the page is kept gzipped: ask with Accept-Encoding: gzip");
        return;
    }
    exchange_set_header(x, "ETag", file->tag);
    exchange_set_header(x, "Cache-Control", "no-cache"); /* asked for anew, by its tag */
    exchange_set_header(x, "Content-Security-Policy", policy);
    exchange_set_header(x, "X-Content-Type-Options", "nosniff");
    exchange_set_header(x, "Referrer-Policy", "no-referrer");
    const char *known = exchange_header(x, "If-None-Match");
    if (known && strstr(known, file->tag)) {
        exchange_reply(x, 304, NULL, "", 0);
        return;
    }
    exchange_set_header(x, "Content-Encoding", "gzip");
    exchange_reply(x, 200, file->type, file->bytes, file->n_bytes);
}
