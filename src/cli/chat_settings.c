/* /set: what the command line calls --temp, --top-k and so on, changed within a chat. Names, ranges
 * and messages are those of the command line's table. */
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/open_model.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAMES 20
#define LENGTH    "tokens" /* the one setting that is not about sampling */

/* The names that may be set, up to a NULL. */
static void list_names(const char *names[MAX_NAMES + 1]) {
    int n = 0;
    for (; n < cli_sampling_group.n_options && n < MAX_NAMES - 1; n++)
        names[n] = cli_sampling_group.options[n].name;
    names[n++] = LENGTH;
    names[n] = NULL;
}

/* The value as it would be typed. */
static void print_value(const struct chat *c, const char *name) {
    const struct reel_sampling *s = &c->sampling;
    const struct {
        const char *name;
        double value;
    } reals[] = { { "temp", (double)s->temperature },
                  { "top-p", (double)s->top_p },
                  { "min-p", (double)s->min_p },
                  { "repeat-penalty", (double)s->repetition_penalty },
                  { "presence-penalty", (double)s->presence_penalty },
                  { "frequency-penalty", (double)s->frequency_penalty },
                  { "top-k", s->top_k },
                  { LENGTH, c->max_tokens } };
    fprintf(stderr, "  %-18s", name);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (strcmp(reals[i].name, name) == 0) fprintf(stderr, "%g", reals[i].value);
    if (strcmp(name, "seed") == 0) fprintf(stderr, "%llu", (unsigned long long)s->seed);
    fputc('\n', stderr);
}

/* Parsed as `reel chat --NAME=VALUE MODEL` is. */
static enum reel_status change(struct chat *c, const char *name, const char *value,
                               struct reel_error *err) {
    struct buffer typed = { 0 };
    struct cli_args args = { 0 };
    enum reel_status status = buffer_printf(&typed, err, "--%s=%s", name, value);
    if (status == REEL_OK) {
        char model[] = "-", *words[] = { typed.bytes, model };
        status = cli_parse(&args, c->args->command, 2, words, err);
    }
    if (status == REEL_OK) {
        cli_sampling_typed(&c->sampling, &args);
        c->max_tokens = (int)cli_integer(&args, LENGTH, c->max_tokens);
        print_value(c, name);
    } else if (err && strncmp(err->text, "--", 2) == 0) { /* here it has no dashes */
        char text[sizeof err->text];
        memcpy(text, err->text + 2, sizeof text - 2);
        text[sizeof text - 3] = '\0';
        status = err_set(err, status, "/set %s", text);
    }
    cli_args_release(&args);
    buffer_release(&typed);
    return status;
}

enum reel_status chat_set(struct chat *c, const char *text, struct reel_error *err) {
    const char *names[MAX_NAMES + 1];
    char name[40];
    const size_t n = strcspn(text, " \t\n=");
    const char *value = text + n + strspn(text + n, " \t\n=");
    list_names(names);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    for (int i = 0; names[i]; i++) {
        if (n > 0 && strcmp(names[i], name) != 0) continue;
        if (n > 0 && value[0]) return change(c, name, value, err);
        print_value(c, names[i]);
        if (n > 0) return REEL_OK;
    }
    if (n == 0) return REEL_OK;
    const char *nearest = cli_nearest(name, names);
    return err_set(err, REEL_E_ARGUMENT, "/set: there is no setting %s%s%s; /set alone lists them",
                   name, nearest ? "; did you mean " : "", nearest ? nearest : "");
}
