#include "cli/config_file.h"

#include "base/memory.h"

#include "cli/input.h"

#include <stdio.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 20)

struct reader {
    struct cli_args *args;
    const struct cli_args *typed;
    const char *path;
    int line;
};

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]))
        n--;
    text[n] = '\0';
    return text;
}

static enum reel_status refuse(const struct reader *r, const char *what, const char *name,
                               struct reel_error *err) {
    return err_set(err, REEL_E_ARGUMENT, "%s, line %d: %s%s", r->path, r->line, name, what);
}

/* Through the parser of the command line, which knows the names that are near. */
static enum reel_status parse(const struct reader *r, const char *name, const char *value,
                              struct cli_value *out, struct reel_error *err) {
    struct cli_args one;
    struct reel_error why = { 0 };
    struct buffer word = { 0 };
    char argument[] = "x";
    enum reel_status status = value ? buffer_printf(&word, err, "--%s=%s", name, value)
                                    : buffer_printf(&word, err, "--%s", name);
    if (status != REEL_OK) return status;
    char *words[] = { argument, word.bytes };
    status = cli_parse(&one, r->typed->command, 2, words, &why);
    if (status == REEL_OK && one.n_values == 1) {
        *out = one.values[0];
    } else if (status == REEL_OK) {
        status = refuse(r, " is for the command line alone", name, err);
    } else {
        status = refuse(r, "", why.text, err);
    }
    if (one.values) cli_args_release(&one);
    buffer_release(&word);
    return status;
}

/* true, false and the like; a flag that is off was not given. */
static enum reel_status read_flag(const struct reader *r, const char *name, const char *value,
                                  bool *on, struct reel_error *err) {
    *on = !value || cli_is_word("true yes on 1", value);
    if (*on || cli_is_word("false no off 0", value)) return REEL_OK;
    return refuse(r, " is true or false", name, err);
}

static bool was_given(const struct cli_args *args, const char *name, int from) {
    for (int i = from; i < args->n_values; i++)
        if (strcmp(args->values[i].option->name, name) == 0) return true;
    return false;
}

static enum reel_status read_option(struct reader *r, const char *name, const char *value,
                                    struct reel_error *err) {
    const struct cli_option *option = cli_find_option(r->typed->command, name);
    struct cli_value read = { 0 };
    bool on = true;
    if (strcmp(name, "config") == 0)
        return refuse(r, " names another file; one is read", name, err);
    if (option && option->kind == CLI_FLAG && !option->argument) {
        enum reel_status status = read_flag(r, name, value, &on, err);
        if (status != REEL_OK) return status;
        value = NULL;
    } else if (option && !value) {
        return refuse(r, " needs a value: name = value", name, err);
    }
    enum reel_status status = parse(r, name, value, &read, err);
    if (status != REEL_OK) return status;
    if (!read.option->repeats && was_given(r->args, name, r->typed->n_values))
        return refuse(r, " was given before", name, err);
    read.text = value;
    if (on && !was_given(r->typed, name, 0)) r->args->values[r->args->n_values++] = read;
    return REEL_OK;
}

static enum reel_status read_line(struct reader *r, char *line, struct reel_error *err) {
    char *equals = strchr(line, '=');
    if (equals) *equals = '\0';
    const char *name = trim(line);
    const char *value = equals ? trim(equals + 1) : NULL;
    if (!name[0]) return refuse(r, "there is no name before the =", "", err);
    if (strcmp(name, "model") != 0) return read_option(r, name, value, err);
    if (!value || !value[0]) return refuse(r, " needs a value: model = [NAME=]MODEL", name, err);
    if (r->typed->n_arguments == 0) r->args->arguments[r->args->n_arguments++] = value;
    return REEL_OK;
}

static enum reel_status make_room(struct cli_args *args, const struct cli_args *typed, size_t lines,
                                  struct reel_error *err) {
    *args = (struct cli_args){ .command = typed->command };
    const size_t values = (size_t)typed->n_values, arguments = (size_t)typed->n_arguments;
    enum reel_status status =
        mem_zeroed(&args->values, values + lines, sizeof *args->values, "options of a file", err);
    if (status == REEL_OK)
        status = mem_zeroed(&args->arguments, arguments + lines, sizeof *args->arguments,
                            "arguments of a file", err);
    if (status != REEL_OK) return status;
    memcpy(args->values, typed->values, values * sizeof *args->values);
    memcpy(args->arguments, typed->arguments, arguments * sizeof *args->arguments);
    args->n_values = typed->n_values;
    args->n_arguments = typed->n_arguments;
    return REEL_OK;
}

enum reel_status config_file_read(struct config_file *file, const struct cli_args *typed,
                                  const char *path, struct reel_error *err) {
    struct reader r = { &file->args, typed, path, 0 };
    size_t lines = 1;
    *file = (struct config_file){ 0 };
    enum reel_status status = input_read_path(path, MOST_BYTES, &file->text, err);
    char *at = status == REEL_OK ? file->text.bytes : NULL;
    for (const char *c = at; c && *c; c++)
        lines += *c == '\n';
    if (status == REEL_OK) status = make_room(&file->args, typed, lines, err);
    while (at && status == REEL_OK) {
        char *end = strchr(at, '\n');
        if (end) *end = '\0';
        char *line = trim(at);
        r.line++;
        if (line[0] && line[0] != '#') status = read_line(&r, line, err);
        at = end ? end + 1 : NULL;
    }
    if (status == REEL_OK && file->args.n_arguments > typed->command->most_arguments)
        status = err_set(err, REEL_E_ARGUMENT, "%s: there are more than %d models", path,
                         typed->command->most_arguments);
    if (status != REEL_OK) config_file_release(file);
    return status;
}

void config_file_release(struct config_file *file) {
    if (file->args.values) cli_args_release(&file->args);
    buffer_release(&file->text);
}
