/* reel tokenize: text to ids and back. */
#include "base/json.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "cli/open_model.h"
#include "cli/token_json.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "decode",
      .letter = 'd',
      .kind = CLI_TEXT,
      .argument = "IDS",
      .help = "print the text of these ids (separated by commas or spaces; - reads them from "
              "standard input)" },
    { .name = "control",
      .kind = CLI_FLAG,
      .help = "recognise control tokens such as <|im_end|> in the text" },
    { .name = "special",
      .kind = CLI_FLAG,
      .help = "with the tokens that the model's post-processor puts around a text" },
    { .name = "count", .kind = CLI_FLAG, .help = "print the number of ids only" },
    { .name = "json", .kind = CLI_FLAG, .help = "print one JSON object" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

/* A tokenizer by itself, or the demo model's. */
struct source {
    struct reel_model *model;
    struct reel_tokenizer *own;
    const struct reel_tokenizer *tok; /* borrowed from one of the two */
};

static enum reel_status open_source(struct source *s, const struct cli_args *args,
                                    struct reel_error *err) {
    const char *name = args->arguments[0];
    enum reel_status status;
    if (model_path_is_demo(name)) {
        status = cli_model_open(&s->model, args, name, err);
        if (status == REEL_OK) s->tok = reel_model_tokenizer(s->model);
        return status;
    }
    status = cli_tokenizer_open(&s->own, args, name, err);
    s->tok = s->own;
    return status;
}

static void close_source(struct source *s) {
    reel_tokenizer_close(s->own);
    reel_model_close(s->model);
}

/* ---- text to ids ----------------------------------------------------------------------------- */

/* A piece in quotes: control characters and bytes that are no UTF-8 by themselves as \xNN. */
static void print_piece(const char *bytes, size_t n) {
    json_t *whole = bytes ? json_stringn(bytes, n) : NULL; /* NULL unless it is UTF-8 */
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !whole))
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    puts("\"");
    json_decref(whole);
}

static enum reel_status print_json(const struct reel_tokenizer *tok, const int32_t *ids, size_t n,
                                   struct reel_error *err) {
    json_t *pieces = json_array();
    for (size_t i = 0; pieces && i < n; i++)
        if (json_array_append_new(pieces, token_object(tok, ids[i])) != 0) break;
    bool whole = pieces && json_array_size(pieces) == n;
    json_t *object = json_pack("{s:I, s:o}", "count", (json_int_t)n, "tokens", pieces);
    char *text = whole && object ? json_dumps(object, 0) : NULL;
    json_decref(object);
    if (!text) return err_set(err, REEL_E_MEMORY, "out of memory: the ids as JSON");
    puts(text);
    free(text);
    return REEL_OK;
}

static void print_table(const struct reel_tokenizer *tok, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const char *bytes = reel_token_bytes(tok, ids[i], &n_bytes);
        printf("%7d  ", (int)ids[i]);
        print_piece(bytes, n_bytes);
    }
}

static enum reel_status encode(const struct cli_args *args, const struct reel_tokenizer *tok,
                               struct reel_error *err) {
    struct buffer text = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;
    enum reel_status status = input_read(args, &text, err);
    if (status == REEL_OK)
        status = input_encode(tok, text.bytes, text.size,
                              (cli_has(args, "control") ? REEL_ENCODE_CONTROL : 0u) |
                                  (cli_has(args, "special") ? REEL_ENCODE_SPECIAL : 0u),
                              &ids, &n, err);
    if (status == REEL_OK) {
        if (cli_has(args, "count"))
            printf("%zu\n", n);
        else if (cli_has(args, "json"))
            status = print_json(tok, ids, n, err);
        else
            print_table(tok, ids, n);
    }
    mem_free(ids);
    buffer_release(&text);
    return status;
}

/* ---- ids to text ----------------------------------------------------------------------------- */

static enum reel_status decode_list(const char *text, const struct reel_tokenizer *tok,
                                    struct reel_error *err) {
    static const char separators[] = ", \t\r\n[]";
    int size = reel_tokenizer_size(tok);
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        char *end;
        errno = 0;
        long long id = strtoll(text, &end, 10);
        if (end == text || !strchr(separators, *end) || errno || id < 0 || id >= size)
            return err_set(err, REEL_E_ARGUMENT, "--decode: \"%.*s\" is not an id from 0 to %d",
                           (int)strcspn(text, separators), text, size - 1);
        size_t n = 0;
        const char *bytes = reel_token_bytes(tok, (int32_t)id, &n);
        fwrite(bytes, 1, bytes ? n : 0, stdout);
        text = end;
    }
    putchar('\n');
    return REEL_OK;
}

static enum reel_status decode(const struct cli_args *args, const struct reel_tokenizer *tok,
                               struct reel_error *err) {
    struct buffer list = { 0 };
    const char *ids = cli_text(args, "decode", "-");
    if (input_given(args) || cli_has(args, "count") || cli_has(args, "json"))
        return err_set(err, REEL_E_ARGUMENT, "--decode excludes a text, --count and --json");
    if (strcmp(ids, "-") != 0) return decode_list(ids, tok, err);
    enum reel_status status = input_read_all(stdin, "standard input", &list, err);
    if (status == REEL_OK && strlen(list.bytes) != list.size)
        status = err_set(err, REEL_E_ARGUMENT, "--decode: standard input contains a NUL byte");
    if (status == REEL_OK) status = decode_list(list.bytes, tok, err);
    buffer_release(&list);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct source source = { 0 };
    enum reel_status status = open_source(&source, args, err);
    if (status == REEL_OK)
        status =
            cli_has(args, "decode") ? decode(args, source.tok, err) : encode(args, source.tok, err);
    close_source(&source);
    return status;
}

const struct cli_command cmd_tokenize = {
    .name = "tokenize",
    .arguments = "MODEL [TEXT...]",
    .least_arguments = 1,
    .most_arguments = INT_MAX,
    .summary = "show the tokens of a text, or the text of tokens",
    .description =
        "Prints the ids and pieces that a text becomes, or with --decode the text of "
        "ids. The text is what follows the model, or comes from -p, -f or standard "
        "input. Every byte of the input counts, a last newline too. Only the tokenizer is "
        "read, not the weights.",
    .groups = { &cli_input_group, &group, &cli_model_group },
    .run = run,
};
