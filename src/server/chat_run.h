/* One chat request of any dialect, from its prompt to the last piece of its answers. */
#ifndef REEL_SERVER_CHAT_RUN_H
#define REEL_SERVER_CHAT_RUN_H

#include "server/chat_prompt.h"
#include "server/text_request.h"

enum chat_piece {
    CHAT_REASONING,
    CHAT_CONTENT,
    CHAT_CALL_BEGIN,     /* text: the name of the function */
    CHAT_CALL_ARGUMENTS, /* text: more of the arguments' JSON */
    CHAT_CALL_END
};

/* What a dialect does with an answer. Called on the request's thread. */
struct chat_writer {
    /* Pieces that one token made certain, in order; `call` counts calls from 0. */
    void (*piece)(void *user, enum chat_piece kind, int call, const char *text, size_t n_bytes);
    /* After the pieces of each token; with `last` known only where max_tokens or the one call that
     * there may be ends the answer. False ends it. */
    bool (*token)(void *user, const struct reel_token *token, bool last);
    /* An answer begins, and ends; finish is "stop", "length" or "tool_calls". */
    void (*begin)(void *user, int choice);
    void (*end)(void *user, int choice, const struct text_outcome *outcome, const char *finish);
    /* A token comes, before its pieces; may be NULL. */
    void (*comes)(void *user, const struct reel_token *token);
};

/* Takes a session, evaluates the prompt and generates every answer. Before the first token a
 * failure is answered here; afterwards it is an event of the stream. Whether all went well. */
bool chat_run(struct text_request *r, const struct chat_prompt *prompt,
              const struct chat_writer *writer, void *user);

#endif
