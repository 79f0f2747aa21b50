#include "cli/conversation.h"

#include "base/file_map.h"
#include "base/json.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static void release_message(struct reel_message *m) {
    mem_free((char *)m->content);
    mem_free((char *)m->reasoning);
}

static enum reel_status grow(struct conversation *c, struct reel_error *err) {
    if (c->n_messages < c->capacity) return REEL_OK;
    int capacity = c->capacity ? 2 * c->capacity : 16;
    size_t bytes = (size_t)capacity * sizeof *c->messages;
    struct reel_message *messages = mem_resize(c->messages, bytes);
    if (!messages) return err_memory(err, "the conversation", bytes);
    c->messages = messages;
    c->capacity = capacity;
    return REEL_OK;
}

static enum reel_status add(struct conversation *c, const char *role, const char *text, size_t n,
                            struct reel_error *err) {
    char *copy = NULL;
    enum reel_status status = grow(c, err);
    if (status == REEL_OK) status = mem_text(&copy, text, n, "a message", err);
    if (status == REEL_OK)
        c->messages[c->n_messages++] =
            (struct reel_message){ .size = sizeof *c->messages, .role = role, .content = copy };
    return status;
}

enum reel_status conversation_add(struct conversation *c, const char *role, const char *text,
                                  struct reel_error *err) {
    return add(c, role, text, strlen(text), err);
}

enum reel_status conversation_add_answer(struct conversation *c, const struct reel_answer *answer,
                                         struct reel_error *err) {
    char *reasoning = NULL;
    enum reel_status status = REEL_OK;
    if (answer->reasoning)
        status =
            mem_text(&reasoning, answer->reasoning, strlen(answer->reasoning), "a message", err);
    if (status == REEL_OK) status = conversation_add(c, "assistant", answer->content, err);
    if (status != REEL_OK) {
        mem_free(reasoning);
        return status;
    }
    c->messages[c->n_messages - 1].reasoning = reasoning;
    return REEL_OK;
}

void conversation_drop(struct conversation *c) {
    if (c->n_messages) release_message(&c->messages[--c->n_messages]);
}

static bool has_system(const struct conversation *c) {
    return c->n_messages && strcmp(c->messages[0].role, "system") == 0;
}

enum reel_status conversation_set_system(struct conversation *c, const char *text,
                                         struct reel_error *err) {
    size_t rest = (size_t)c->n_messages - has_system(c);
    if (has_system(c)) {
        release_message(&c->messages[0]);
        memmove(c->messages, c->messages + 1, rest * sizeof *c->messages);
        c->n_messages--;
    }
    if (!text || !text[0]) return REEL_OK;
    enum reel_status status = conversation_add(c, "system", text, err);
    if (status != REEL_OK) return status;
    struct reel_message last = c->messages[rest];
    memmove(c->messages + 1, c->messages, rest * sizeof *c->messages);
    c->messages[0] = last;
    return REEL_OK;
}

void conversation_reset(struct conversation *c) {
    while (c->n_messages > has_system(c))
        conversation_drop(c);
}

static json_t *message_json(const struct reel_message *m) {
    return json_pack("{s:s, s:s, s:s*}", "role", m->role, "content", m->content,
                     "reasoning_content", m->reasoning);
}

enum reel_status conversation_save(const struct conversation *c, const char *path,
                                   struct reel_error *err) {
    json_t *list = json_array();
    for (int i = 0; list && i < c->n_messages; i++)
        if (json_array_append_new(list, message_json(&c->messages[i])) != 0) break;
    bool whole = list && json_array_size(list) == (size_t)c->n_messages;
    char *text = whole ? json_dumps(list, JSON_INDENT(2)) : NULL;
    json_decref(list);
    if (!text)
        return err_set(err, REEL_E_MEMORY, "%s: the conversation cannot be put as JSON", path);
    enum reel_status status = file_write_atomic(path, text, strlen(text), err);
    free(text);
    return status;
}

void conversation_release(struct conversation *c) {
    while (c->n_messages)
        conversation_drop(c);
    mem_free(c->messages);
    *c = (struct conversation){ 0 };
}
