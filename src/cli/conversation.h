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

/* Moves the last message out where it is an answer; false where it is none. It goes back by
 * conversation_put_back, or away by conversation_release_message. */
bool conversation_take_answer(struct conversation *c, struct reel_message *answer);
void conversation_put_back(struct conversation *c, const struct reel_message *answer);
void conversation_release_message(const struct reel_message *message);

/* Sets, replaces or (text NULL or empty) removes the system message. */
enum reel_status conversation_set_system(struct conversation *c, const char *text,
                                         struct reel_error *err);

/* Drops everything but the system message. */
void conversation_reset(struct conversation *c);

/* Writes the messages as a JSON list. */
enum reel_status conversation_save(const struct conversation *c, const char *path,
                                   struct reel_error *err);

/* Reads what conversation_save wrote, in the place of all messages; on failure they stay. */
enum reel_status conversation_load(struct conversation *c, const char *path,
                                   struct reel_error *err);

void conversation_release(struct conversation *c);

#endif
