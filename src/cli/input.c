#include "cli/input.h"

#include "base/memory.h"
#include "cli/terminal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX_BYTES ((size_t)64 << 20)

static const struct cli_option options[] = {
    { .name = "prompt", .letter = 'p', .kind = CLI_TEXT, .argument = "TEXT", .help = "the text" },
    { .name = "file",
      .letter = 'f',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "read the text from FILE; - is standard input, also the default" },
};
const struct cli_group cli_input_group = CLI_GROUP("Input", options);

bool input_given(const struct cli_args *args) {
    return cli_has(args, "prompt") || cli_has(args, "file");
}

enum reel_status input_read_all(FILE *f, const char *name, struct buffer *text,
                                struct reel_error *err) {
    char chunk[1 << 14];
    size_t n;
    enum reel_status status = REEL_OK;
    text->limit = INPUT_MAX_BYTES;
    while (status == REEL_OK && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        status = buffer_append(text, chunk, n, err);
    if (status == REEL_OK && ferror(f))
        return err_set(err, REEL_E_IO, "%s: %s", name, strerror(errno));
    if (status == REEL_E_LIMIT)
        return err_set(err, status, "%s: larger than %zu bytes", name, INPUT_MAX_BYTES);
    return status == REEL_OK ? buffer_append(text, "", 0, err) : status; /* never a NULL pointer */
}

static enum reel_status read_path(const char *path, struct buffer *text, struct reel_error *err) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0) {
        enum reel_status status = errno == ENOENT ? REEL_E_NOT_FOUND : REEL_E_IO;
        status = err_set(err, status, "%s: %s", path, strerror(errno));
        if (f) fclose(f);
        return status;
    }
    enum reel_status status = S_ISDIR(st.st_mode)
                                  ? err_set(err, REEL_E_ARGUMENT, "%s: is a folder", path)
                                  : input_read_all(f, path, text, err);
    fclose(f);
    return status;
}

enum reel_status input_read(const struct cli_args *args, struct buffer *text,
                            struct reel_error *err) {
    const char *prompt = cli_text(args, "prompt", NULL), *path = cli_text(args, "file", "-");
    if (prompt && cli_has(args, "file"))
        return err_set(err, REEL_E_ARGUMENT, "--prompt and --file exclude each other");
    if (prompt) return buffer_text(text, prompt, err);
    if (strcmp(path, "-") != 0) return read_path(path, text, err);
    if (terminal_is(stdin) && !cli_has(args, "file"))
        return err_set(err, REEL_E_ARGUMENT,
                       "no text: give -p TEXT, -f FILE, or pipe it into standard input");
    return input_read_all(stdin, "standard input", text, err);
}

enum reel_status input_encode(const struct reel_tokenizer *tok, const char *text, size_t n_bytes,
                              unsigned flags, int32_t **ids, size_t *n_ids,
                              struct reel_error *err) {
    enum reel_status status;
    size_t cap = n_bytes; /* enough but for characters that normalisation takes apart */
    *ids = NULL;
    *n_ids = 0;
    for (;;) {
        status = mem_zeroed(ids, cap, sizeof **ids, "the ids of a text", err);
        if (status == REEL_OK)
            status = reel_encode(tok, text, n_bytes, flags, *ids, cap, n_ids, err);
        if (status != REEL_E_LIMIT || *n_ids <= cap) break;
        cap = *n_ids;
        mem_free(*ids);
    }
    if (status == REEL_OK) return REEL_OK;
    mem_free(*ids);
    *ids = NULL;
    return status;
}
