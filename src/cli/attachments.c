#include "cli/attachments.h"

#include "cli/input.h"

#include <string.h>

/* The largest context that a supported model was made for is 262,144 positions, some 1 MB of text.
 */
#define MOST_BYTES      ((size_t)8 << 20)
#define LEAST_FENCE     3
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

bool attachments_given(const struct cli_args *args) { return cli_has(args, "attach"); }

bool attachments_take_stdin(const struct cli_args *args) {
    const char *path;
    for (int i = 0; (path = cli_repeated(args, "attach", i)); i++)
        if (strcmp(path, "-") == 0) return true;
    return false;
}

static enum reel_status check_text(const char *name, const char *text, size_t n,
                                   struct reel_error *err) {
    const char *zero = memchr(text, '\0', n);
    struct reel_error why = { 0 };
    if (zero)
        return err_set(err, REEL_E_ARGUMENT, "--attach %s: not a text: byte 0x00 at offset %zu",
                       name, (size_t)(zero - text));
    enum reel_status status = input_check(name, text, n, &why);
    return status == REEL_OK ? REEL_OK : err_set(err, status, "--attach %s", why.text);
}

static size_t longest_fence(const char *text, size_t n) {
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < n; i++) {
        run = text[i] == '`' ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    return longest;
}

static enum reel_status add_fence(struct buffer *message, size_t n, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < n && status == REEL_OK; i++)
        status = buffer_append(message, "`", 1, err);
    return status == REEL_OK ? buffer_append(message, "\n", 1, err) : status;
}

enum reel_status attachment_add(struct buffer *message, const char *name, const char *text,
                                size_t n_bytes, struct reel_error *err) {
    const size_t longest = longest_fence(text, n_bytes);
    const size_t fence = longest < LEAST_FENCE ? LEAST_FENCE : longest + 1;
    const bool ended = n_bytes == 0 || text[n_bytes - 1] == '\n';
    enum reel_status status = buffer_printf(message, err, "%s:\n", name);
    if (status == REEL_OK) status = add_fence(message, fence, err);
    if (status == REEL_OK) status = buffer_append(message, text, n_bytes, err);
    if (status == REEL_OK && !ended) status = buffer_append(message, "\n", 1, err);
    if (status == REEL_OK) status = add_fence(message, fence, err);
    return status == REEL_OK ? buffer_append(message, "\n", 1, err) : status;
}

static enum reel_status add_path(struct attachments *all, struct buffer *message, const char *path,
                                 struct reel_error *err) {
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    struct buffer file = { 0 };
    struct reel_error why = { 0 };
    enum reel_status status = input_read_path(path, MOST_BYTES, &file, &why);
    if (status != REEL_OK) {
        buffer_release(&file);
        return err_set(err, status, "--attach %s", why.text);
    }
    const size_t mark = strlen(BYTE_ORDER_MARK);
    const bool marked = file.size >= mark && memcmp(file.bytes, BYTE_ORDER_MARK, mark) == 0;
    const char *text = file.bytes + (marked ? mark : 0);
    const size_t n = file.size - (marked ? mark : 0);
    status = check_text(name, text, n, err);
    if (status == REEL_OK) status = attachment_add(message, name, text, n, err);
    if (!all->largest || n > all->largest_bytes)
        *all = (struct attachments){ .largest = name, .largest_bytes = n };
    buffer_release(&file);
    return status;
}

enum reel_status attachments_read(struct attachments *all, struct buffer *message,
                                  const struct cli_args *args, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    int n_stdin = 0;
    const char *path;
    *all = (struct attachments){ 0 };
    for (int i = 0; status == REEL_OK && (path = cli_repeated(args, "attach", i)); i++) {
        n_stdin += strcmp(path, "-") == 0;
        if (n_stdin > 1)
            return err_set(err, REEL_E_ARGUMENT, "--attach -: standard input is given twice");
        status = add_path(all, message, path, err);
    }
    return status;
}
