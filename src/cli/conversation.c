#include "cli/conversation.h"

#include "base/file_map.h"
#include "base/json.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONVERSATION_MAX_BYTES ((size_t)64 << 20)

void conversation_release_message(const struct reel_message *m) {
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
    if (c->n_messages) conversation_release_message(&c->messages[--c->n_messages]);
}

bool conversation_take_answer(struct conversation *c, struct reel_message *answer) {
    if (c->n_messages == 0 || strcmp(c->messages[c->n_messages - 1].role, "assistant") != 0)
        return false;
    *answer = c->messages[--c->n_messages];
    return true;
}

void conversation_put_back(struct conversation *c, const struct reel_message *answer) {
    c->messages[c->n_messages++] = *answer; /* where it was taken from */
}

static bool has_system(const struct conversation *c) {
    return c->n_messages && strcmp(c->messages[0].role, "system") == 0;
}

enum reel_status conversation_set_system(struct conversation *c, const char *text,
                                         struct reel_error *err) {
    size_t rest = (size_t)c->n_messages - has_system(c);
    if (has_system(c)) {
        conversation_release_message(&c->messages[0]);
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

/* ---- reading --------------------------------------------------------------------------------- */

/* The role as a literal, or NULL. */
static const char *known_role(const char *role) {
    static const char *const roles[] = { "system", "user", "assistant" };
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) return roles[i];
    return NULL;
}

static enum reel_status check_keys(const json_t *item, const char *name, struct reel_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)item, key, value) {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 &&
            strcmp(key, "reasoning_content") != 0)
            return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is nothing that reel chat saves", name,
                           key);
    }
    return REEL_OK;
}

static enum reel_status read_message(struct conversation *c, const json_t *item, const char *name,
                                     struct reel_error *err) {
    const char *role = NULL, *content = NULL, *reasoning = NULL;
    char *copy = NULL;
    if (!json_is_object(item)) return err_set(err, REEL_E_FORMAT, "%s: not an object", name);
    enum reel_status status = check_keys(item, name, err);
    if (status == REEL_OK) status = json_get_text(item, name, "role", &role, err);
    if (status == REEL_OK) status = json_get_text(item, name, "content", &content, err);
    if (status == REEL_OK) status = json_get_text(item, name, "reasoning_content", &reasoning, err);
    if (status != REEL_OK) return status;
    const char *known = known_role(role);
    if (!known)
        return err_set(err, REEL_E_FORMAT, "%s: the role is \"%s\", not system, user or assistant",
                       name, role ? role : "");
    if (!content) return err_set(err, REEL_E_FORMAT, "%s: \"content\" is missing", name);
    if (strcmp(known, "system") == 0 && c->n_messages)
        return err_set(err, REEL_E_FORMAT, "%s: a system message comes first or not at all", name);
    if (reasoning) status = mem_text(&copy, reasoning, strlen(reasoning), "a message", err);
    if (status == REEL_OK) status = conversation_add(c, known, content, err);
    if (status == REEL_OK)
        c->messages[c->n_messages - 1].reasoning = copy;
    else
        mem_free(copy);
    return status;
}

static enum reel_status read_messages(struct conversation *c, const json_t *list, const char *path,
                                      struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (!json_is_array(list))
        return err_set(err, REEL_E_FORMAT, "%s: not a list of messages, as /save writes it", path);
    const size_t n = json_array_size(list);
    for (size_t i = 0; status == REEL_OK && i < n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%.250s: message %zu", path, i + 1);
        status = read_message(c, json_array_get(list, i), name, err);
    }
    return status;
}

enum reel_status conversation_load(struct conversation *c, const char *path,
                                   struct reel_error *err) {
    struct conversation loaded = { 0 };
    struct file_map file = { 0 };
    json_t *list = NULL;
    enum reel_status status = file_map_open_most(&file, path, CONVERSATION_MAX_BYTES, err);
    if (status == REEL_OK) status = json_read(&list, path, file.bytes, file.size, err);
    if (status == REEL_OK) status = read_messages(&loaded, list, path, err);
    json_decref(list);
    file_map_close(&file);
    if (status != REEL_OK) {
        conversation_release(&loaded);
        return status;
    }
    conversation_release(c);
    *c = loaded;
    return REEL_OK;
}

void conversation_release(struct conversation *c) {
    while (c->n_messages)
        conversation_drop(c);
    mem_free(c->messages);
    *c = (struct conversation){ 0 };
}
