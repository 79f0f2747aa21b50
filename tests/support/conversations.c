/* What C leaves open must not matter: arguments of a call draw from the same chance in an order of
 * the compiler's choice, so no call has two of them that draw. */
#include "support/conversations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- chance: SplitMix64 (Steele, Lea, Flood 2014) -------------------------------------------- */

struct chance {
    uint64_t state;
};

static uint64_t next(struct chance *c) {
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(struct chance *c, size_t n) { return (size_t)(next(c) % n); }

static bool percent(struct chance *c, unsigned n) { return below(c, 100) < n; }

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *const words[] = {
    "the",
    "weather",
    "in",
    "Paris",
    "tomorrow?",
    "please",
    "find",
    "3",
    "cheap flights",
    "and tell me why",
    "it's",
    "<b>so</b>",
    "&",
    "\"quoted\"",
    "'single'",
    "back\\slash",
    "tab\there",
    "na\xc3\xafve",
    "Z\xc3\xbcrich",
    "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
    "\xe4\xbd\xa0\xe5\xa5\xbd",
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7",
    "\xf0\x9f\x99\x82",
    "e\xcc\x81",
    "\xc2\xa0",
    "\xe2\x80\xa8",
    "\x7f",
    "{{ messages }}",
    "{% raw %}",
    "{# no #}",
    "{\"a\": 1}",
    "None",
    "True",
    "-0.0",
    "```c\nint x;\n```",
    "$x^2$",
    "/no_think",
    "stra\303\237e",
};

/* What could be taken for a template's own words. */
static const char *const marks[] = {
    "<|im_start|>",
    "<|im_end|>",
    "<|im_start|>system\n",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<think>\nhm\n</think>\n\n",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "[INST]",
    "[/INST]",
    "<s>",
    "</s>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<<SYS>>",
    "[TOOL_CALLS]",
    "<start_of_turn>",
    "<|channel|>",
};

static const char *const edges[] = { "", "", "", "", "\n", " ", "\n\n", "\t", "\r\n", "  \n" };

static const char *pick(struct chance *c, const char *const *list, size_t n) {
    return list[below(c, n)];
}
#define PICK(c, list) pick(c, list, COUNT(list))

struct text {
    char bytes[600];
    size_t n;
};

static void add(struct text *t, const char *word) {
    size_t n = strlen(word);
    assert_true(t->n + n < sizeof t->bytes);
    memcpy(t->bytes + t->n, word, n + 1);
    t->n += n;
}

static void add_words(struct chance *c, struct text *t, unsigned marks_percent) {
    size_t n = 1 + below(c, 6);
    for (size_t i = 0; i < n; i++) {
        if (i) add(t, percent(c, 10) ? "\n" : " ");
        add(t, percent(c, marks_percent) ? PICK(c, marks) : PICK(c, words));
    }
}

static json_t *text(struct chance *c) {
    struct text t = { .n = 0 };
    if (percent(c, 4)) return json_string("");
    add(&t, PICK(c, edges));
    add_words(c, &t, 4);
    add(&t, PICK(c, edges));
    return json_string(t.bytes);
}

/* ---- JSON values of arguments and of tools --------------------------------------------------- */

static const char *const names[] = { "get_weather", "search", "send_mail", "f",
                                     "\xe5\x8f\x91\xe9\x80\x81" };
static const char *const keys[] = { "city", "unit", "n",    "gr\303\266\303\237e",
                                    "a b",  "on",   "list", "x/y" };
static const char *const types[] = { "string", "integer", "number", "boolean", "array", "object" };

static json_t *value(struct chance *c, int depth);

static json_t *object(struct chance *c, int depth) {
    json_t *out = json_object();
    for (size_t i = below(c, 4); i > 0; i--) {
        const char *key = PICK(c, keys);
        json_object_set_new(out, key, value(c, depth));
    }
    return out;
}

static json_t *value(struct chance *c, int depth) {
    static const double reals[] = { 0.5, -1.25, 1e-7, 1e22, 3.0, 0.1, 123456.789 };
    static const json_int_t integers[] = { 0, 1, -7, 42, 123456789012, 9007199254740993 };
    json_t *out;
    switch (below(c, depth < 2 ? 8 : 6)) {
    case 0:
    case 1:
        return text(c);
    case 2:
        return json_integer(integers[below(c, COUNT(integers))]);
    case 3:
        return json_real(reals[below(c, COUNT(reals))]);
    case 4:
        return json_boolean(percent(c, 50));
    case 5:
        return percent(c, 50) ? json_null() : json_string(PICK(c, words));
    case 6:
        out = json_array();
        for (size_t i = below(c, 4); i > 0; i--)
            json_array_append_new(out, value(c, depth + 1));
        return out;
    }
    return object(c, depth + 1);
}

static json_t *tool(struct chance *c) {
    json_t *properties = json_object(), *required = json_array(), *property;
    for (size_t i = below(c, 4); i > 0; i--) {
        const char *key = PICK(c, keys);
        const char *type = PICK(c, types);
        property = json_pack("{s:s, s:o}", "type", type, "description", text(c));
        if (percent(c, 20))
            json_object_set_new(property, "enum", json_pack("[s,s]", "a", PICK(c, words)));
        if (percent(c, 15)) json_object_set_new(property, "default", value(c, 1));
        if (strcmp(type, "array") == 0)
            json_object_set_new(property, "items", json_pack("{s:s}", "type", "string"));
        json_object_set_new(properties, key, property);
        if (percent(c, 60)) json_array_append_new(required, json_string(key));
    }
    const char *name = PICK(c, names);
    json_t *function = json_pack("{s:s, s:o, s:{s:s, s:o}}", "name", name, "description", text(c),
                                 "parameters", "type", "object", "properties", properties);
    json_t *parameters = json_object_get(function, "parameters");
    if (json_array_size(required) > 0 || percent(c, 50))
        json_object_set_new(parameters, "required", required);
    else
        json_decref(required);
    if (percent(c, 10))
        json_object_set_new(function, "return", json_pack("{s:s}", "type", "string"));
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* An id of nine letters and digits, which Mistral's templates want. */
static json_t *call_id(struct chance *c) {
    static const char letters[] = "abcXYZ0123456789";
    char id[10] = { 0 };
    for (int i = 0; i < 9; i++)
        id[i] = letters[below(c, sizeof letters - 1)];
    return json_string(id);
}

static json_t *call(struct chance *c) {
    const char *name = PICK(c, names);
    json_t *id = call_id(c);
    return json_pack("{s:s, s:o, s:{s:s, s:o}}", "type", "function", "id", id, "function", "name",
                     name, "arguments", object(c, 0));
}

static json_t *message(const char *role, json_t *content) {
    return json_pack("{s:s, s:o}", "role", role, "content", content);
}

static json_t *assistant(struct chance *c) {
    struct text t = { .n = 0 };
    if (!percent(c, 20)) {
        json_t *m = message("assistant", text(c));
        if (percent(c, 30)) json_object_set_new(m, "reasoning_content", text(c));
        return m;
    }
    add(&t, "<think>\n"); /* thinking that its user left in the content */
    add_words(c, &t, 3);
    add(&t, "\n</think>\n\n");
    add_words(c, &t, 3);
    return message("assistant", json_string(t.bytes));
}

/* An assistant's message with calls, and the answers to them. */
static void add_calls(struct chance *c, json_t *messages) {
    json_t *m = message("assistant", percent(c, 60) ? json_string("") : text(c));
    json_t *calls = json_array(), *one;
    size_t i;
    for (size_t n = percent(c, 30) ? 2 : 1; n > 0; n--)
        json_array_append_new(calls, call(c));
    if (percent(c, 25)) json_object_set_new(m, "reasoning_content", text(c));
    if (percent(c, 8)) json_object_set_new(m, "content", json_null());
    json_object_set_new(m, "tool_calls", calls);
    json_array_append_new(messages, m);
    json_array_foreach(calls, i, one) {
        json_t *name = json_object_get(json_object_get(one, "function"), "name");
        json_array_append_new(messages,
                              json_pack("{s:s, s:o, s:O, s:O}", "role", "tool", "content", text(c),
                                        "name", name, "tool_call_id", json_object_get(one, "id")));
    }
}

static void add_turns(struct chance *c, json_t *messages, bool tools) {
    for (size_t n = 1 + below(c, 3); n > 0; n--) {
        json_array_append_new(messages, message("user", text(c)));
        for (size_t k = tools ? below(c, 3) : 0; k > 0; k--)
            add_calls(c, messages);
        if (n > 1 || percent(c, 30)) json_array_append_new(messages, assistant(c));
    }
}

/* The text of a message as a list of parts. */
static void make_parts(json_t *m) {
    const char *content = json_string_value(json_object_get(m, "content"));
    if (content)
        json_object_set_new(m, "content",
                            json_pack("[{s:s, s:s}, {s:s, s:s}]", "type", "text", "text", content,
                                      "type", "text", "text", "more"));
}

/* One thing that people do wrong, or seldom. */
static void make_odd(struct chance *c, json_t *messages) {
    static const char *const roles[] = { "developer", "tool",  "system",  "user",
                                         "assistant", "robot", "ipython", "" };
    size_t n = json_array_size(messages);
    json_t *m = json_array_get(messages, below(c, n));
    const char *role = PICK(c, roles);
    switch (below(c, 8)) {
    case 0:
        json_object_set_new(m, "role", json_string(role));
        return;
    case 1:
        json_object_del(m, "content");
        return;
    case 2:
        json_object_set_new(m, "content", json_null());
        return;
    case 3:
        make_parts(m);
        return;
    case 4:
        m = message(role, text(c));
        json_array_insert_new(messages, below(c, n + 1), m);
        return;
    case 5:
        json_array_remove(messages, below(c, n));
        if (n == 1) json_array_append_new(messages, assistant(c));
        return;
    case 6:
        json_object_set_new(m, "tool_calls", json_pack("[o]", call(c)));
        return;
    default:
        json_object_set_new(m, "reasoning_content", percent(c, 50) ? text(c) : json_null());
    }
}

json_t *conversation_make(unsigned number) {
    struct chance c = { .state = number * 0x2545f4914f6cdd1du + 17 };
    json_t *out = json_object(), *messages = json_array();
    bool tools = percent(&c, 45);
    if (percent(&c, 50)) json_array_append_new(messages, message("system", text(&c)));
    add_turns(&c, messages, tools);
    if (percent(&c, 22)) make_odd(&c, messages);
    json_object_set_new(out, "messages", messages);
    if (tools && !percent(&c, 15)) {
        json_t *list = json_array();
        for (size_t n = 1 + below(&c, 3); n > 0; n--)
            json_array_append_new(list, tool(&c));
        json_object_set_new(out, "tools", list);
    }
    json_object_set_new(out, "add_generation_prompt", json_boolean(percent(&c, 70)));
    if (percent(&c, 50)) json_object_set_new(out, "enable_thinking", json_boolean(percent(&c, 50)));
    json_object_set_new(out, "bos_token", json_string("<|bos|>"));
    json_object_set_new(out, "eos_token", json_string("<|eos|>"));
    return out;
}
