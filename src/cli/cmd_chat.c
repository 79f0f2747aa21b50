/* reel chat: a conversation, line by line. */
#include "base/memory.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/folders.h"
#include "cli/open_model.h"
#include "cli/terminal.h"

#include <limits.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "system",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .help = "begin with this system "
              "message" },
    { .name = "think",
      .kind = CLI_CHOICE,
      .argument = "WHEN",
      .choices = "on off",
      .help =
          "on or off: whether the model thinks before it answers, where its template can say so" },
    { .name = "tokens",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT_MAX,
      .help = "stop each answer after N tokens; 0, the default, is when the context is full" },
    { .name = "no-history", .kind = CLI_FLAG, .help = "keep no file of the lines typed" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

/* ---- the conversation ------------------------------------------------------------------------ */

/* A failed turn ends a conversation that nobody can answer to; a person is told and goes on. */
static enum reel_status settle(const struct chat *c, enum reel_status status,
                               struct reel_error *err) {
    if (status == REEL_OK || !c->reader.interactive) return status;
    fprintf(stderr, "%s\n", err->text);
    *err = (struct reel_error){ 0 };
    return REEL_OK;
}

static enum reel_status take_line(struct chat *c, struct reel_error *err) {
    const char *text = c->reader.text.bytes;
    enum reel_status status = REEL_OK;
    if (text[0] == '/' && text[1] != '/')
        status = chat_command(c, text + 1, err);
    else if (text[strspn(text, " \t\n")])
        status = chat_ask(c, text + (text[0] == '/'), err);
    return settle(c, status, err);
}

static enum reel_status converse(struct chat *c, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    bool warned = false;
    while (status == REEL_OK && !c->quit) {
        switch (line_reader_next(&c->reader, err)) {
        case LINE_READ:
            warned = false;
            status = take_line(c, err);
            if (ferror(stdout)) c->quit = true; /* reported at the end */
            break;
        case LINE_INTERRUPTED:
            if (!c->reader.interactive) return REEL_E_CANCELLED;
            if (!c->reader.empty) { /* the line was given up */
                warned = false;
                break;
            }
            if (warned) return REEL_OK;
            fputs("Ctrl-C again leaves\n", stderr);
            warned = true;
            break;
        case LINE_CLOSED:
            c->quit = true;
            break;
        case LINE_FAILED:
            status = err->status;
            break;
        }
    }
    if (c->reader.interactive && !c->reader.edited && !ferror(stdout)) putchar('\n');
    return status;
}

static enum reel_status check_template(const struct chat *c, struct reel_error *err) {
    const struct reel_model_info info = cli_model_info(c->model);
    if (info.chat_template && !info.chat_thinks && cli_has(c->args, "think"))
        return err_set(err, REEL_E_ARGUMENT, "--think: the %s chat template knows no thinking",
                       info.chat_template);
    if (info.chat_template) return REEL_OK;
    return cli_refuse_template(&info, "; reel run continues a text without one", err);
}

static void greet(const struct chat *c) {
    struct reel_model_info info = { .size = sizeof info };
    if (!c->reader.interactive) return;
    info = cli_model_info(c->model);
    fprintf(stderr, "%s (%s, %s on %s), %d positions; /help lists commands\n", info.name,
            info.weight_type, info.backend_path, info.backend,
            reel_session_max_context(c->session));
}

static enum reel_status open_reader(struct chat *c, struct reel_error *err) {
    struct buffer path = { 0 };
    char *folder = NULL;
    bool keep = !cli_has(c->args, "no-history") && folder_of_state(&folder, NULL) == REEL_OK &&
                folder_make(folder, NULL) == REEL_OK &&
                buffer_printf(&path, NULL, "%s/history", folder) == REEL_OK;
    enum reel_status status = line_reader_open(&c->reader, keep ? path.bytes : NULL, err);
    buffer_release(&path);
    mem_free(folder);
    return status;
}

static enum reel_status open_chat(struct chat *c, struct reel_error *err) {
    const char *system = cli_text(c->args, "system", NULL), *think = cli_text(c->args, "think", "");
    if (think[0]) c->thinking = strcmp(think, "on") == 0 ? REEL_THINKING_ON : REEL_THINKING_OFF;
    /* first of all, so that no key is echoed while the model is opened */
    enum reel_status status = open_reader(c, err);
    if (status == REEL_OK) status = cli_model_open(&c->model, c->args, c->args->arguments[0], err);
    if (status == REEL_OK) status = cli_draft_open(&c->draft, c->model, c->args, err);
    if (status == REEL_OK) status = check_template(c, err);
    if (status == REEL_OK) status = cli_sampling(&c->sampling, c->model, c->args, err);
    c->speculation = cli_speculation(c->args, REEL_SPECULATION_AUTO);
    c->most_drafts = (int)cli_integer(c->args, "draft-max", 0);
    if (status == REEL_OK)
        status = cli_session_open(&c->session, c->model, c->draft, c->args, &c->progress, err);
    if (status == REEL_OK && system)
        status = conversation_set_system(&c->conversation, system, err);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct chat c = { .args = args,
                      .max_tokens = (int)cli_integer(args, "tokens", 0),
                      .view = { .out = stdout, .styled = terminal_has_styles(stdout) } };
    page_start(&c.page, stdout);
    if (terminal_is(stdout)) c.view.page = &c.page;
    interrupt_install();
    enum reel_status status = open_chat(&c, err);
    if (status == REEL_OK) {
        greet(&c);
        status = converse(&c, err);
    }
    line_reader_close(&c.reader);
    conversation_release(&c.conversation);
    reel_session_close(c.session);
    reel_model_close(c.model);
    reel_model_close(c.draft);
    return status;
}

const struct cli_command cmd_chat = {
    .name = "chat",
    .arguments = "MODEL",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "talk with a chat model",
    .description =
        "A conversation: each line typed is a message, and /help lists commands. Alt-Enter, "
        "Ctrl-J or a backslash at the end of a line begins another line of the same message, and "
        "text that is pasted is one message however many lines it has. What is typed during an "
        "answer waits for its end. Lines are edited with the keys of emacs, the arrows go "
        "through earlier ones and Ctrl-R searches them. Ctrl-C ends the answer, gives up a line, "
        "and twice at an empty one ends the program. A full context ends the answer with that "
        "reason; nothing is dropped in silence.\n\n"
        "With standard input from a pipe each line is a message and only answers are printed.",
    .groups = { &group, &cli_sampling_group, &cli_speculation_group, &cli_context_group,
                &cli_model_group },
    .run = run,
};
