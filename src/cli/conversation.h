/* The messages of a chat, owned. */
#ifndef REEL_CLI_CONVERSATION_H
#define REEL_CLI_CONVERSATION_H

#include "base/error.h"

struct conversation {
    struct reel_message *messages; /* texts are owned; roles are literals */
    int n_messages, capacity;
};

/* role must be a literal. */
enum reel_status conversation_add(struct conversation *c, const char *role, const char *text,
                                  struct reel_error *err);

/* An answer, its thinking kept apart. */
enum reel_status conversation_add_answer(struct conversation *c, const struct reel_answer *answer,
                                         struct reel_error *err);

/* Drops the last message. */
void conversation_drop(struct conversation *c);

/* Sets, replaces or (text NULL or empty) removes the system message. */
enum reel_status conversation_set_system(struct conversation *c, const char *text,
                                         struct reel_error *err);

/* Drops everything but the system message. */
void conversation_reset(struct conversation *c);

/* Writes the messages as a JSON list. */
enum reel_status conversation_save(const struct conversation *c, const char *path,
                                   struct reel_error *err);

void conversation_release(struct conversation *c);

#endif
