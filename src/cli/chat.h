/* What the parts of reel chat share: the conversation with all that answers it. */
#ifndef REEL_CLI_CHAT_H
#define REEL_CLI_CHAT_H

#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/line_reader.h"
#include "cli/options.h"
#include "cli/page.h"
#include "cli/think_view.h"

struct chat {
    const struct cli_args *args;
    struct reel_model *model, *draft; /* draft: guesses for it, or NULL */
    struct reel_session *session;
    struct progress progress;
    struct line_reader reader;
    struct conversation conversation;
    struct page page; /* of the view, at a terminal */
    struct think_view view;
    struct reel_sampling sampling;
    enum reel_speculation speculation;
    int most_drafts;
    enum reel_thinking thinking;
    int max_tokens;     /* of an answer; 0: until the context is full */
    struct answer last; /* figures only */
    int n_answers;
    bool quit;
};

/* Asks and answers. A question that got no answer at all is taken back. */
enum reel_status chat_ask(struct chat *c, const char *text, struct reel_error *err);

/* Answers the last question again. An answer that fails leaves the one there was. */
enum reel_status chat_ask_again(struct chat *c, struct reel_error *err);

/* Carries out a command; text is what follows the slash. */
enum reel_status chat_command(struct chat *c, const char *text, struct reel_error *err);

/* /set: text is NAME VALUE as --NAME VALUE on the command line; NAME alone or nothing shows what is
 * set. */
enum reel_status chat_set(struct chat *c, const char *text, struct reel_error *err);

#endif
