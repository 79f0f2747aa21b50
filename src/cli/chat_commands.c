/* The commands of a chat: lines that begin with a slash. */
#include "cli/chat.h"
#include "cli/open_model.h"

#include <string.h>

static enum reel_status do_reset(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    (void)err;
    conversation_reset(&c->conversation);
    fputs("the conversation is empty\n", stderr);
    return REEL_OK;
}

static enum reel_status do_system(struct chat *c, const char *rest, struct reel_error *err) {
    enum reel_status status = conversation_set_system(&c->conversation, rest, err);
    if (status == REEL_OK) fputs(rest[0] ? "system message set\n" : "no system message\n", stderr);
    return status;
}

static enum reel_status do_think(struct chat *c, const char *rest, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    bool on = strcmp(rest, "on") == 0;
    if (!on && strcmp(rest, "off") != 0)
        return err_set(err, REEL_E_ARGUMENT, "/think takes on or off, found \"%s\"", rest);
    c->thinking = on ? REEL_THINKING_ON : REEL_THINKING_OFF;
    info = cli_model_info(c->model);
    if (info.chat_thinks)
        fprintf(stderr, "thinking %s\n", rest);
    else
        fputs("this model's template knows no thinking: nothing changes\n", stderr);
    return REEL_OK;
}

static enum reel_status do_save(struct chat *c, const char *rest, struct reel_error *err) {
    if (!rest[0]) return err_set(err, REEL_E_ARGUMENT, "/save needs a file name");
    enum reel_status status = conversation_save(&c->conversation, rest, err);
    if (status == REEL_OK) fprintf(stderr, "%s: %d messages\n", rest, c->conversation.n_messages);
    return status;
}

static enum reel_status do_load(struct chat *c, const char *rest, struct reel_error *err) {
    if (!rest[0]) return err_set(err, REEL_E_ARGUMENT, "/load needs a file name");
    enum reel_status status = conversation_load(&c->conversation, rest, err);
    if (status == REEL_OK) fprintf(stderr, "%s: %d messages\n", rest, c->conversation.n_messages);
    return status;
}

static enum reel_status do_regen(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    return chat_ask_again(c, err);
}

static enum reel_status do_stats(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    (void)err;
    fprintf(stderr, "%d of %d positions used", reel_session_length(c->session),
            reel_session_max_context(c->session));
    if (c->n_answers) {
        fputs("; last: ", stderr);
        answer_print_figures(stderr, &c->last);
        if (c->sampling.temperature > 0)
            fprintf(stderr, " | seed %llu", (unsigned long long)c->sampling.seed - 1);
    }
    fputc('\n', stderr);
    return REEL_OK;
}

static enum reel_status do_quit(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    (void)err;
    c->quit = true;
    return REEL_OK;
}

static enum reel_status do_help(struct chat *c, const char *rest, struct reel_error *err);

static const struct word {
    const char *name, *argument, *help;
    enum reel_status (*run)(struct chat *c, const char *rest, struct reel_error *err);
} words[] = {
    { "help", "", "this list", do_help },
    { "reset", "", "forget the conversation, keep the system message", do_reset },
    { "system", "TEXT", "set the system message; without TEXT remove it", do_system },
    { "think", "on|off", "let the model think before it answers", do_think },
    { "regen", "", "answer the last message again", do_regen },
    { "set", "[NAME VALUE]", "sampling, as on the command line: /set temp 0.7", chat_set },
    { "save", "FILE", "write the conversation as JSON", do_save },
    { "load", "FILE", "go on with a conversation that was saved", do_load },
    { "stats", "", "positions used; figures of the last answer", do_stats },
    { "quit", "", "leave; also Ctrl-D, or Ctrl-C twice", do_quit },
};
#define N_WORDS (sizeof words / sizeof *words)

static enum reel_status do_help(struct chat *c, const char *rest, struct reel_error *err) {
    (void)c;
    (void)rest;
    (void)err;
    for (size_t i = 0; i < N_WORDS; i++) {
        char left[40];
        snprintf(left, sizeof left, "/%s %s", words[i].name, words[i].argument);
        fprintf(stderr, "  %-20s%s\n", left, words[i].help);
    }
    fputs("  //TEXT              a message that begins with a slash\n"
          "Alt-Enter, Ctrl-J or a \\ at the end begins another line of the message.\n"
          "Ctrl-R searches what was typed before. Ctrl-C ends the answer.\n",
          stderr);
    return REEL_OK;
}

enum reel_status chat_command(struct chat *c, const char *text, struct reel_error *err) {
    const char *names[N_WORDS + 1] = { NULL };
    char name[32];
    size_t n = strcspn(text, " \t\n");
    if (n >= sizeof name) n = sizeof name - 1;
    memcpy(name, text, n);
    name[n] = '\0';
    const char *rest = text + n + strspn(text + n, " \t\n");
    for (size_t i = 0; i < N_WORDS; i++) {
        if (strcmp(words[i].name, name) == 0) return words[i].run(c, rest, err);
        names[i] = words[i].name;
    }
    const char *nearest = cli_nearest(name, names);
    return err_set(err, REEL_E_ARGUMENT, "/%s is no command%s%s; /help lists them", name,
                   nearest ? "; did you mean /" : "", nearest ? nearest : "");
}
