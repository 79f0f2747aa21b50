#include "cli/options.h"

#include "base/memory.h"
#include "base/numbers.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nearest word ---------------------------------------------------------------------------- */

#define NEAREST_MAX_BYTES 200 /* a repository's name has up to 193 */
#define LEAST_BEGINNING   3

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool differ(char a, char b) { return small(a) != small(b); }

/* Insertions, deletions, replacements and exchanges of neighbours that turn a into b; a large
 * number for long words. */
static int edits(const char *a, const char *b) {
    const int n = (int)strnlen(a, NEAREST_MAX_BYTES + 1),
              m = (int)strnlen(b, NEAREST_MAX_BYTES + 1);
    if (n > NEAREST_MAX_BYTES || m > NEAREST_MAX_BYTES) return 1000;
    int rows[3][NEAREST_MAX_BYTES + 1]; /* of i - 2, i - 1 and i letters of a, in turn */
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            row[j] = last[j - 1] + differ(a[i - 1], b[j - 1]);
            row[j] = int_min(row[j], int_min(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && !differ(a[i - 1], b[j - 2]) && !differ(a[i - 2], b[j - 1]))
                row[j] = int_min(row[j], before[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* Whether the shorter of the two begins the longer one. */
static bool begins(const char *a, const char *b) {
    int n = 0;
    while (a[n] && b[n] && !differ(a[n], b[n]))
        n++;
    return n >= LEAST_BEGINNING && (!a[n] || !b[n]);
}

/* How far a word is from what was typed, in half edits: a beginning is worse than one edit and
 * better than two. */
static int distance(const char *text, const char *word) {
    const int n = 2 * edits(text, word);
    return begins(text, word) ? int_min(n, 3) : n;
}

const char *cli_nearest(const char *text, const char *const *words) {
    /* half of the letters wrong is another word */
    int best = 2 * int_min((int)strlen(text) / 2 + 1, 4);
    const char *nearest = NULL;
    for (; *words; words++) {
        const int n = distance(text, *words);
        if (n >= best) continue;
        best = n;
        nearest = *words;
    }
    return nearest;
}

bool cli_is_word(const char *words, const char *text) {
    size_t n = strcspn(text, " ");
    if (text[n]) return false; /* two of the words are not one */
    for (const char *p = words; p; p = strchr(p, ' ')) {
        p += *p == ' ';
        if (n && strncmp(p, text, n) == 0 && (p[n] == ' ' || p[n] == '\0')) return true;
    }
    return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Calls `wanted` for each option of the command until it says true. */
static const struct cli_option *search(const struct cli_command *command,
                                       bool (*wanted)(const struct cli_option *, const void *),
                                       const void *key) {
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
        for (int i = 0; i < command->groups[g]->n_options; i++)
            if (wanted(&command->groups[g]->options[i], key))
                return &command->groups[g]->options[i];
    return NULL;
}

static bool has_name(const struct cli_option *option, const void *name) {
    return strcmp(option->name, name) == 0;
}

static bool has_letter(const struct cli_option *option, const void *letter) {
    return option->letter && option->letter == *(const char *)letter;
}

static bool has_other_name(const struct cli_option *option, const void *name) {
    return cli_is_word(option->others, name);
}

const struct cli_option *cli_find_option(const struct cli_command *command, const char *name) {
    return search(command, has_name, name);
}

/* What another program calls so, or the name that is near; NULL where there is none. */
static const char *nearest_option(const struct cli_command *command, const char *name) {
    const char *words[100];
    int n = 0;
    const struct cli_option *other = search(command, has_other_name, name);
    if (other) return other->name;
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
        for (int i = 0; i < command->groups[g]->n_options && n < 98; i++)
            words[n++] = command->groups[g]->options[i].name;
    words[n++] = "help";
    words[n] = NULL;
    return cli_nearest(name, words);
}

/* "-5 degrees" and "- a list" are texts that lack a "--" before them. */
static bool is_text(const struct cli_command *command, const char *typed) {
    return strstr(command->arguments, "TEXT") &&
           (strchr(typed, ' ') || (typed[1] >= '0' && typed[1] <= '9'));
}

static enum reel_status unknown_option(const struct cli_command *command, const char *typed,
                                       const char *name, struct reel_error *err) {
    const char *nearest = nearest_option(command, name);
    if (is_text(command, typed))
        return err_set(err, REEL_E_ARGUMENT,
                       "%s is no option of reel %s; a text that begins with a dash comes after --",
                       typed, command->name);
    if (nearest)
        return err_set(err, REEL_E_ARGUMENT, "%s is no option of reel %s; did you mean --%s?",
                       typed, command->name, nearest);
    return err_set(err, REEL_E_ARGUMENT, "%s is no option of reel %s; see reel %s --help", typed,
                   command->name, command->name);
}

/* ---- values ---------------------------------------------------------------------------------- */

static enum reel_status parse_integer(struct cli_value *value, struct reel_error *err) {
    const struct cli_option *o = value->option;
    char *end;
    errno = 0;
    long long n = strtoll(value->text, &end, 10);
    bool digits = end != value->text && *end == '\0' && !strchr(" \t\n", value->text[0]);
    if (!digits || errno || n < o->least || n > o->most)
        return err_set(err, REEL_E_ARGUMENT, "--%s: \"%s\" is not an integer from %lld to %lld",
                       o->name, value->text, (long long)o->least, (long long)o->most);
    value->integer = n;
    return REEL_OK;
}

static enum reel_status parse_real(struct cli_value *value, struct reel_error *err) {
    const struct cli_option *o = value->option;
    char *end;
    value->real = strtod(value->text, &end);
    bool digits = end != value->text && *end == '\0' && !strchr(" \t\n", value->text[0]);
    if (!digits || !isfinite(value->real) || value->real < o->low || value->real > o->high)
        return err_set(err, REEL_E_ARGUMENT, "--%s: \"%s\" is not a number from %g to %g", o->name,
                       value->text, o->low, o->high);
    return REEL_OK;
}

static enum reel_status parse_choice(const struct cli_value *value, struct reel_error *err) {
    const struct cli_option *o = value->option;
    char list[300];
    const char *words[40];
    int n = 0;
    if (cli_is_word(o->choices, value->text)) return REEL_OK;
    if (o->accepts && o->accepts(value->text)) return REEL_OK;
    (void)snprintf(list, sizeof list, "%s", o->choices);
    for (char *at = list; at && n < 39;) {
        words[n++] = at;
        at = strchr(at, ' ');
        if (at) *at++ = '\0';
    }
    words[n] = NULL;
    const char *nearest = cli_nearest(value->text, words);
    return err_set(err, REEL_E_ARGUMENT, "--%s: \"%s\" is not one of: %s%s%s%s%s%s", o->name,
                   value->text, o->choices, o->accepts ? " " : "", o->accepts ? o->accepted : "",
                   nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static enum reel_status parse_value(struct cli_value *value, struct reel_error *err) {
    switch (value->option->kind) {
    case CLI_FLAG:
    case CLI_TEXT:
        return REEL_OK;
    case CLI_INTEGER:
        return parse_integer(value, err);
    case CLI_REAL:
        return parse_real(value, err);
    case CLI_CHOICE:
        return parse_choice(value, err);
    }
    return REEL_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

struct cursor {
    int argc;
    char **argv;
    int at;
};

/* Stores one use of an option. `attached` is the text after '=' or after the letter, or NULL. */
static enum reel_status take(struct cli_args *args, const struct cli_option *option,
                             const char *typed, const char *attached, struct cursor *c,
                             struct reel_error *err) {
    if (!option->repeats && cli_has(args, option->name))
        return err_set(err, REEL_E_ARGUMENT, "--%s is given twice", option->name);
    struct cli_value *value = &args->values[args->n_values];
    *value = (struct cli_value){ .option = option, .text = attached };
    if (option->kind == CLI_FLAG) {
        if (attached && !option->argument)
            return err_set(err, REEL_E_ARGUMENT, "%s: --%s takes no value", typed, option->name);
    } else if (!attached) {
        if (c->at >= c->argc)
            return err_set(err, REEL_E_ARGUMENT, "--%s needs a value: %s", option->name,
                           option->argument);
        value->text = c->argv[c->at++];
    }
    args->n_values++;
    return parse_value(value, err);
}

static enum reel_status take_long(struct cli_args *args, const char *typed, struct cursor *c,
                                  struct reel_error *err) {
    char name[64];
    const char *equals = strchr(typed, '=');
    size_t n = equals ? (size_t)(equals - typed) - 2 : strlen(typed) - 2;
    if (n >= sizeof name) n = sizeof name - 1; /* no option is that long: unknown below */
    memcpy(name, typed + 2, n);
    name[n] = '\0';
    if (strcmp(name, "help") == 0) {
        args->wants_help = true;
        return REEL_OK;
    }
    const struct cli_option *option = cli_find_option(args->command, name);
    if (!option) return unknown_option(args->command, typed, name, err);
    return take(args, option, typed, equals ? equals + 1 : NULL, c, err);
}

static enum reel_status take_short(struct cli_args *args, const char *typed, struct cursor *c,
                                   struct reel_error *err) {
    if (strcmp(typed, "-h") == 0) {
        args->wants_help = true;
        return REEL_OK;
    }
    const struct cli_option *option = search(args->command, has_letter, typed + 1);
    if (!option) return unknown_option(args->command, typed, typed + 1, err);
    return take(args, option, typed, typed[2] ? typed + 2 : NULL, c, err);
}

static enum reel_status check_arguments(const struct cli_args *args, struct reel_error *err) {
    const struct cli_command *command = args->command;
    if (args->n_arguments < command->least_arguments)
        return err_set(err, REEL_E_ARGUMENT, "something is missing; usage: reel %s %s",
                       command->name, command->arguments);
    if (args->n_arguments > command->most_arguments)
        return err_set(err, REEL_E_ARGUMENT, "\"%s\" is one argument too many; usage: reel %s %s",
                       args->arguments[command->most_arguments], command->name, command->arguments);
    return REEL_OK;
}

enum reel_status cli_parse(struct cli_args *args, const struct cli_command *command, int argc,
                           char **argv, struct reel_error *err) {
    *args = (struct cli_args){ .command = command };
    struct cursor c = { argc, argv, 0 };
    bool only_arguments = false;
    enum reel_status status =
        mem_zeroed(&args->values, (size_t)argc + 1, sizeof *args->values, "the command line", err);
    if (status == REEL_OK)
        status = mem_zeroed(&args->arguments, (size_t)argc + 1, sizeof *args->arguments,
                            "the command line", err);
    while (status == REEL_OK && c.at < argc && !args->wants_help) {
        const char *typed = argv[c.at++];
        if (only_arguments || typed[0] != '-' || typed[1] == '\0') {
            args->arguments[args->n_arguments++] = typed;
        } else if (strcmp(typed, "--") == 0) {
            only_arguments = true;
        } else if (typed[1] == '-') {
            status = take_long(args, typed, &c, err);
        } else {
            status = take_short(args, typed, &c, err);
        }
    }
    if (status == REEL_OK && !args->wants_help) status = check_arguments(args, err);
    if (status != REEL_OK) cli_args_release(args);
    return status;
}

void cli_args_release(struct cli_args *args) {
    mem_free(args->values);
    mem_free(args->arguments);
    *args = (struct cli_args){ 0 };
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct cli_value *find_value(const struct cli_args *args, const char *name,
                                          int index) {
    assert(cli_find_option(args->command, name));
    for (int i = 0; i < args->n_values; i++)
        if (strcmp(args->values[i].option->name, name) == 0 && index-- == 0)
            return &args->values[i];
    return NULL;
}

bool cli_has(const struct cli_args *args, const char *name) {
    return find_value(args, name, 0) != NULL;
}

const char *cli_text(const struct cli_args *args, const char *name, const char *fallback) {
    const struct cli_value *value = find_value(args, name, 0);
    return value ? value->text : fallback;
}

int64_t cli_integer(const struct cli_args *args, const char *name, int64_t fallback) {
    const struct cli_value *value = find_value(args, name, 0);
    return value ? value->integer : fallback;
}

double cli_real(const struct cli_args *args, const char *name, double fallback) {
    const struct cli_value *value = find_value(args, name, 0);
    return value ? value->real : fallback;
}

const char *cli_repeated(const struct cli_args *args, const char *name, int index) {
    const struct cli_value *value = find_value(args, name, index);
    return value ? value->text : NULL;
}
