/* Completion scripts for bash, zsh and fish. What only this machine knows, models and devices, the
 * scripts ask `reel help --words` for. */
#include "cli/commands.h"
#include "cli/help.h"
#include "reel_measure.h"

#include <string.h>

/* ---- what to offer --------------------------------------------------------------------------- */

/* By how help calls the value of an option, or an argument. */
enum offer {
    OFFER_NOTHING,
    OFFER_FILES,
    OFFER_FOLDERS,
    OFFER_MODELS, /* names, files and folders */
    OFFER_NAMES,  /* of models alone */
    OFFER_DEVICES,
    OFFER_KEYS, /* of --gpu-option */
    OFFER_COMMANDS,
    N_OFFERS
};

static enum offer offer_of(const char *called, size_t n) {
    static const struct {
        const char *called;
        enum offer offer;
    } rows[] = {
        { "FILE", OFFER_FILES },     { "FOLDER", OFFER_FOLDERS },   { "MODEL", OFFER_MODELS },
        { "DEVICE", OFFER_DEVICES }, { "KEY=VALUE", OFFER_KEYS },   { "OWNER/NAME", OFFER_NAMES },
        { "SHAPE", OFFER_FILES },    { "COMMAND", OFFER_COMMANDS },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].called) == n && memcmp(rows[i].called, called, n) == 0)
            return rows[i].offer;
    return OFFER_NOTHING;
}

static enum offer offer_of_option(const struct cli_option *o) {
    return o->argument ? offer_of(o->argument, strlen(o->argument)) : OFFER_NOTHING;
}

struct argument {
    const char *called; /* "MODEL", borrowed from the table */
    int n_called;
    enum offer offer;
    bool repeats;
};

#define MOST_ARGUMENTS 8

/* Reads "MODEL [TEXT...]" and the like up to an option. Returns how many there are. */
static int read_arguments(struct argument list[MOST_ARGUMENTS], const char *arguments) {
    int n = 0;
    for (const char *at = arguments; *at && n < MOST_ARGUMENTS; at += strspn(at, " ")) {
        const size_t whole = strcspn(at, " ");
        const char *called = at + strspn(at, "[");
        at += whole;
        if (*called == '-' || *called == '|') break;
        const size_t length = strcspn(called, ".[]: ");
        list[n++] = (struct argument){ .called = called,
                                       .n_called = (int)length,
                                       .offer = offer_of(called, length),
                                       .repeats = strncmp(called + length, "...", 3) == 0 };
    }
    return n;
}

/* Runs body(out, option) for every option of the command. */
static void each_option(FILE *out, const struct cli_command *command,
                        void (*body)(FILE *out, const struct cli_option *)) {
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
        for (int i = 0; i < command->groups[g]->n_options; i++)
            body(out, &command->groups[g]->options[i]);
}

/* " run chat ..." */
static void put_commands(FILE *out) {
    for (int i = 0; cli_commands[i]; i++)
        fprintf(out, " %s", cli_commands[i]->name);
}

/* " lead= launch_ms= ..." */
static void put_keys(FILE *out) {
    struct reel_gpu_option o = { .size = sizeof o };
    for (int i = 0; reel_gpu_option(i, &o, NULL) == REEL_OK; i++)
        fprintf(out, " %s=", o.key);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_name(FILE *out, const struct cli_option *o) { fprintf(out, " --%s", o->name); }

static void bash_taker(FILE *out, const struct cli_option *o) {
    if (o->kind == CLI_FLAG) return;
    fprintf(out, " --%s", o->name);
    if (o->letter) fprintf(out, " -%c", o->letter);
}

static const char *const bash_calls[N_OFFERS] = {
    [OFFER_FILES] = "_reel_files",         [OFFER_FOLDERS] = "_reel_folders",
    [OFFER_MODELS] = "_reel_models",       [OFFER_NAMES] = "_reel_ask models",
    [OFFER_DEVICES] = "_reel_ask devices", [OFFER_KEYS] = "_reel_keys",
    [OFFER_COMMANDS] = "_reel_commands",
};

/* What to offer after an option that takes a value. */
static void bash_value(FILE *out, const struct cli_option *o) {
    const enum offer offer = offer_of_option(o);
    if (o->kind == CLI_FLAG || (offer == OFFER_NOTHING && o->kind != CLI_CHOICE)) return;
    fprintf(out, "            --%s", o->name);
    if (o->letter) fprintf(out, "|-%c", o->letter);
    if (offer != OFFER_NOTHING)
        fprintf(out, ") %s ;;\n", bash_calls[offer]);
    else
        fprintf(out, ") _reel_words '%s' ;;\n", o->choices);
}

/* $at arguments stand before the word. */
static void bash_arguments(FILE *out, const struct cli_command *command) {
    struct argument list[MOST_ARGUMENTS];
    const int n = read_arguments(list, command->arguments);
    for (int i = 0; i < n; i++) {
        const char *call = bash_calls[list[i].offer];
        if (!call) continue;
        if (list[i].repeats) /* and every later one */
            fprintf(out, "            *) %s ;;\n", call);
        else
            fprintf(out, "            %d) %s ;;\n", i, call);
    }
}

static void bash_command(FILE *out, const struct cli_command *command) {
    fprintf(out, "    %s)\n        names='--help", command->name);
    each_option(out, command, bash_name);
    fputs("' takes=' ", out);
    each_option(out, command, bash_taker);
    fputs(" '\n        _reel_place\n        case $option in\n            '') case $at in\n", out);
    bash_arguments(out, command);
    fputs("            esac ;;\n", out);
    each_option(out, command, bash_value);
    fputs("        esac ;;\n", out);
}

static const char bash_helpers[] =
    "# These see the variables of _reel: value is what to complete, the rest explains itself.\n"
    "_reel_words() { COMPREPLY+=($(compgen -W \"$1\" -- \"$value\")); }\n"
    "_reel_ask() { _reel_words \"$(\"${COMP_WORDS[0]/#\\~/$HOME}\" help --words \"$1\" "
    "2>/dev/null)\"; }\n"
    "_reel_files() {\n"
    "    local IFS=$'\\n'\n"
    "    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o filenames 2>/dev/null\n"
    "    COMPREPLY+=($(compgen -f -- \"$value\"))\n"
    "}\n"
    "_reel_folders() {\n"
    "    local IFS=$'\\n'\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    COMPREPLY+=($(compgen -d -- \"$value\"))\n"
    "}\n"
    "_reel_models() { _reel_ask models; _reel_files; }\n"
    "# Where the cursor is: behind an option (its name in option), or at an argument (at, from "
    "0).\n"
    "_reel_place() {\n"
    "    local i skip= dashes=\n"
    "    for ((i = 2; i < n - 1; i++)); do\n"
    "        if [ -n \"$skip\" ]; then skip=\n"
    "        elif [ -z \"$dashes\" ] && [ \"${words[i]}\" = -- ]; then dashes=1\n"
    "        elif [ -n \"$dashes\" ] || [[ ${words[i]} != -?* ]]; then at=$((at + 1))\n"
    "        elif [[ $takes == *\" ${words[i]} \"* ]]; then skip=1\n"
    "        fi\n"
    "    done\n"
    "    if [ -n \"$skip\" ]; then\n"
    "        option=${words[n - 2]}\n"
    "    elif [ -z \"$dashes\" ] && [[ $value == --*=* ]]; then\n"
    "        option=${value%%=*} value=${value#*=}\n"
    "    elif [ -z \"$dashes\" ] && [[ $value == -* ]]; then\n"
    "        option=- && _reel_words \"$names\"\n"
    "    fi\n"
    "}\n";

static const char bash_begin[] =
    "_reel() {\n"
    "    local -a words=()\n"
    "    local value= option= names= takes= part= glue= i n=0 at=0\n"
    "    COMPREPLY=()\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do # bash takes words apart at = and :\n"
    "        part=${COMP_WORDS[i]}\n"
    "        if [ $n -gt 0 ] && [ -n \"$part\" ] && [[ $part != *[!:=]* ]]; then\n"
    "            words[n - 1]+=$part glue=1\n"
    "        elif [ -n \"$glue\" ] && [ -n \"$part\" ]; then\n"
    "            words[n - 1]+=$part glue=\n"
    "        else\n"
    "            words[n]=$part n=$((n + 1)) glue=\n"
    "        fi\n"
    "    done\n"
    "    value=${words[n - 1]}\n";

static const char bash_end[] =
    "    if [[ $value == *:* && $COMP_WORDBREAKS == *:* ]]; then # readline has the rest already\n"
    "        part=${value%\"${value##*:}\"}\n"
    "        COMPREPLY=(\"${COMPREPLY[@]#\"$part\"}\")\n"
    "    fi\n"
    "}\n"
    "complete -F _reel reel\n";

void help_bash(FILE *out) {
    fputs("# bash completion for reel; made by: reel help --completion bash\n", out);
    fputs(bash_helpers, out);
    fputs("_reel_commands() { _reel_words '", out);
    put_commands(out);
    fputs("'; }\n_reel_keys() {\n    compopt -o nospace 2>/dev/null\n    _reel_words '", out);
    put_keys(out);
    fputs("'\n}\n", out);
    fputs(bash_begin, out);
    fputs("    if [ $n -eq 2 ]; then\n        _reel_words '--help --version'\n        "
          "_reel_commands\n        return\n    fi\n    case ${words[1]} in\n",
          out);
    for (int i = 0; cli_commands[i]; i++)
        bash_command(out, cli_commands[i]);
    fputs("    esac\n", out);
    fputs(bash_end, out);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* Help text inside '...[...]': quotes, brackets and colons mean something there. */
static void zsh_text(FILE *out, const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) fputc('\\', out);
        if (*text == '\'') fputs("'\\'", out);
        fputc(*text, out);
    }
}

static const char *const zsh_calls[N_OFFERS] = {
    [OFFER_NOTHING] = " ",         [OFFER_FILES] = "_files",
    [OFFER_FOLDERS] = "_files -/", [OFFER_MODELS] = "_reel_models",
    [OFFER_NAMES] = "_reel_names", [OFFER_DEVICES] = "_reel_devices",
    [OFFER_KEYS] = "_reel_keys",   [OFFER_COMMANDS] = "_reel_commands",
};

static void zsh_option(FILE *out, const struct cli_option *o) {
    char names[2][40];
    const enum offer offer = offer_of_option(o);
    const bool takes = o->kind != CLI_FLAG;
    snprintf(names[0], sizeof names[0], "--%s%s", o->name, takes ? "=" : "");
    snprintf(names[1], sizeof names[1], "-%c%s", o->letter, takes ? "+" : "");
    for (int i = 0; i < (o->letter ? 2 : 1); i++) {
        fprintf(out, "            '%s%s[", o->repeats ? "*" : "", names[i]);
        zsh_text(out, o->help);
        fputc(']', out);
        if (takes) fprintf(out, ":%s:", o->argument);
        if (offer != OFFER_NOTHING)
            fputs(zsh_calls[offer], out);
        else if (o->kind == CLI_CHOICE)
            fprintf(out, "(%s)", o->choices);
        fputs("' \\\n", out);
    }
}

/* Nothing is said of a text: the message that there is nothing to offer would keep an option beside
 * it from being completed. */
static void zsh_arguments(FILE *out, const struct cli_command *command) {
    struct argument list[MOST_ARGUMENTS];
    const int n = read_arguments(list, command->arguments);
    for (int i = 0; i < n; i++) {
        if (list[i].offer == OFFER_NOTHING) continue;
        if (list[i].repeats)
            fputs(" '*:", out);
        else
            fprintf(out, " '%d:", i + 1);
        fprintf(out, "%.*s:%s'", list[i].n_called, list[i].called, zsh_calls[list[i].offer]);
    }
}

static void zsh_commands(FILE *out) {
    fputs("_reel_commands() {\n    local -a commands=(\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "        '%s:", cli_commands[i]->name);
        zsh_text(out, cli_commands[i]->summary);
        fputs("'\n", out);
    }
    fputs("    )\n    _describe command commands\n}\n", out);
}

static const char zsh_helpers[] =
    "_reel_ask() { _call_program \"$1\" \"$reel help --words $1 2>/dev/null\"; }\n"
    "_reel_names() {\n"
    "    local -a names=(${(f)\"$(_reel_ask models)\"})\n"
    "    _wanted models expl model compadd -a names\n"
    "}\n"
    "_reel_models() { _alternative 'models:model:_reel_names' 'files:file or folder:_files'; }\n"
    "_reel_devices() {\n"
    "    local -a names=(${(f)\"$(_reel_ask devices)\"})\n"
    "    _wanted devices expl device compadd -a names\n"
    "}\n";

void help_zsh(FILE *out) {
    fputs("#compdef reel\n# zsh completion for reel; made by: reel help --completion zsh\n", out);
    fputs(zsh_helpers, out);
    fputs("_reel_keys() { compadd -S '' --", out);
    put_keys(out);
    fputs("; }\n", out);
    zsh_commands(out);
    fputs("_reel() {\n"
          "    local reel=$words[1]\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _reel_commands\n        return\n    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n    (( CURRENT-- ))\n"
          "    case $command in\n",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "    %s)\n        _arguments \\\n", cli_commands[i]->name);
        each_option(out, cli_commands[i], zsh_option);
        fputs("            '--help[explain the command]'", out);
        zsh_arguments(out, cli_commands[i]);
        fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n_reel \"$@\"\n", out);
}

/* ---- fish ------------------------------------------------------------------------------------ */

/* Inside '...', where a quote and a backslash mean something. */
static void fish_text(FILE *out, const char *text) {
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

/* The words of an offer, or files. */
static void fish_offer(FILE *out, enum offer offer) {
    static const char *const words[N_OFFERS] = {
        [OFFER_FOLDERS] = " -a '(__fish_complete_directories)'",
        [OFFER_MODELS] = " -F -a '(__reel_ask models)'",
        [OFFER_NAMES] = " -a '(__reel_ask models)'",
        [OFFER_DEVICES] = " -a '(__reel_ask devices)'",
        [OFFER_FILES] = " -F",
    };
    if (words[offer]) fputs(words[offer], out);
    if (offer != OFFER_COMMANDS && offer != OFFER_KEYS) return;
    fputs(" -a '", out);
    if (offer == OFFER_COMMANDS)
        put_commands(out);
    else
        put_keys(out);
    fputc('\'', out);
}

static void fish_option(FILE *out, const char *command, const struct cli_option *o) {
    const enum offer offer = offer_of_option(o);
    fprintf(out, "complete -c reel -n '__reel_is %s' -l %s", command, o->name);
    if (o->letter) fprintf(out, " -s %c", o->letter);
    const bool files = offer == OFFER_FILES || offer == OFFER_MODELS || offer == OFFER_FOLDERS;
    if (o->kind != CLI_FLAG) fputs(files ? " -r" : " -x", out); /* -x: and no files */
    if (offer != OFFER_NOTHING)
        fish_offer(out, offer);
    else if (o->kind == CLI_CHOICE)
        fprintf(out, " -a '%s'", o->choices);
    fputs(" -d ", out);
    fish_text(out, o->help);
    fputc('\n', out);
}

static void fish_command(FILE *out, const struct cli_command *command) {
    struct argument list[MOST_ARGUMENTS];
    const int n = read_arguments(list, command->arguments);
    fprintf(out, "complete -c reel -n __reel_first -a %s -d ", command->name);
    fish_text(out, command->summary);
    fprintf(out, "\ncomplete -c reel -n '__reel_is %s' -l help -d 'explain the command'\n",
            command->name);
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
        for (int i = 0; i < command->groups[g]->n_options; i++)
            fish_option(out, command->name, &command->groups[g]->options[i]);
    for (int i = 0; i < n; i++) {
        if (list[i].offer == OFFER_NOTHING) continue;
        fprintf(out, "complete -c reel -n '__reel_at %s %s %d", command->name,
                list[i].repeats ? "-ge" : "-eq", i);
        each_option(out, command, bash_taker);
        fputc('\'', out);
        fish_offer(out, list[i].offer);
        fputc('\n', out);
    }
}

static const char fish_helpers[] =
    "function __reel_ask\n"
    "    set -l words (commandline -opc)\n"
    "    $words[1] help --words $argv[1] 2>/dev/null\n"
    "end\n"
    "function __reel_first\n"
    "    test (count (commandline -opc)) -eq 1\n"
    "end\n"
    "function __reel_is\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
    "end\n"
    "# COMMAND -eq|-ge N OPTIONS...: whether so many arguments stand before the cursor, which is "
    "at\n"
    "# one; the OPTIONS have values.\n"
    "function __reel_at\n"
    "    set -l words (commandline -opc)\n"
    "    set -l n 0\n"
    "    set -l skip 0\n"
    "    __reel_is $argv[1]; or return 1\n"
    "    set -e words[1..2]\n"
    "    for word in $words\n"
    "        if test $skip = 1\n"
    "            set skip 0\n"
    "        else if contains -- $word $argv[4..-1]\n"
    "            set skip 1\n"
    "        else if not string match -q -- '-*' $word\n"
    "            set n (math $n + 1)\n"
    "        end\n"
    "    end\n"
    "    test $skip = 0; and test $n $argv[2] $argv[3]\n"
    "end\n"
    "complete -c reel -f\n"
    "complete -c reel -n __reel_first -l help -d 'list the commands'\n"
    "complete -c reel -n __reel_first -l version -d 'print the version'\n";

void help_fish(FILE *out) {
    fputs("# fish completion for reel; made by: reel help --completion fish\n", out);
    fputs(fish_helpers, out);
    for (int i = 0; cli_commands[i]; i++)
        fish_command(out, cli_commands[i]);
}
