/* The streaming reader of answers: what is told when, and that made-up answers in the ways of all
 * published templates come out as the reader of whole texts has them. REEL_SOAK=1 makes more of
 * them up. */
#include "base/clock.h"
#include "model/answer_reader.h"
#include "support/answer_pieces.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER        "tests/fixtures/templates/"
#define OTHER_FOLDER  "tests/fixtures/chat/"
#define MAX_TEMPLATES 200

static struct published {
    char *name;
    struct chat_template chat;
} all[MAX_TEMPLATES];
static int n_all;

static void open_file(const char *folder, const char *file) {
    struct published *p = &all[n_all++];
    char path[400], *text = malloc((size_t)1 << 17);
    assert_true(n_all < MAX_TEMPLATES);
    snprintf(path, sizeof path, "%s%s", folder, file);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_non_null(text);
    const struct chat_sources sources = { .name = file,
                                          .text = text,
                                          .n_bytes = fread(text, 1, (size_t)1 << 17, f),
                                          .words = { "<s>", "</s>" } };
    fclose(f);
    p->name = strndup(file, strlen(file) - strlen(".jinja"));
    assert_int_equal(chat_template_init(&p->chat, &sources, NULL, NULL, NULL), REEL_OK);
    free(text);
}

static void open_folder(const char *path) {
    struct dirent **list;
    const int n = scandir(path, &list, NULL, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *dot = strstr(list[i]->d_name, ".jinja");
        if (dot && !dot[6]) open_file(path, list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

static int open_all(void **state) {
    (void)state;
    open_folder(OTHER_FOLDER);
    open_folder(FOLDER);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    while (n_all > 0) {
        free(all[--n_all].name);
        chat_template_release(&all[n_all].chat);
    }
    return 0;
}

static const struct chat_template *template_called(const char *name) {
    for (int i = 0; i < n_all; i++)
        if (strcmp(all[i].name, name) == 0) return &all[i].chat;
    fail_msg("there is no template %s", name);
    return NULL;
}

/* ---- what is told when ----------------------------------------------------------------------- */

/* What was told since the last look: "R:" reasoning, "C:" content, "N:" name, "A:" arguments, "E"
 * or "B" (broken) the end of a call. */
struct notes {
    char text[2000];
    int stop_after; /* pieces; 0: never */
};

static bool note(void *user, const struct reel_answer_piece *piece) {
    static const char *const kinds[] = { "R:", "C:", "N:", "A:", "E" };
    struct notes *n = user;
    const size_t at = strlen(n->text);
    assert_int_equal(piece->size, sizeof *piece);
    snprintf(n->text + at, sizeof n->text - at, "%s%s%.*s", at ? "|" : "",
             piece->broken ? "B" : kinds[piece->kind], (int)piece->text_bytes, piece->text);
    return n->stop_after == 0 || --n->stop_after > 0;
}

struct push {
    const char *text, *told; /* text NULL: finish */
};

static void check_pushes(const char *name, const struct reel_chat_options *options,
                         bool whole_calls, const struct push *pushes) {
    struct notes n = { 0 };
    struct reel_error err = { 0 };
    const struct reel_answer_reader_options reading = {
        .size = sizeof reading, .whole_calls = whole_calls, .on_piece = note, .user = &n
    };
    struct reel_answer_reader *reader = NULL;
    assert_int_equal(answer_reader_open(&reader, template_called(name), options, &reading, &err),
                     REEL_OK);
    for (bool over = false; !over; pushes++) {
        over = !pushes->text;
        n.text[0] = '\0';
        assert_int_equal(over
                             ? answer_reader_finish(reader, &err)
                             : answer_reader_push(reader, pushes->text, strlen(pushes->text), &err),
                         REEL_OK);
        if (strcmp(n.text, pushes->told) != 0)
            fail_msg("%s: at \"%s\" told \"%s\", not \"%s\"", name, over ? "(end)" : pushes->text,
                     n.text, pushes->told);
    }
    answer_reader_close(reader);
}

static const struct reel_chat_options plain = { .size = sizeof plain };
static const struct reel_chat_options with_tools = { .size = sizeof with_tools, .tools = "[]" };

static void text_is_told_as_soon_as_it_is_certain(void **state) {
    (void)state;
    check_pushes("qwen3-2", &plain, false,
                 (const struct push[]){ { "Hel", "C:Hel" },
                                        { "lo \n", "C:lo \n" }, /* no calls are looked for */
                                        { "<tool_call>", "C:<tool_call>" },
                                        { NULL, "" } });
    check_pushes("qwen3-2", &plain, false,
                 (const struct push[]){ { "\n<th", "" },
                                        { "ink>\n", "" },
                                        { "\nLet me", "R:Let me" },
                                        { " see.\n", "R: see." },
                                        { "\n", "" },
                                        { "So", "R:\n\nSo" },
                                        { " a < b", "R: a < b" },
                                        { " </thin", "R: " },
                                        { "g", "R:</thing" },
                                        { ".\n</think>", "R:." },
                                        { "\n\n", "" },
                                        { "Yes", "C:Yes" },
                                        { NULL, "" } });
    check_pushes("qwen3-2", &with_tools, false,
                 (const struct push[]){ { "a", "C:a" },
                                        { " \n", "" },
                                        { "b <", "C: \nb" },
                                        { "tool", "" },
                                        { "s>", "C: <tools>" },
                                        { " ", "" },
                                        { NULL, "C: " } });
}

static void arguments_are_told_as_they_come(void **state) {
    (void)state;
    check_pushes("qwen3-2", &with_tools, false,
                 (const struct push[]){
                     { "I look.\n", "C:I look." },
                     { "<tool_call>\n{\"name\": \"f\"", "" },
                     { ", \"arguments\": ", "" },
                     { "{\"a\": \"}", "N:f|A:{\"a\": \"}" },
                     { "{\"}", "A:{\"}" },
                     { "}", "" },
                     { "\n</tool_call>", "E" },
                     { "\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}", "N:g|A:{}" },
                     { "</tool_call>", "E" },
                     { "\n", "" },
                     { "Done", "C:\n|C:Done" },
                     { NULL, "" } });
    check_pushes("qwen3-2", &with_tools, true,
                 (const struct push[]){ { "<tool_call>{\"name\": \"f\", \"arguments\": {", "" },
                                        { "\"a\":1}}", "" },
                                        { "</tool_call>", "N:f|A:{\"a\": 1}|E" },
                                        { NULL, "" } });
    check_pushes("unsloth-mistral-devstral-small-2507", &with_tools, false,
                 (const struct push[]){ { "[TOOL_CALLS]f", "" },
                                        { "[ARGS]{\"a\"", "N:f|A:{\"a\"" },
                                        { ": [1]}", "A:: [1]}|E" },
                                        { NULL, "" } });
    check_pushes(
        "meta-llama-llama-3.2-3b-instruct", &with_tools, false,
        (const struct push[]){ { "{\"name\": \"f\", \"parameters\": {\"a\"", "N:f|A:{\"a\"" },
                               { ": 1}}", "A:: 1}" },
                               { NULL, "E" } }); /* text behind it would undo it */
    check_pushes("qwen3.5", &with_tools, false,
                 (const struct push[]){ { "<tool_call>\n<function=f>\n<parameter=s>\n1\n", "" },
                                        { "</parameter>\n</function>\n", "" },
                                        { "</tool_call>", "N:f|A:{\"s\": \"1\"}|E" },
                                        { NULL, "" } });
}

static void what_is_no_call_ends_as_broken_and_is_content(void **state) {
    (void)state;
    check_pushes(
        "qwen3-2", &with_tools, false,
        (const struct push[]){
            { "a <tool_call>{\"name\": \"f\", \"arguments\": {\"a\" 1", "C:a|N:f|A:{\"a\" 1" },
            { "}}", "A:}|B|C: <tool_call>{\"name\": \"f\", \"arguments\": {\"a\" 1}}" },
            { NULL, "" } });
    check_pushes(
        "qwen3-2", &with_tools, false,
        (const struct push[]){ { "<tool_call>{\"name\": \"f\", \"arguments\": {", "N:f|A:{" },
                               { NULL, "B|C:<tool_call>{\"name\": \"f\", \"arguments\": {" } });
    check_pushes(
        "qwen3-2", &with_tools, false, /* the arguments of another one */
        (const struct push[]){ { "<tool_call>{\"name\": \"f\", \"arguments\": {}, ", "N:f|A:{}" },
                               { "\"function\": {\"name\": \"g\", \"arguments\": {}}}", "" },
                               { "</tool_call>", "B|N:g|A:{}|E" },
                               { NULL, "" } });
    check_pushes("meta-llama-llama-3.2-3b-instruct", &with_tools, false,
                 (const struct push[]){ { "{\"name\": \"f\", \"parameters\": {}}", "N:f|A:{}" },
                                        { " x", "B|C:{\"name\": \"f\", \"parameters\": {}} x" },
                                        { NULL, "" } });
}

static void what_cannot_become_a_call_is_not_held(void **state) {
    (void)state;
    check_pushes("qwen3-2", &with_tools, false,
                 (const struct push[]){ { "<tool_call>\n", "" },
                                        { "is a tag", "C:<tool_call>\nis a tag" },
                                        { NULL, "" } });
    check_pushes("qwen3.5", &with_tools, false,
                 (const struct push[]){ { "<tool_call>\n<function=f", "" },
                                        { "\ng", "C:<tool_call>\n<function=f\ng" },
                                        { " <tool_call><function=f>", "" },
                                        { "\nno tag", "C: <tool_call><function=f>\nno tag" },
                                        { NULL, "" } });
    check_pushes("unsloth-mistral-devstral-small-2507", &with_tools, false,
                 (const struct push[]){ { "[TOOL_CALLS] and", "" },
                                        { " so on\n", "C:[TOOL_CALLS] and so on" },
                                        { NULL, "C:\n" } });
    check_pushes(
        "meta-llama-llama-3.2-3b-instruct", &with_tools, false,
        (const struct push[]){
            { "{\"a\": ", "" }, { "1}", "C:{\"a\": 1}" }, { " b ", "C: b " }, { NULL, "" } });
}

/* Where only what comes much later, or what came before, decides. */
static void far_away_text_counts_as_for_the_whole(void **state) {
    (void)state;
    static const char *const texts[] = {
        "<tool_call><function=f><parameter=n>5</parameter></function></tool_call> and\n"
        "<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
        "<tool_call><function=f><parameter=n>5</parameter></function></tool_call> "
        "and\n</parameter>",
    };
    const struct chat_template *tagged = template_called("qwen3.5");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *differ = answer_cuts_differ(tagged, &with_tools, texts[i], strlen(texts[i]));
        if (differ) fail_msg("%s\nin pieces: %s", texts[i], differ);
    }
    for (int broken = 14; broken < 19; broken++) { /* after many, calls are looked for no more */
        char text[800] = "";
        for (int i = 0; i < broken; i++)
            strcat(text, "<tool_call> ");
        strcat(text, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
        const char *differ =
            answer_cuts_differ(template_called("qwen3-2"), &with_tools, text, strlen(text));
        if (differ) fail_msg("%d broken calls: %s", broken, differ);
    }
}

static void a_reader_says_when_it_is_over(void **state) {
    (void)state;
    struct notes n = { .stop_after = 2 };
    struct reel_error err = { 0 };
    const struct reel_answer_reader_options reading = { .size = sizeof reading,
                                                        .on_piece = note,
                                                        .user = &n };
    struct reel_answer_reader *reader = NULL;
    const struct chat_template *chat = template_called("qwen3-2");
    assert_int_equal(answer_reader_open(&reader, chat, NULL, &reading, &err), REEL_OK);
    assert_int_equal(answer_reader_push(reader, "a", 1, &err), REEL_OK);
    assert_int_equal(answer_reader_push(reader, "b", 1, &err), REEL_E_CANCELLED);
    assert_int_equal(answer_reader_push(reader, "c", 1, &err), REEL_E_STATE);
    assert_int_equal(answer_reader_finish(reader, &err), REEL_E_STATE);
    answer_reader_close(reader);
    n = (struct notes){ 0 };
    assert_int_equal(answer_reader_open(&reader, chat, NULL, &reading, &err), REEL_OK);
    assert_int_equal(answer_reader_push(reader, "a\0b", 3, &err), REEL_OK);
    assert_int_equal(answer_reader_push(reader, "c", 1, &err), REEL_OK);
    assert_int_equal(answer_reader_finish(reader, &err), REEL_OK);
    assert_string_equal(n.text, "C:a"); /* a text ends at a NUL */
    assert_int_equal(answer_reader_push(reader, "d", 1, &err), REEL_E_STATE);
    answer_reader_close(reader);
    answer_reader_close(NULL);
}

/* ---- made-up answers ------------------------------------------------------------------------- */

static uint64_t seed = 1;

static size_t below(size_t n) { /* SplitMix64 */
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (size_t)((z ^ (z >> 31)) % n);
}

static void append(char *text, size_t room, const char *part, size_t n) {
    const size_t at = strlen(text);
    if (at + n >= room) return;
    memcpy(text + at, part, n);
    text[at + n] = '\0';
}

/* A call as it should be, in the template's own words, but for a few of them. */
static void append_call(char *text, size_t room, const struct chat_syntax *s, bool first) {
    const struct chat_call_words *w = &s->words;
    const char *const json[] = { "{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}",
                                 "{\"name\":\"f\",\"parameters\":{\"a\":\"}\\\"\"}}" };
    const char *parts[12];
    int n = 0;
    parts[n++] = first ? w->before : w->between;
    parts[n++] = w->open;
    if (s->calls == CHAT_CALLS_JSON) {
        parts[n++] = json[w->arguments_key && strcmp(w->arguments_key, "parameters") == 0];
    } else {
        parts[n++] = "f";
        parts[n++] = w->name_end;
        if (s->calls == CHAT_CALLS_NAMED) {
            parts[n++] = "{\"a\": \"}\"}";
        } else {
            parts[n++] = w->key_open;
            parts[n++] = "k";
            parts[n++] = w->key_close;
            parts[n++] = below(2) ? "12" : "a\nb";
            parts[n++] = w->value_close;
        }
    }
    parts[n++] = w->close;
    for (int i = 0; i < n; i++)
        if (parts[i] && below(40)) append(text, room, parts[i], strlen(parts[i]));
}

static void append_word(char *text, size_t room, const struct chat_syntax *s) {
    const struct chat_call_words *w = &s->words;
    const char *const words[] = {
        w->before,
        w->open,
        w->close,
        w->between,
        w->after,
        w->name_end,
        w->key_open,
        w->key_close,
        w->value_close,
        w->key_close_typed,
        "<think>",
        "</think>",
        s->think_open,
        s->think_close,
        "{",
        "}",
        "\"",
        "{}",
        "[]",
        ",",
        ":",
        "\\",
        "\n",
        "\n\n",
        " ",
        "\t",
        "f",
        "text",
        "<",
        "[",
        "\"name\"",
        "\"arguments\"",
        "\"function\"",
        "\xc3\xa9",
        "\xff",
        "12",
        "\"name\": \"f\", \"arguments\": {",
        "<|python_tag|>",
        "a\nb",
        "}}",
    };
    const char *word = words[below(sizeof words / sizeof *words)];
    if (!word) return;
    size_t n = strlen(word), from = 0;
    if (n > 1 && below(6) == 0) from = below(n);
    if (n > 1 && below(6) == 0) n = from + below(n - from + 1);
    append(text, room, word + from, n - from);
}

static void make_up(char *text, size_t room, const struct chat_syntax *s) {
    *text = '\0';
    if (below(3) == 0) append(text, room, "<think>\n", 8);
    for (size_t i = below(12); i > 0; i--)
        append_word(text, room, s);
    for (size_t calls = below(4), i = 0; i < calls; i++) {
        append_call(text, room, s, i == 0);
        if (below(3) == 0) append_word(text, room, s);
    }
    if (s->words.after && below(2)) append(text, room, s->words.after, strlen(s->words.after));
    for (size_t i = below(4); i > 0; i--)
        append_word(text, room, s);
}

static void made_up_answers_come_out_alike(void **state) {
    (void)state;
    static const char typed[] = "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"k\": "
                                "{\"type\": \"integer\"}}}}]";
    const int n = getenv("REEL_SOAK") ? 20000 : 200;
    int called = 0;
    for (int i = 0; i < n_all; i++) {
        for (int k = 0; k < n; k++) {
            char text[2000];
            unsigned char cuts[sizeof text / 8 + 1];
            const struct reel_chat_options options = {
                .size = sizeof options,
                .thinking = (enum reel_thinking)below(3),
                .tools = below(8) ? typed : NULL,
            };
            make_up(text, sizeof text, &all[i].chat.syntax);
            for (size_t j = 0; j < sizeof cuts; j++)
                cuts[j] = (unsigned char)(below(256) & below(256));
            called += all[i].chat.syntax.calls != CHAT_CALLS_NONE;
            const char *differ = answer_pieces_differ(&all[i].chat, &options, below(2), text,
                                                      strlen(text), below(3) ? cuts : NULL);
            if (differ) fail_msg("%s:\n%s\nin pieces: %s", all[i].name, text, differ);
        }
    }
    assert_true(called > n * 50);
}

/* ---- what it costs --------------------------------------------------------------------------- */

static bool ignore(void *user, const struct reel_answer_piece *piece) {
    *(size_t *)user += piece->text_bytes;
    return true;
}

/* Microseconds a push of `unit`, `times` of them behind `start`. */
static double push_us(const char *name, const char *start, const char *unit, int times) {
    size_t told = 0;
    const struct reel_answer_reader_options reading = { .size = sizeof reading,
                                                        .on_piece = ignore,
                                                        .user = &told };
    struct reel_answer_reader *reader = NULL;
    assert_int_equal(
        answer_reader_open(&reader, template_called(name), &with_tools, &reading, NULL), REEL_OK);
    const double begin = clock_ms();
    assert_int_equal(answer_reader_push(reader, start, strlen(start), NULL), REEL_OK);
    for (int i = 0; i < times; i++)
        assert_int_equal(answer_reader_push(reader, unit, strlen(unit), NULL), REEL_OK);
    assert_int_equal(answer_reader_finish(reader, NULL), REEL_OK);
    const double us = (clock_ms() - begin) * 1e3 / times;
    answer_reader_close(reader);
    return us;
}

/* A limit that a slow machine keeps and a reader that looks at the whole text again does not: that
 * one takes a hundred times as long. */
static void a_push_costs_what_is_new_in_it(void **state) {
    (void)state;
    static const struct {
        const char *name, *start, *unit;
    } texts[] = {
        { "qwen3-2", "", " word" },
        { "qwen3-2", "<think>", " word" },
        { "qwen3-2", "<think>", "\n" },
        { "qwen3-2", "a", "\n" },
        { "qwen3-2", "<tool_call>", "\n" },
        { "qwen3-2", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "word " },
        { "qwen3-2", "<tool_call>{\"name\": \"f\", ", "\"a\": {}, " },
        { "qwen3.5", "<tool_call>\n<function=", "f" },
        { "qwen3.5", "<tool_call>", "\n" },
        { "qwen3.5", "<tool_call>\n<function=f>\n<parameter=s>\n", "word " },
        { "qwen3.5", "<tool_call>\n<function=f>\n<parameter=s>\n", "</function></tool_call>" },
        { "unsloth-mistral-devstral-small-2507", "[TOOL_CALLS]", "f" },
        { "meta-llama-llama-3.2-3b-instruct", "{\"name\": \"f\", \"parameters\": {", "word " },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const double us = push_us(texts[i].name, texts[i].start, texts[i].unit, 100000);
        print_message("%.3f us a push of \"%s\" behind \"%s\"\n", us, texts[i].unit,
                      texts[i].start);
        if (us > 10) fail_msg("a push takes %.1f us", us);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_told_as_soon_as_it_is_certain),
        cmocka_unit_test(arguments_are_told_as_they_come),
        cmocka_unit_test(what_is_no_call_ends_as_broken_and_is_content),
        cmocka_unit_test(what_cannot_become_a_call_is_not_held),
        cmocka_unit_test(far_away_text_counts_as_for_the_whole),
        cmocka_unit_test(a_reader_says_when_it_is_over),
        cmocka_unit_test(made_up_answers_come_out_alike),
        cmocka_unit_test(a_push_costs_what_is_new_in_it),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
