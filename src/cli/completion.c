/* Completion scripts for bash and zsh. */
#include "cli/commands.h"
#include "cli/help.h"

#include <string.h>

static bool wants_file(const struct cli_option *o) {
    return o->argument && strcmp(o->argument, "FILE") == 0;
}

/* Runs body(out, option) for every option of the command. */
static void each_option(FILE *out, const struct cli_command *command,
                        void (*body)(FILE *out, const struct cli_option *)) {
    for (int g = 0; g < CLI_MAX_GROUPS && command->groups[g]; g++)
        for (int i = 0; i < command->groups[g]->n_options; i++)
            body(out, &command->groups[g]->options[i]);
}

static void bash_name(FILE *out, const struct cli_option *o) { fprintf(out, " --%s", o->name); }

/* What to offer after an option that takes a value. */
static void bash_value(FILE *out, const struct cli_option *o) {
    if (o->kind == CLI_FLAG) return;
    fprintf(out, "        --%s", o->name);
    if (o->letter) fprintf(out, "|-%c", o->letter);
    if (o->kind == CLI_CHOICE)
        fprintf(out, ") COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", o->choices);
    else if (wants_file(o))
        fputs(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", out);
    else
        fputs(") return ;;\n", out);
}

void help_bash(FILE *out) {
    fputs("# bash completion for reel; made by: reel help --completion bash\n"
          "_reel() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local names=''\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W '--help --version",
          out);
    for (int i = 0; cli_commands[i]; i++)
        fprintf(out, " %s", cli_commands[i]->name);
    fputs("' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "    %s)\n        names='--help", cli_commands[i]->name);
        each_option(out, cli_commands[i], bash_name);
        fputs("'\n        case $before in\n", out);
        each_option(out, cli_commands[i], bash_value);
        fputs("        esac ;;\n", out);
    }
    fputs("    esac\n"
          "    case $word in\n"
          "    -*) COMPREPLY=($(compgen -W \"$names\" -- \"$word\")) ;;\n"
          "    *) COMPREPLY=($(compgen -W demo -- \"$word\") $(compgen -f -- \"$word\")) ;;\n"
          "    esac\n"
          "}\n"
          "complete -o filenames -F _reel reel\n",
          out);
}

/* Help text inside '...[...]': quotes, brackets and colons mean something there. */
static void zsh_text(FILE *out, const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) fputc('\\', out);
        if (*text == '\'') fputs("'\\'", out);
        fputc(*text, out);
    }
}

static void zsh_option(FILE *out, const struct cli_option *o) {
    char names[2][40];
    snprintf(names[0], sizeof names[0], "--%s", o->name);
    snprintf(names[1], sizeof names[1], "-%c", o->letter);
    for (int i = 0; i < (o->letter ? 2 : 1); i++) {
        fprintf(out, "            '%s%s[", o->repeats ? "*" : "", names[i]);
        zsh_text(out, o->help);
        fputc(']', out);
        if (o->kind != CLI_FLAG) fprintf(out, ":%s:", o->argument);
        if (o->kind == CLI_CHOICE) fprintf(out, "(%s)", o->choices);
        if (wants_file(o)) fputs("_files", out);
        fputs("' \\\n", out);
    }
}

void help_zsh(FILE *out) {
    fputs("#compdef reel\n# zsh completion for reel; made by: reel help --completion zsh\n"
          "_reel() {\n"
          "    if (( CURRENT == 2 )); then\n"
          "        local -a commands=(\n",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "            '%s:", cli_commands[i]->name);
        zsh_text(out, cli_commands[i]->summary);
        fputs("'\n", out);
    }
    fputs("        )\n        _describe command commands\n        return\n    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n    (( CURRENT-- ))\n"
          "    case $command in\n",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "    %s)\n        _arguments \\\n", cli_commands[i]->name);
        each_option(out, cli_commands[i], zsh_option);
        fputs("            '--help[explain the command]' '*:model or file:_files' ;;\n", out);
    }
    fputs("    esac\n}\n_reel \"$@\"\n", out);
}
