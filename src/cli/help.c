/* --help and the man page. */
#include "cli/help.h"

#include "cli/commands.h"
#include "reel_measure.h"

#include <string.h>

#define COLUMNS     80
#define HELP_INDENT 26 /* where an option's explanation begins */

/* Writes words from column `at`, breaking lines before COLUMNS; later lines begin at `indent`. */
static void wrap(FILE *out, const char *text, int at, int indent) {
    bool first = true;
    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (!first && at + 1 + n > COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", n, text);
        at += n;
        first = false;
        text += n;
        if (strncmp(text, "\n\n", 2) == 0) { /* a new paragraph */
            fprintf(out, "\n\n%*s", indent, "");
            at = indent;
            first = true;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', out);
}

static void put_option(FILE *out, const struct cli_option *o) {
    char left[100];
    int n = snprintf(left, sizeof left, "  %c%c%s --%s%s%s", o->letter ? '-' : ' ',
                     o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
                     o->argument && o->kind != CLI_FLAG ? " " : "", o->argument ? o->argument : "");
    fputs(left, out);
    if (n > HELP_INDENT - 2) {
        fprintf(out, "\n%*s", HELP_INDENT, "");
    } else {
        fprintf(out, "%*s", HELP_INDENT - n, "");
    }
    wrap(out, o->help, HELP_INDENT, HELP_INDENT);
}

static void put_statuses(FILE *out) {
    fputs("\nExit status:\n", out);
#define PUT(name, value, text) fprintf(out, "  %2d  %s\n", value, text);
    REEL_STATUS_LIST(PUT)
#undef PUT
}

static const char about_models[] =
    "MODEL is a folder with config.json and safetensors, a .gguf file, a repository name "
    "OWNER/NAME or OWNER/NAME:Q4_K_M (--pull fetches what is not in the cache), or demo: the small "
    "model inside this program.";

void help_command(FILE *out, const struct cli_command *command) {
    fprintf(out, "usage: reel %s %s\n\n", command->name, command->arguments);
    wrap(out, command->description, 0, 0);
    if (strstr(command->arguments, "MODEL")) {
        fputc('\n', out);
        wrap(out, about_models, 0, 0);
    }
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++) {
        fprintf(out, "\n%s:\n", command->groups[g]->title);
        for (int i = 0; i < command->groups[g]->n_options; i++)
            put_option(out, &command->groups[g]->options[i]);
    }
    put_statuses(out);
}

void help_overview(FILE *out) {
    fputs("usage: reel COMMAND [ARGUMENTS] [OPTIONS]\n\n"
          "Small language models at the lowest latency this machine allows.\n\nCommands:\n",
          out);
    for (int i = 0; cli_commands[i]; i++)
        fprintf(out, "  %-12s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputc('\n', out);
    wrap(out, about_models, 0, 0);
    fputs("\nreel COMMAND --help explains a command; reel --version prints the version.\n"
          "First steps: reel run demo\n",
          out);
    put_statuses(out);
}

void help_gpu_options(FILE *out) {
    struct reel_gpu_option o = { .size = sizeof o };
    fputs("usage: reel COMMAND --gpu-option KEY=VALUE\n\n", out);
    wrap(out,
         "These options are for experiments and tests. What is not given is chosen for the model "
         "and "
         "the GPU, and a later version may name an option otherwise.",
         0, 0);
    fputs("\nKeys:\n", out);
    for (int i = 0; reel_gpu_option(i, &o, NULL) == REEL_OK; i++) {
        char text[300];
        (void)snprintf(text, sizeof text, "%s (%lld to %lld; default %lld)", o.meaning,
                       (long long)o.least, (long long)o.most, (long long)o.standard);
        fprintf(out, "  %-*s", HELP_INDENT - 2, o.key);
        wrap(out, text, HELP_INDENT, HELP_INDENT);
    }
}

/* ---- roff ------------------------------------------------------------------------------------ */

/* Text with what roff would take as its own made harmless. */
static void roff(FILE *out, const char *text) {
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\'')) fputs("\\&", out);
        line_start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (line_start && text[1] == '\n')
            fputs("\n.PP", out); /* the next newline ends it */
        else
            fputc(*text, out);
    }
}

static void roff_option(FILE *out, const struct cli_option *o) {
    fputs(".TP\n", out);
    if (o->letter) fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB", out);
    roff(out, "--");
    roff(out, o->name);
    fputs("\\fR", out);
    if (o->argument) fprintf(out, "%s\\fI%s\\fR", o->kind == CLI_FLAG ? "" : " ", o->argument);
    fputc('\n', out);
    roff(out, o->help);
    fputc('\n', out);
}

static void roff_command(FILE *out, const struct cli_command *command) {
    fprintf(out, ".SS reel %s %s\n", command->name, command->arguments);
    roff(out, command->description);
    fputc('\n', out);
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
        for (int i = 0; i < command->groups[g]->n_options; i++)
            roff_option(out, &command->groups[g]->options[i]);
}

static void roff_pairs(FILE *out, const char *heading, const char *const pairs[][2]) {
    fprintf(out, ".SH %s\n", heading);
    for (; (*pairs)[0]; pairs++) {
        fputs(".TP\n\\fB", out);
        roff(out, (*pairs)[0]);
        fputs("\\fR\n", out);
        roff(out, (*pairs)[1]);
        fputc('\n', out);
    }
}

static void roff_gpu_options(FILE *out) {
    struct reel_gpu_option o = { .size = sizeof o };
    fputs(".SH GPU OPTIONS\nWhat \\fB\\-\\-gpu\\-option\\fR changes, for experiments and tests.\n",
          out);
    for (int i = 0; reel_gpu_option(i, &o, NULL) == REEL_OK; i++) {
        fputs(".TP\n\\fB", out);
        roff(out, o.key);
        fprintf(out, "\\fR (%lld to %lld; default %lld)\n", (long long)o.least, (long long)o.most,
                (long long)o.standard);
        roff(out, o.meaning);
        fputc('\n', out);
    }
}

void help_man(FILE *out) {
    fprintf(out, ".TH REEL 1 \"\" \"reel %s\" \"User Commands\"\n", reel_version());
    fputs(".SH NAME\nreel \\- run small language models at low latency\n"
          ".SH SYNOPSIS\n.B reel\n\\fICOMMAND\\fR [\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n"
          ".SH DESCRIPTION\n",
          out);
    roff(out, about_models);
    fputs("\n.PP\nText goes to standard output, everything else to standard error.\n"
          ".SH COMMANDS\n",
          out);
    for (int i = 0; cli_commands[i]; i++)
        roff_command(out, cli_commands[i]);
    roff_gpu_options(out);
    fputs(".SH EXIT STATUS\n", out);
#define PUT(name, value, text) fprintf(out, ".TP\n.B %d\n%s\n", value, text);
    REEL_STATUS_LIST(PUT)
#undef PUT
    roff_pairs(out, "ENVIRONMENT", cli_environment);
    roff_pairs(out, "FILES", cli_files);
}
