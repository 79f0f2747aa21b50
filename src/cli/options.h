/* The one description of commands and options. From it come the parser, --help, the man page and
 * the shell completions, so none of them can tell another story than the rest.
 *
 * To add a command: write cmd_NAME.c that defines `const struct cli_command cmd_NAME`, and add NAME
 * to CLI_COMMANDS in commands.h. Nothing else.
 */
#ifndef REEL_CLI_OPTIONS_H
#define REEL_CLI_OPTIONS_H

#include "base/error.h"

enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_INTEGER, CLI_REAL, CLI_CHOICE };

struct cli_option {
    const char *name; /* without dashes */
    char letter;      /* short form, or 0 */
    enum cli_kind kind;
    const char *argument; /* how help calls the value: "N"; completion knows what to offer for FILE,
                             FOLDER, MODEL, DEVICE and KEY=VALUE. Of a flag: "[=NAME]", which may
                             follow it; cli_text finds it */
    const char *choices;  /* CLI_CHOICE: allowed words, separated by spaces */
    /* CLI_CHOICE, or NULL: what else is allowed, and how messages call it, such as gpu:N. */
    bool (*accepts)(const char *text);
    const char *accepted;
    int64_t least, most; /* CLI_INTEGER: allowed range, both ends included */
    double low, high;    /* CLI_REAL: the same */
    bool repeats;        /* may be given several times */
    const char *others;  /* or NULL: what other programs call it, separated by spaces; suggested */
    const char *help;    /* one sentence without a capital or a full stop; defaults are named */
};

struct cli_group {
    const char *title; /* "Sampling" */
    const struct cli_option *options;
    int n_options;
};
#define CLI_GROUP(heading, list)                                                                   \
    { .title = (heading), .options = (list), .n_options = (int)(sizeof(list) / sizeof *(list)) }

#define CLI_MAX_GROUPS 6

struct cli_args;

struct cli_command {
    const char *name;
    const char *others;    /* or NULL: what people may call it, separated by spaces; suggested */
    const char *arguments; /* "MODEL [FILE...]" */
    int least_arguments, most_arguments;
    const char *summary;                            /* one line, no full stop */
    const char *description;                        /* paragraphs separated by empty lines */
    const struct cli_group *groups[CLI_MAX_GROUPS]; /* up to the first NULL */
    /* Text goes to stdout, everything else to stderr. The status is the exit status; err->text is
     * printed unless it is empty. */
    enum reel_status (*run)(const struct cli_args *args, struct reel_error *err);
};

/* What was typed, checked against the table. */
struct cli_value {
    const struct cli_option *option;
    const char *text; /* borrowed from argv; NULL for flags without a value */
    int64_t integer;
    double real;
};
struct cli_args {
    const struct cli_command *command;
    const char **arguments; /* [n_arguments] not options */
    int n_arguments;
    struct cli_value *values; /* [n_values] in the order typed */
    int n_values;
    bool wants_help; /* --help came up; nothing after it was checked */
};

/* Parses what follows the command's name. Unknown options name the nearest known one. */
enum reel_status cli_parse(struct cli_args *args, const struct cli_command *command, int argc,
                           char **argv, struct reel_error *err);
void cli_args_release(struct cli_args *args);

/* Reads by name; a name that the command's table lacks is our mistake and asserts. */
bool cli_has(const struct cli_args *args, const char *name);
const char *cli_text(const struct cli_args *args, const char *name, const char *fallback);
int64_t cli_integer(const struct cli_args *args, const char *name, int64_t fallback);
double cli_real(const struct cli_args *args, const char *name, double fallback);

/* The value of the index-th time `name` was given; NULL past the last. */
const char *cli_repeated(const struct cli_args *args, const char *name, int index);

/* The option of that name, or NULL. */
const struct cli_option *cli_find_option(const struct cli_command *command, const char *name);

/* Of words (NULL-terminated), the one nearest to text, or NULL when none is near. Capitals do not
 * count, letters that changed places are one mistake, and three letters or more with which a word
 * begins are near. */
const char *cli_nearest(const char *text, const char *const *words);

/* Whether `text` is one of the words that spaces separate. */
bool cli_is_word(const char *words, const char *text);

#endif
