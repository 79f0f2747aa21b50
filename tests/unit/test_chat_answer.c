/* What models write, taken apart: thinking, calls of tools, and what is no call. */
#include "base/json.h"
#include "model/chat_answer.h"
#include "support/answer_pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FIXTURES     "tests/fixtures/chat/"
#define MAX_MESSAGES 64

static char *read_all(FILE *f, size_t *n) {
    size_t size = 0, cap = 1 << 16, got;
    char *bytes = malloc(cap + 1);
    assert_non_null(bytes);
    while ((got = fread(bytes + size, 1, cap - size, f)) > 0) {
        size += got;
        if (size < cap) continue;
        cap *= 2;
        bytes = realloc(bytes, cap + 1);
        assert_non_null(bytes);
    }
    bytes[size] = '\0';
    *n = size;
    return bytes;
}

static struct chat_template open_template(const char *name) {
    struct chat_template chat;
    char path[100];
    size_t n;
    snprintf(path, sizeof path, FIXTURES "%s.jinja", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = read_all(f, &n);
    fclose(f);
    const struct chat_sources sources = { .text = text, .n_bytes = n };
    assert_int_equal(chat_template_init(&chat, &sources, NULL, NULL, NULL), REEL_OK);
    free(text);
    return chat;
}

static struct chat_answer take_apart(const struct chat_template *chat,
                                     const struct reel_chat_options *options, const char *text) {
    struct chat_answer answer;
    struct reel_error err = { 0 };
    if (chat_answer_read(&answer, chat, options, text, strlen(text), &err) != REEL_OK)
        fail_msg("%s: %s", text, err.text);
    return answer;
}

static void expect(const char *what, const char *found, const char *wanted) {
    if (found && wanted ? strcmp(found, wanted) == 0 : found == wanted) return;
    fail_msg("%s is \"%s\", not \"%s\"", what, found ? found : "(none)",
             wanted ? wanted : "(none)");
}

struct example {
    const char *template;
    enum reel_thinking thinking;
    const char *tools;
    const char *text, *reasoning, *content, *calls;
};

static void check(const struct example *e) {
    struct chat_template chat = open_template(e->template);
    struct reel_chat_options options = { .size = sizeof options,
                                         .thinking = e->thinking,
                                         .tools = e->tools };
    struct chat_answer answer = take_apart(&chat, &options, e->text);
    expect("reasoning", answer.reasoning, e->reasoning);
    expect("content", answer.content, e->content);
    expect("tool_calls", answer.tool_calls, e->calls);
    const char *differ = answer_cuts_differ(&chat, &options, e->text, strlen(e->text));
    if (differ) fail_msg("%s\nin pieces: %s", e->text, differ);
    chat_answer_release(&answer);
    chat_template_release(&chat);
}

static const struct example thinking[] = {
    { "qwen3", 0, 0, "<think>\nwhy\n</think>\n\nBecause.", "why", "Because.", NULL },
    { "qwen3", 0, 0, "\n<think>cut off", "cut off", "", NULL },
    { "qwen3", 0, 0, "<think>\n\n</think>\n\nYes", "", "Yes", NULL },
    { "qwen3", 0, 0, "plain </think> text", NULL, "plain </think> text", NULL },
    { "qwen3", 0, 0, "\n\nplain", NULL, "\n\nplain", NULL },
    { "qwen3", 0, 0, "", NULL, "", NULL },
    { "smollm2", 0, 0, "<think>a</think>b", "a", "b", NULL },
    { "qwen3.5", 0, 0, "Yes", NULL, "Yes", NULL },
    { "qwen3.5", 0, 0, "a</think>\n\nb", NULL, "a</think>\n\nb", NULL },
    { "qwen3.5", REEL_THINKING_ON, 0, "a\n</think>\n\nb", "a", "b", NULL },
    { "qwen3.5", REEL_THINKING_ON, 0, "\na</think>b</think>c", "a", "b</think>c", NULL },
    { "qwen3.5", REEL_THINKING_ON, 0, "cut off", "cut off", "", NULL },
    { "qwen3.5", REEL_THINKING_ON, 0, "", "", "", NULL },
    { "qwen3.5", REEL_THINKING_ON, 0, "<think>\nagain\n</think>\n\nb", "again", "b", NULL },
    { "qwen3.5-4b", 0, 0, "a\n</think>\n\nb", "a", "b", NULL },
    { "qwen3.5-4b", REEL_THINKING_OFF, 0, "Yes", NULL, "Yes", NULL },
};

static void thinking_is_kept_apart_from_the_answer(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof thinking / sizeof *thinking; i++)
        check(&thinking[i]);
}

static const char typed_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"n\":{\"type\":\"integer\"},\"x\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},"
    "\"s\":{\"type\":\"string\"},\"l\":{\"type\":\"array\"},\"o\":{\"type\":[\"object\",\"null\"]},"
    "\"m\":{\"type\":[\"integer\",\"string\"]},\"u\":{}}}}},{\"name\":\"g\",\"parameters\":"
    "{\"properties\":{\"n\":{\"type\":\"integer\"}}}},{\"name\":\"h\"}]";

#define P(k, v)    "<parameter=" k ">\n" v "\n</parameter>\n"
#define CALL(n, p) "<tool_call>\n<function=" n ">\n" p "</function>\n</tool_call>"
#define T35        "qwen3.5", REEL_THINKING_OFF, typed_tools

static const struct example tagged[] = {
    { T35, CALL("f", ""), NULL, "", "[{\"name\": \"f\", \"arguments\": {}}]" },
    { T35, "Let me see.\n\n" CALL("f", P("s", "a\n\nb")), NULL, "Let me see.",
      "[{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n\\nb\"}}]" },
    { T35, CALL("f", P("n", "12") P("x", "1e-7") P("b", "True") P("l", "[1,\"a\"]")), NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"n\": 12, \"x\": 1e-07, \"b\": true, "
      "\"l\": [1, \"a\"]}}]" },
    { T35, CALL("f", P("o", "None") P("s", "None") P("m", "12") P("u", "12") P("z", "12")), NULL,
      "",
      "[{\"name\": \"f\", \"arguments\": {\"o\": null, \"s\": \"None\", \"m\": \"12\", "
      "\"u\": \"12\", \"z\": \"12\"}}]" },
    { T35, CALL("f", P("n", "007") P("b", "perhaps") P("l", "[1,")), NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"n\": \"007\", \"b\": \"perhaps\", \"l\": \"[1,\"}}]" },
    { T35, CALL("g", P("n", " 3 ")) "\n" CALL("h", P("n", "3")), NULL, "",
      "[{\"name\": \"g\", \"arguments\": {\"n\": 3}}, "
      "{\"name\": \"h\", \"arguments\": {\"n\": \"3\"}}]" },
    { T35, CALL("unknown", P("n", "3")), NULL, "",
      "[{\"name\": \"unknown\", \"arguments\": {\"n\": \"3\"}}]" },
    /* what stands in a value is the value's */
    { T35, CALL("f", P("s", "</tool_call></function><parameter=n>\n<tool_call>")), NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"s\": "
      "\"</tool_call></function><parameter=n>\\n<tool_call>\"}}]" },
    { T35, CALL("f", P("s", "a</parameter>b \"q\" \\ \t\x01 \xc3\xa9")), NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"s\": \"a</parameter>b \\\"q\\\" \\\\ \\t\\u0001 "
      "\xc3\xa9\"}}]" },
    { T35, CALL("f", P("s", "")), NULL, "", "[{\"name\": \"f\", \"arguments\": {\"s\": \"\"}}]" },
    { T35, CALL("f", P("s", "\nx\n")), NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"s\": \"\\nx\\n\"}}]" },
    /* loosely written */
    { T35, "<tool_call><function=f><parameter=n>5</parameter></function></tool_call>", NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"n\": 5}}]" },
    { T35, "a\n" CALL("h", "") " \nb " CALL("h", "") "\n\n", NULL, "a\nb",
      "[{\"name\": \"h\", \"arguments\": {}}, {\"name\": \"h\", \"arguments\": {}}]" },
    /* no calls */
    { "qwen3.5", 0, NULL, CALL("f", ""), NULL, CALL("f", ""), NULL },
    { "smollm2", 0, "[]", CALL("f", ""), NULL, CALL("f", ""), NULL },
    { T35, "<tool_call>\n<function=f>\n<parameter=s>\ncut o", NULL,
      "<tool_call>\n<function=f>\n<parameter=s>\ncut o", NULL },
    { T35, CALL("f", P("s", "1") P("s", "2")), NULL, CALL("f", P("s", "1") P("s", "2")), NULL },
    { T35, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", NULL,
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", NULL },
    { T35, CALL("f", P("s", "\xff")), NULL, CALL("f", P("s", "\xff")), NULL },
    { T35, "<tool_call> and then\n" CALL("h", ""), NULL, "<tool_call> and then",
      "[{\"name\": \"h\", \"arguments\": {}}]" },
    { T35, "<tool_call>\n<function=f\n>\n</function>\n</tool_call>", NULL,
      "<tool_call>\n<function=f\n>\n</function>\n</tool_call>", NULL },
    { "qwen3.5", REEL_THINKING_ON, "[]", "I look.\n</think>\n\n" CALL("f", ""), "I look.", "",
      "[{\"name\": \"f\", \"arguments\": {}}]" },
};

static void tagged_calls_become_json_typed_by_the_tools(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof tagged / sizeof *tagged; i++)
        check(&tagged[i]);
}

#define T3 "qwen3", REEL_THINKING_DEFAULT, "[]"

static const struct example json_calls[] = {
    { T3, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":[1,2]}}\n</tool_call>", NULL, "",
      "[{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}]" },
    { T3, "<think>\nso\n</think>\n\nA\n<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>",
      "so", "A", "[{\"name\": \"f\", \"arguments\": {}}]" },
    { T3, "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"}</tool_call>\\\"{\"}}</tool_call>",
      NULL, "", "[{\"name\": \"f\", \"arguments\": {\"s\": \"}</tool_call>\\\"{\"}}]" },
    { T3, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", NULL,
      "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", NULL },
    { T3, "<tool_call>\n{\"name\": \"f\", \"argu", NULL, "<tool_call>\n{\"name\": \"f\", \"argu",
      NULL },
    { T3, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}", NULL,
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}", NULL },
    { T3, "<tool_call>[]</tool_call>", NULL, "<tool_call>[]</tool_call>", NULL },
    { T3, "<tool_call>", NULL, "<tool_call>", NULL },
};

static void json_calls_are_taken_out_of_the_answer(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof json_calls / sizeof *json_calls; i++)
        check(&json_calls[i]);
}

/* What the template writes for the second of two messages, without the marks of its turn. */
static char *turn_of(const struct chat_template *chat, const struct reel_message *assistant) {
    const struct reel_message messages[] = { { .role = "user", .content = "x" }, *assistant };
    const struct reel_chat_options options = { .size = sizeof options,
                                               .no_generation_prompt = true };
    static const char open[] = "<|im_start|>assistant\n", close[] = "<|im_end|>\n";
    struct chat_text text = { 0 };
    struct reel_error err = { 0 };
    if (chat_render(chat, messages, 2, &options, &text, &err) != REEL_OK) return NULL;
    const char *at = strstr(text.text.bytes, open);
    assert_non_null(at);
    at += strlen(open);
    size_t n = text.text.size - (size_t)(at - text.text.bytes);
    char *turn = NULL;
    if (memchr(at, '\0', n) == NULL) turn = strndup(at, n - strlen(close));
    chat_text_release(&text);
    return turn;
}

/* A message that renders is read back as one that renders the same. */
static bool check_round_trip(const struct chat_template *chat, const json_t *m) {
    static const struct reel_chat_options options = { .size = sizeof options, .tools = "[]" };
    struct reel_message message = { .role = "assistant",
                                    .content = json_string_value(json_object_get(m, "content")),
                                    .tool_calls =
                                        json_string_value(json_object_get(m, "tool_calls")),
                                    .reasoning =
                                        json_string_value(json_object_get(m, "reasoning")) };
    if (!message.tool_calls || (message.content && strstr(message.content, "think>")) ||
        (message.reasoning && strstr(message.reasoning, "think>")))
        return false; /* tags of thinking inside thinking cannot be told apart */
    char *turn = turn_of(chat, &message);
    if (!turn) return false;
    struct chat_answer answer = take_apart(chat, &options, turn);
    struct reel_message again = { .role = "assistant",
                                  .content = answer.content,
                                  .reasoning = answer.reasoning,
                                  .tool_calls = answer.tool_calls };
    char *turn_again = turn_of(chat, &again);
    assert_non_null(turn_again);
    assert_string_equal(turn_again, turn);
    bool called = answer.tool_calls != NULL;
    const char *differ = answer_pieces_differ(chat, &options, false, turn, strlen(turn), NULL);
    if (differ) fail_msg("%s\nin pieces: %s", turn, differ);
    free(turn);
    free(turn_again);
    chat_answer_release(&answer);
    return called;
}

static void rendered_calls_read_back_to_the_same_rendering(void **state) {
    (void)state;
    struct chat_template chat = open_template("qwen3.5");
    FILE *pipe = popen("xz -dc " FIXTURES "goldens.jsonl.xz", "r");
    assert_non_null(pipe);
    size_t size;
    char *all = read_all(pipe, &size), *save = NULL;
    pclose(pipe);
    int n = 0;
    for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *golden = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(golden, "template"));
        json_t *m;
        size_t i;
        if (strncmp(name, "qwen3.5", 7) == 0)
            json_array_foreach(json_object_get(golden, "messages"), i, m) n +=
                check_round_trip(&chat, m);
        json_decref(golden);
    }
    print_message("%d messages with calls\n", n);
    assert_true(n > 300);
    free(all);
    chat_template_release(&chat);
}

static void a_long_run_of_broken_calls_takes_no_quadratic_time(void **state) {
    (void)state;
    static const char unit[] = "<tool_call>\n<function=f>\n<parameter=s>\n";
    struct chat_template chat = open_template("qwen3.5");
    const struct reel_chat_options options = { .size = sizeof options, .tools = "[]" };
    size_t n = strlen(unit) * 50000;
    char *text = malloc(n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i += strlen(unit))
        memcpy(text + i, unit, strlen(unit));
    text[n] = '\0';
    struct chat_answer answer = take_apart(&chat, &options, text);
    assert_string_equal(answer.content, text);
    assert_null(answer.tool_calls);
    const char *differ = answer_pieces_differ(&chat, &options, false, text, n, NULL);
    if (differ) fail_msg("in pieces: %s", differ);
    chat_answer_release(&answer);
    chat_template_release(&chat);
    free(text);
}

static void tools_that_are_no_json_are_refused(void **state) {
    (void)state;
    struct chat_template chat = open_template("qwen3.5");
    const struct reel_chat_options options = { .size = sizeof options, .tools = "[" };
    struct chat_answer answer;
    struct reel_error err = { 0 };
    assert_int_equal(chat_answer_read(&answer, &chat, &options, "a", 1, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "tools"));
    assert_null(answer.content);
    chat_template_release(&chat);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_is_kept_apart_from_the_answer),
        cmocka_unit_test(tagged_calls_become_json_typed_by_the_tools),
        cmocka_unit_test(json_calls_are_taken_out_of_the_answer),
        cmocka_unit_test(rendered_calls_read_back_to_the_same_rendering),
        cmocka_unit_test(a_long_run_of_broken_calls_takes_no_quadratic_time),
        cmocka_unit_test(tools_that_are_no_json_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
