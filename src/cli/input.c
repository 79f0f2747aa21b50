#include "cli/input.h"

#include "base/memory.h"
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX_BYTES ((size_t)64 << 20)

static const struct cli_option options[] = {
    { .name = "prompt", .letter = 'p', .kind = CLI_TEXT, .argument = "TEXT", .help = "the text" },
    { .name = "file",
      .letter = 'f',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "read the whole text from FILE; - is standard input, also the default" },
};
const struct cli_group cli_input_group = CLI_GROUP("Input", options);

bool input_typed(const struct cli_args *args) {
    return args->n_arguments > 1 || cli_has(args, "prompt");
}

bool input_given(const struct cli_args *args) { return input_typed(args) || cli_has(args, "file"); }

/* Appends all of f, until text holds `most` bytes more. */
static enum reel_status append_all(FILE *f, const char *name, size_t most, struct buffer *text,
                                   struct reel_error *err) {
    char chunk[1 << 14];
    size_t n;
    enum reel_status status = REEL_OK;
    text->limit = text->size + most;
    while (status == REEL_OK && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        status = buffer_append(text, chunk, n, err);
    text->limit = 0;
    if (status == REEL_OK && ferror(f))
        return err_set(err, REEL_E_IO, "%s: %s", name, strerror(errno));
    if (status == REEL_E_LIMIT)
        return err_set(err, status, "%s: larger than %zu bytes, the most that is read", name, most);
    return status == REEL_OK ? buffer_append(text, "", 0, err) : status; /* never a NULL pointer */
}

enum reel_status input_read_all(FILE *f, const char *name, struct buffer *text,
                                struct reel_error *err) {
    return append_all(f, name, INPUT_MAX_BYTES, text, err);
}

enum reel_status input_read_path(const char *path, size_t most, struct buffer *text,
                                 struct reel_error *err) {
    struct stat st;
    if (strcmp(path, "-") == 0) return append_all(stdin, "standard input", most, text, err);
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0) {
        enum reel_status status = errno == ENOENT ? REEL_E_NOT_FOUND : REEL_E_IO;
        status = err_set(err, status, "%s: %s", path, strerror(errno));
        if (f) fclose(f);
        return status;
    }
    enum reel_status status = S_ISDIR(st.st_mode)
                                  ? err_set(err, REEL_E_ARGUMENT, "%s: is a folder", path)
                                  : append_all(f, path, most, text, err);
    fclose(f);
    return status;
}

/* Bytes of the UTF-8 character that begins p[n], or 0 where none does. */
static size_t character_bytes(const unsigned char *p, size_t n) {
    const unsigned char lead = p[0];
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length > n) return 0;
    if (length < 2) return length;
    /* not longer than need be, no half of a UTF-16 pair, nothing beyond U+10FFFF */
    const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < least || p[1] > most) return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return length;
}

enum reel_status input_check(const char *origin, const char *text, size_t n,
                             struct reel_error *err) {
    for (size_t at = 0, more; at < n; at += more) {
        more = character_bytes((const unsigned char *)text + at, n - at);
        if (more == 0)
            return err_set(err, REEL_E_ARGUMENT, "%s: not UTF-8: byte 0x%02x at offset %zu", origin,
                           (unsigned char)text[at], at);
    }
    return REEL_OK;
}

static enum reel_status join_arguments(const struct cli_args *args, struct buffer *text,
                                       struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 1; i < args->n_arguments && status == REEL_OK; i++) {
        if (i > 1) status = buffer_text(text, " ", err);
        if (status == REEL_OK) status = buffer_text(text, args->arguments[i], err);
    }
    return status;
}

/* A text that is given twice: nobody can say which one was meant. */
static enum reel_status check_once(const struct cli_args *args, struct reel_error *err) {
    const bool prompt = cli_has(args, "prompt"), file = cli_has(args, "file");
    if (prompt && file)
        return err_set(err, REEL_E_ARGUMENT, "--prompt and --file exclude each other");
    if (args->n_arguments < 2 || (!prompt && !file)) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "the text is given twice: after the model (\"%.60s\") and with --%s%s",
                   args->arguments[1], prompt ? "prompt" : "file",
                   file && cli_find_option(args->command, "attach")
                       ? "; --attach FILE adds a file to a text"
                       : "");
}

/* As a message names where the text came from. */
static const char *origin_of(const struct cli_args *args) {
    const char *path = cli_text(args, "file", "-");
    if (args->n_arguments > 1) return "the text after the model";
    if (cli_has(args, "prompt")) return "--prompt";
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static enum reel_status read_named(const struct cli_args *args, struct buffer *text,
                                   struct reel_error *err) {
    const char *prompt = cli_text(args, "prompt", NULL), *path = cli_text(args, "file", "-");
    if (args->n_arguments > 1) return join_arguments(args, text, err);
    if (prompt) return buffer_text(text, prompt, err);
    if (strcmp(path, "-") == 0 && terminal_is(stdin) && !cli_has(args, "file"))
        return err_set(err, REEL_E_ARGUMENT,
                       "no text: give it after the model in quotes, with -p TEXT or -f FILE, or "
                       "pipe it into standard input");
    return input_read_path(path, INPUT_MAX_BYTES, text, err);
}

enum reel_status input_read(const struct cli_args *args, struct buffer *text,
                            struct reel_error *err) {
    const size_t before = text->size;
    enum reel_status status = check_once(args, err);
    if (status == REEL_OK) status = read_named(args, text, err);
    if (status == REEL_OK)
        status = input_check(origin_of(args), text->bytes + before, text->size - before, err);
    return status;
}

bool input_waits(void) {
    struct stat st;
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    if (fstat(STDIN_FILENO, &st) != 0) return false;
    if (S_ISREG(st.st_mode)) return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    return S_ISFIFO(st.st_mode) && poll(&in, 1, 0) == 1 && (in.revents & POLLIN);
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
