/* Checks a conversation, lets its family write it, and turns lengths into pieces. */
#include "model/chat_render.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Adds the bytes appended to out->text since `start` as a piece; a neighbour of the same kind grows
 * instead. The pointer is left for finish_pieces: the buffer still moves. */
static void add_piece(struct chat_job *job, size_t start, bool control) {
    struct chat_text *out = job->out;
    size_t n = out->text.size - start;
    if (job->status != REEL_OK || n == 0) return;
    if (out->n_pieces && out->pieces[out->n_pieces - 1].control == control) {
        out->pieces[out->n_pieces - 1].n_bytes += n;
        return;
    }
    if (out->n_pieces == out->cap_pieces) {
        int cap = out->cap_pieces ? out->cap_pieces * 2 : 32;
        size_t bytes = (size_t)cap * sizeof *out->pieces;
        struct text_piece *pieces = mem_resize(out->pieces, bytes);
        if (!pieces) {
            job->status = err_memory(job->err, "a conversation's pieces", bytes);
            return;
        }
        out->pieces = pieces;
        out->cap_pieces = cap;
    }
    out->pieces[out->n_pieces++] = (struct text_piece){ .n_bytes = n, .control = control };
}

static void put(struct chat_job *job, const char *text, size_t n_bytes, bool control) {
    size_t start = job->out->text.size;
    if (job->status != REEL_OK) return;
    job->status = buffer_append(&job->out->text, text, n_bytes, job->err);
    add_piece(job, start, control);
}

void chat_put_template(struct chat_job *job, const char *text) {
    put(job, text, strlen(text), true);
}

void chat_put_message(struct chat_job *job, const char *text, size_t n_bytes) {
    put(job, text, n_bytes, false);
}

void chat_put_json(struct chat_job *job, struct json_span value) {
    size_t start = job->out->text.size;
    if (job->status != REEL_OK) return;
    job->status = json_span_write(&job->out->text, value, job->err);
    add_piece(job, start, false);
}

void chat_put_json_string(struct chat_job *job, struct json_span value) {
    size_t start = job->out->text.size;
    if (job->status != REEL_OK) return;
    job->status = json_span_text(&job->out->text, value, job->err);
    add_piece(job, start, false);
}

void chat_put_literal(struct chat_job *job, const char *begins) {
    const struct chat_template *chat = job->chat;
    if (job->status != REEL_OK) return;
    const char *p = chat->recognised ? strstr(chat->source, begins) : NULL;
    if (!p) {
        job->status = err_set(job->err, REEL_E_UNSUPPORTED,
                              "the wording of this part is taken from the model's own %s template, "
                              "and this model has %s%s",
                              chat_family_name(chat->family),
                              chat->source ? "another one: " : "none", chat->hash);
        return;
    }
    char quote = *p++;
    while (job->status == REEL_OK && *p != quote) {
        char c = *p++;
        if (c == '\\') {
            c = *p == 'n' ? '\n' : *p;
            p++;
        }
        put(job, &c, 1, true);
    }
}

/* -1 when all of text is UTF-8, else the offset of the first byte that is not. */
static ptrdiff_t bad_utf8(const char *text) {
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text;
    while (*p) {
        utf8proc_int32_t code;
        utf8proc_ssize_t n = utf8proc_iterate(p, -1, &code);
        if (n <= 0) return (const char *)p - text;
        p += n;
    }
    return -1;
}

static enum reel_status check_text(const struct reel_message *m, int index, const char *part,
                                   const char *text, struct reel_error *err) {
    ptrdiff_t at = text ? bad_utf8(text) : -1;
    if (at < 0) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "message %d (%s): %s is not UTF-8 at byte %td", index + 1,
                   m->role, part, at);
}

static bool is_role(const char *role) {
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) return true;
    return false;
}

static enum reel_status check_message(const struct chat_template *chat,
                                      const struct reel_message *m, int index,
                                      struct reel_error *err) {
    if (!is_role(m->role))
        return err_set(err, REEL_E_ARGUMENT,
                       "message %d: role is \"%s\", allowed are system, user, assistant, tool",
                       index + 1, m->role ? m->role : "(none)");
    /* Qwen3's Jinja fails at a null there */
    bool opening_system = chat->family == CHAT_QWEN3 && index == 0 && m->role[0] == 's';
    if (!m->content && (opening_system || !chat->null_is_empty))
        return err_set(err, REEL_E_ARGUMENT,
                       "message %d (%s): content is missing; this model's template wants a text, "
                       "which may be empty",
                       index + 1, m->role);
    if ((m->reasoning || m->tool_calls) && strcmp(m->role, "assistant") != 0)
        return err_set(err, REEL_E_ARGUMENT, "message %d (%s): %s belong to an assistant's message",
                       index + 1, m->role, m->tool_calls ? "tool_calls" : "reasoning");
    enum reel_status status = check_text(m, index, "content", m->content, err);
    if (status != REEL_OK) return status;
    return check_text(m, index, "reasoning", m->reasoning, err);
}

static enum reel_status check_family(const struct chat_template *chat, struct reel_error *err) {
    if (chat->family != CHAT_UNKNOWN) return REEL_OK;
    if (!chat->source)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "the model has no chat template; option chat_template (" CHAT_FAMILIES
                       ") chooses one");
    return err_set(err, REEL_E_UNSUPPORTED,
                   "the model's chat template (SHA-256 %s) is not one reel knows; option "
                   "chat_template (" CHAT_FAMILIES ") renders as another family does",
                   chat->hash);
}

static void finish_pieces(struct chat_text *out) {
    const char *p = out->text.bytes;
    for (int i = 0; i < out->n_pieces; i++) {
        out->pieces[i].text = p;
        p += out->pieces[i].n_bytes;
    }
}

static void render(struct chat_job *job) {
    switch (job->chat->family) {
    case CHAT_QWEN3:
        chat_render_qwen3(job);
        return;
    case CHAT_QWEN35:
        chat_render_qwen35(job);
        return;
    case CHAT_SMOLLM2:
        chat_render_smollm2(job);
        return;
    case CHAT_CHATML:
        chat_render_chatml(job);
        return;
    case CHAT_UNKNOWN:
        return; /* refused before */
    }
}

enum reel_status chat_render(const struct chat_template *chat, const struct reel_message *messages,
                             int n_messages, const struct reel_chat_options *options,
                             struct chat_text *out, struct reel_error *err) {
    enum reel_status status = check_family(chat, err);
    if (status != REEL_OK) return status;
    if (n_messages < 1)
        return err_set(err, REEL_E_ARGUMENT, "a conversation needs at least one message, found %d",
                       n_messages);
    for (int i = 0; i < n_messages && status == REEL_OK; i++)
        status = check_message(chat, &messages[i], i, err);
    if (status != REEL_OK) return status;

    *out = (struct chat_text){ 0 };
    struct chat_job job = {
        .chat = chat, .messages = messages, .n_messages = n_messages, .out = out, .err = err
    };
    if (options) job.options = *options;
    render(&job);
    if (job.status != REEL_OK) {
        chat_text_release(out);
        return job.status;
    }
    finish_pieces(out);
    return REEL_OK;
}

void chat_text_release(struct chat_text *text) {
    if (!text) return;
    buffer_release(&text->text);
    mem_free(text->pieces);
    *text = (struct chat_text){ 0 };
}
