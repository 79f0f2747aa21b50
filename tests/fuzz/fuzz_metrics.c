/* What a server's /metrics says, and the rows that `reel top` makes of it: the first byte is the
 * window's width, the rest the page. Rows hold no control characters, whatever names do. */
#include "cli/top_view.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_rows(const char *rows) {
    for (const char *c = rows; *c; c++)
        if (*c != '\n' && ((unsigned char)*c < 0x20 || *c == 0x7f)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct top_reading before, now;
    struct buffer rows = { 0 };
    json_t *json = NULL;
    if (n < 1) return 0;
    char *text = malloc(n);
    if (!text) return 0;
    memcpy(text, data + 1, n - 1);
    text[n - 1] = '\0';
    if (top_read_pages(&now, "http://x", text, NULL, NULL) == REEL_OK) {
        const double made[] = { 1, -1, top_made_per_s(&before, &now) };
        now.at_ms = before.at_ms + 1000;
        const struct top_view view = { .url = "http://x",
                                       .now = &now,
                                       .before = before.at_ms > 0 ? &before : NULL,
                                       .since = before.at_ms > 0 ? &before : NULL,
                                       .made_per_s = made,
                                       .n_made = 3,
                                       .live = true,
                                       .columns = 20 + data[0],
                                       .rows = 24,
                                       .unicode = data[0] % 2 };
        if (top_view_rows(&rows, &view, NULL) == REEL_OK) check_rows(rows.bytes);
        (void)top_view_json(&json, &view, NULL);
        before = now;
    }
    json_decref(json);
    buffer_release(&rows);
    free(text);
    return 0;
}
