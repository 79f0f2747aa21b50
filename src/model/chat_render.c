/* Messages become the dictionaries that users of transformers pass, the template is evaluated, and
 * what it wrote becomes pieces. */
#include "base/memory.h"
#include "jinja/jinja.h"
#include "model/chat_json.h"
#include "model/chat_span.h"
#include "model/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct chat_job {
    const struct chat_template *chat;
    const struct reel_message *messages;
    int n_messages;
    struct reel_chat_options options;
    struct jinja_values *values;
    struct reel_error *err;
};

/* ---- checks ---------------------------------------------------------------------------------- */

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

/* What a template tells apart; its words may become part of control tokens ("<|user|>"), so no
 * other is let in. */
static const struct role {
    const char *name;
    enum chat_role like;
} roles[] = { { "system", CHAT_SYSTEM },
              { "user", CHAT_USER },
              { "assistant", CHAT_ASSISTANT },
              { "tool", CHAT_TOOL },
              { "developer", CHAT_SYSTEM } };

static const struct role *find_role(const char *name) {
    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(name, roles[i].name) == 0) return &roles[i];
    return NULL;
}

static enum reel_status check_texts(const struct reel_message *m, int index,
                                    struct reel_error *err) {
    const struct {
        const char *part, *text;
    } texts[] = { { "content", m->content },
                  { "reasoning", m->reasoning },
                  { "name", m->name },
                  { "tool_call_id", m->tool_call_id } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ptrdiff_t at = texts[i].text ? bad_utf8(texts[i].text) : -1;
        if (at >= 0)
            return err_set(err, REEL_E_ARGUMENT, "message %d (%s): %s is not UTF-8 at byte %td",
                           index + 1, m->role, texts[i].part, at);
    }
    return REEL_OK;
}

static enum reel_status check_message(const struct chat_job *job, int index) {
    const struct reel_message *m = &job->messages[index];
    const struct role *role = find_role(m->role);
    if (!role)
        return err_set(job->err, REEL_E_ARGUMENT,
                       "message %d: role is \"%s\", allowed are system, user, assistant, tool, "
                       "developer",
                       index + 1, m->role ? m->role : "(none)");
    if ((m->reasoning || m->tool_calls) && role->like != CHAT_ASSISTANT)
        return err_set(job->err, REEL_E_ARGUMENT,
                       "message %d (%s): %s belong to an assistant's message", index + 1, m->role,
                       m->tool_calls ? "tool_calls" : "reasoning");
    return check_texts(m, index, job->err);
}

/* What the template would leave out, or write as the word None, without telling. */
static enum reel_status check_silence(const struct chat_job *job) {
    const struct chat_syntax *syntax = &job->chat->syntax;
    bool reads_tools = job->chat->with_tools || jinja_template_reads(job->chat->parsed, "tools");
    if (job->options.tools && !reads_tools)
        return err_set(job->err, REEL_E_UNSUPPORTED, "the chat template has no tools");
    for (int i = 0; i < job->n_messages; i++) {
        const struct reel_message *m = &job->messages[i];
        if (m->tool_calls && !syntax->writes_calls)
            return err_set(job->err, REEL_E_UNSUPPORTED,
                           "message %d (%s): the chat template has no tools: it leaves out "
                           "tool_calls",
                           i + 1, m->role);
        if (!m->content && syntax->prints_none[find_role(m->role)->like])
            return err_set(job->err, REEL_E_ARGUMENT,
                           "message %d (%s): content is missing; this model's template wants a "
                           "text, which may be empty",
                           i + 1, m->role);
    }
    return REEL_OK;
}

/* ---- tools and calls ------------------------------------------------------------------------- */

static struct jinja_value *json_value(struct chat_job *job, const char *what,
                                      struct json_span value) {
    return jinja_json_text(job->values, what, value.at, value.n_bytes);
}

static enum reel_status refuse_calls(struct chat_job *job, int index, const char *what) {
    return err_set(job->err, REEL_E_ARGUMENT, "message %d (%s): tool_calls: %s", index + 1,
                   job->messages[index].role, what);
}

/* The object in a JSON string, in `text`; false when the string holds none, or on failure. */
static bool object_in_text(struct chat_job *job, struct json_span string, struct buffer *text,
                           struct json_span *object, enum reel_status *status) {
    *status = json_span_text(text, string, job->err);
    if (*status == REEL_OK) *status = buffer_append(text, "", 0, job->err);
    if (*status != REEL_OK || strlen(text->bytes) != text->size) return false; /* a NUL in it */
    enum reel_status read = json_span_open(object, "arguments", text->bytes, NULL);
    if (read == REEL_E_MEMORY) *status = err_memory(job->err, "arguments", text->size);
    return read == REEL_OK && json_span_kind(*object) == '{';
}

/* Arguments given as text, as the OpenAI interface has them, are the object in it; a text that is
 * no object stays one, for templates that take what a model wrote. */
static enum reel_status arguments_value(struct chat_job *job, struct json_span arguments,
                                        struct jinja_value **out) {
    struct buffer text = { 0 };
    struct json_span inner;
    enum reel_status status = REEL_OK;
    if (json_span_kind(arguments) == '"' && object_in_text(job, arguments, &text, &inner, &status))
        arguments = inner;
    if (status == REEL_OK) *out = json_value(job, "arguments", arguments);
    buffer_release(&text);
    return status;
}

/* {"name", "arguments"}, alone or as "function" of an object, which may have an "id". */
static enum reel_status call_value(struct chat_job *job, int index, struct json_span call,
                                   struct jinja_value **out) {
    static const struct json_span none = { "{}", 2 };
    struct json_span inner, id, name, arguments;
    struct jinja_value *value = jinja_map(job->values), *function = jinja_map(job->values);
    struct jinja_value *its_arguments = NULL;
    static const char wanted[] = "each must be an object with \"name\" (a string) and "
                                 "\"arguments\", or have such a \"function\"";
    if (json_span_kind(call) != '{') return refuse_calls(job, index, wanted);
    if (!json_span_member(call, "function", &inner)) inner = call;
    if (json_span_kind(inner) != '{') return refuse_calls(job, index, wanted);
    if (!json_span_member(inner, "name", &name) || json_span_kind(name) != '"')
        return refuse_calls(job, index, wanted);
    if (!json_span_member(inner, "arguments", &arguments)) arguments = none;
    enum reel_status status = arguments_value(job, arguments, &its_arguments);
    if (status != REEL_OK) return status;
    jinja_map_set(job->values, function, "name", json_value(job, "a name", name));
    jinja_map_set(job->values, function, "arguments", its_arguments);
    jinja_map_set(job->values, value, "type", jinja_text(job->values, "function", 8, JINJA_OWN));
    if (json_span_member(call, "id", &id))
        jinja_map_set(job->values, value, "id", json_value(job, "an id", id));
    jinja_map_set(job->values, value, "function", function);
    *out = value;
    return REEL_OK;
}

static enum reel_status calls_value(struct chat_job *job, int index, struct jinja_value **out) {
    char what[60];
    struct json_span calls, call;
    size_t cursor = 0, n = 0;
    snprintf(what, sizeof what, "message %d (assistant): tool_calls", index + 1);
    enum reel_status status =
        json_span_open(&calls, what, job->messages[index].tool_calls, job->err);
    if (status != REEL_OK) return status;
    if (json_span_kind(calls) != '[') return refuse_calls(job, index, "must be a list");
    *out = jinja_list(job->values);
    while (status == REEL_OK && json_span_next(calls, &cursor, &call)) {
        struct jinja_value *value = NULL;
        status = call_value(job, index, call, &value);
        if (status == REEL_OK) jinja_list_append(job->values, *out, value);
        if (status == REEL_OK && n++ > 0 && job->chat->syntax.drops_calls)
            status = err_set(job->err, REEL_E_UNSUPPORTED,
                             "message %d (assistant): the chat template writes one of several "
                             "tool_calls only",
                             index + 1);
    }
    return status;
}

static enum reel_status tools_value(struct chat_job *job, bool *some) {
    struct json_span tools, tool;
    size_t cursor = 0;
    *some = false;
    if (!job->options.tools) {
        jinja_variable(job->values, "tools", jinja_none(job->values));
        return REEL_OK;
    }
    enum reel_status status = json_span_open(&tools, "tools", job->options.tools, job->err);
    if (status != REEL_OK) return status;
    bool good = json_span_kind(tools) == '[';
    while (good && json_span_next(tools, &cursor, &tool)) {
        good = json_span_kind(tool) == '{';
        *some = true;
    }
    if (!good) return err_set(job->err, REEL_E_ARGUMENT, "tools must be a JSON list of objects");
    jinja_variable(job->values, "tools", json_value(job, "tools", tools));
    return REEL_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct jinja_value *foreign(struct chat_job *job, const char *text) {
    return text ? jinja_text(job->values, text, strlen(text), JINJA_FOREIGN)
                : jinja_none(job->values);
}

static enum reel_status message_value(struct chat_job *job, int index, struct jinja_value **out) {
    const struct reel_message *m = &job->messages[index];
    struct jinja_values *v = job->values;
    struct jinja_value *map = jinja_map(v), *calls = NULL;
    jinja_map_set(v, map, "role", jinja_text(v, m->role, strlen(m->role), JINJA_OWN));
    jinja_map_set(v, map, "content", foreign(job, m->content));
    if (m->reasoning) { /* under the names by which transformers hands it over */
        jinja_map_set(v, map, "reasoning_content", foreign(job, m->reasoning));
        jinja_map_set(v, map, "thinking", foreign(job, m->reasoning));
    }
    if (m->name) jinja_map_set(v, map, "name", foreign(job, m->name));
    if (m->tool_call_id) jinja_map_set(v, map, "tool_call_id", foreign(job, m->tool_call_id));
    enum reel_status status = m->tool_calls ? calls_value(job, index, &calls) : REEL_OK;
    if (status == REEL_OK && calls) jinja_map_set(v, map, "tool_calls", calls);
    *out = map;
    return status;
}

static enum reel_status set_messages(struct chat_job *job) {
    struct jinja_value *list = jinja_list(job->values);
    enum reel_status status = REEL_OK;
    for (int i = 0; i < job->n_messages && status == REEL_OK; i++) {
        struct jinja_value *message = NULL;
        status = message_value(job, i, &message);
        if (status == REEL_OK) jinja_list_append(job->values, list, message);
    }
    jinja_variable(job->values, "messages", list);
    return status;
}

static void set_variables(struct chat_job *job) {
    struct jinja_values *v = job->values;
    const struct chat_template *chat = job->chat;
    jinja_variable(v, "documents", jinja_none(v));
    jinja_variable(
        v, "add_generation_prompt",
        jinja_bool(v, !job->options.no_generation_prompt && !job->options.continue_final_message));
    for (int i = 0; i < CHAT_WORDS; i++)
        if (chat->words[i])
            jinja_variable(v, chat_word_names[i],
                           jinja_text(v, chat->words[i], strlen(chat->words[i]), JINJA_OWN));
    if (job->options.thinking == REEL_THINKING_DEFAULT) return;
    /* most name it enable_thinking, DeepSeek's and Granite's thinking */
    const char *name = !jinja_template_reads(chat->parsed, "enable_thinking") &&
                               jinja_template_reads(chat->parsed, "thinking")
                           ? "thinking"
                           : "enable_thinking";
    jinja_variable(v, name, jinja_bool(v, job->options.thinking == REEL_THINKING_ON));
}

/* ---- going on in the last message ------------------------------------------------------------ */

static enum reel_status refuse_to_go_on(const struct chat_job *job, const char *why) {
    return err_set(job->err, REEL_E_ARGUMENT, "message %d (%s) cannot be gone on with: %s",
                   job->n_messages, job->messages[job->n_messages - 1].role, why);
}

static enum reel_status check_final(const struct chat_job *job) {
    const struct reel_message *m = &job->messages[job->n_messages - 1];
    if (!job->options.continue_final_message) return REEL_OK;
    if (find_role(m->role)->like != CHAT_ASSISTANT)
        return refuse_to_go_on(job, "it must be an assistant's");
    if (m->tool_calls) return refuse_to_go_on(job, "it has tool_calls");
    if (!m->content || span_without_blanks(span_of(m->content)).n == 0)
        return refuse_to_go_on(job, "its content is empty");
    return REEL_OK;
}

static bool ends_with(const struct text_piece *piece, struct span end) {
    return piece->n_bytes >= end.n &&
           memcmp(piece->text + piece->n_bytes - end.n, end.at, end.n) == 0;
}

/* The last piece that is not the template's own is the content, or ends with it: what the template
 * writes behind it goes. */
static enum reel_status cut_behind_final(const struct chat_job *job, struct chat_text *out) {
    struct span content = span_of(job->messages[job->n_messages - 1].content);
    span_skip_blanks(&content);
    int last = out->n_pieces - 1;
    while (last >= 0 && out->pieces[last].control)
        last--;
    if (last < 0 || (!ends_with(&out->pieces[last], content) &&
                     !ends_with(&out->pieces[last], span_without_blanks(content))))
        return refuse_to_go_on(job, "the chat template does not write its content as it is");
    const struct text_piece *end = &out->pieces[last];
    out->n_pieces = last + 1;
    out->text.size = (size_t)(end->text + end->n_bytes - out->text.bytes);
    out->text.bytes[out->text.size] = '\0';
    return REEL_OK;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static enum reel_status take_pieces(struct chat_text *out, const struct jinja_output *text,
                                    struct reel_error *err) {
    enum reel_status status = buffer_append(&out->text, text->text, text->n_bytes, err);
    if (status == REEL_OK)
        status = mem_zeroed(&out->pieces, (size_t)text->n_runs, sizeof *out->pieces,
                            "a conversation's pieces", err);
    if (status != REEL_OK) return status;
    const char *at = out->text.bytes;
    for (int i = 0; i < text->n_runs; i++) {
        out->pieces[i] = (struct text_piece){ at, text->runs[i].n_bytes, text->runs[i].own };
        at += text->runs[i].n_bytes;
    }
    out->n_pieces = text->n_runs;
    return REEL_OK;
}

/* A failure of the template on these messages is the caller's: it says what they lack. */
static enum reel_status blame(const struct chat_job *job, enum reel_status status) {
    if (!job->err || (status != REEL_E_FORMAT && status != REEL_E_ARGUMENT)) return status;
    const struct reel_error why = *job->err;
    for (int i = 0; i < job->n_messages; i++)
        if (!job->messages[i].content)
            return err_set(job->err, REEL_E_ARGUMENT,
                           "message %d (%s): content is missing, and the template fails: %s", i + 1,
                           job->messages[i].role, why.text);
    return err_set(job->err, REEL_E_ARGUMENT, "%s", why.text);
}

static enum reel_status evaluate(struct chat_job *job, struct chat_text *out) {
    struct jinja_output text = { 0 };
    bool some_tools;
    enum reel_status status = tools_value(job, &some_tools);
    if (status == REEL_OK) status = set_messages(job);
    if (status != REEL_OK) return status;
    set_variables(job);
    const struct jinja_template *template =
        some_tools && job->chat->with_tools ? job->chat->with_tools : job->chat->parsed;
    status = jinja_render(&text, template, job->values, NULL, job->err);
    if (status == REEL_E_FORMAT || status == REEL_E_ARGUMENT) {
        (void)blame(job, status);
        status = REEL_E_ARGUMENT;
    }
    if (status == REEL_OK) status = take_pieces(out, &text, job->err);
    jinja_output_release(&text);
    return status;
}

static enum reel_status run(struct chat_job *job, const struct jinja_limits *limits,
                            struct chat_text *out) {
    *out = (struct chat_text){ 0 };
    enum reel_status status = jinja_values_open(&job->values, limits, job->err);
    if (status != REEL_OK) return status;
    status = evaluate(job, out);
    jinja_values_close(job->values);
    if (status != REEL_OK) chat_text_release(out);
    return status;
}

enum reel_status chat_render(const struct chat_template *chat, const struct reel_message *messages,
                             int n_messages, const struct reel_chat_options *options,
                             struct chat_text *out, struct reel_error *err) {
    struct chat_job job = { chat, messages, n_messages, { 0 }, NULL, err };
    if (options) job.options = *options;
    if (!chat->parsed && chat->source)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "the model's chat template cannot be evaluated: %s; option chat_template "
                       "gives it another (" CHAT_BUILTINS ")",
                       chat->problem.text);
    if (!chat->parsed)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "the model has no chat template; option chat_template (" CHAT_BUILTINS
                       ") gives it one");
    if (n_messages < 1)
        return err_set(err, REEL_E_ARGUMENT, "a conversation needs at least one message, found %d",
                       n_messages);
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n_messages && status == REEL_OK; i++)
        status = check_message(&job, i);
    if (status == REEL_OK) status = check_silence(&job);
    if (status == REEL_OK) status = check_final(&job);
    if (status == REEL_OK) status = run(&job, NULL, out);
    if (status == REEL_OK && job.options.continue_final_message) {
        status = cut_behind_final(&job, out);
        if (status != REEL_OK) chat_text_release(out);
    }
    return status;
}

enum reel_status chat_render_probe(const struct chat_template *chat,
                                   const struct reel_message *messages, int n_messages,
                                   const struct reel_chat_options *options, struct chat_text *out,
                                   struct reel_error *err) {
    struct chat_job job = { chat, messages, n_messages, *options, NULL, err };
    struct jinja_limits limits = jinja_default_limits();
    if (limits.steps > 200000) limits.steps = 200000; /* some hundred times what templates take */
    if (limits.memory_bytes > (size_t)16 << 20) limits.memory_bytes = (size_t)16 << 20;
    return run(&job, &limits, out);
}

void chat_text_release(struct chat_text *text) {
    if (!text) return;
    buffer_release(&text->text);
    mem_free(text->pieces);
    *text = (struct chat_text){ 0 };
}
