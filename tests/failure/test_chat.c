/* Chat templates when memory or the template's file fails. */
#include "model/answer_reader.h"
#include "model/chat_answer.h"
#include "support/faults.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct reel_message messages[] = {
    { .role = "system", .content = "Be brief." },
    { .role = "user", .content = "What is the weather in Z\xc3\xbcrich?" },
    { .role = "assistant",
      .content = "",
      .reasoning = "I should look.",
      .tool_calls = "[{\"name\":\"weather\",\"arguments\":{\"city\":\"Z\\u00fcrich\",\"x\":[1e-7,"
                    "18446744073709551616]}}]" },
    { .role = "tool", .content = "{\"sun\": true}" },
    { .role = "assistant", .content = "<think>\nfine\n</think>\n\nSun." },
};

/* A template's text, read before anything is made to fail. */
struct fixture {
    const char *path;
    char text[8192];
    size_t n_bytes;
};
static struct fixture fixtures[] = { { .path = "tests/fixtures/chat/qwen3.jinja" },
                                     { .path = "tests/fixtures/chat/qwen3.5.jinja" } };
#define N_FIXTURES (sizeof fixtures / sizeof *fixtures)

static int install(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        FILE *f = fopen(fixtures[i].path, "rb");
        if (!f) return -1;
        fixtures[i].n_bytes = fread(fixtures[i].text, 1, sizeof fixtures[i].text, f);
        fclose(f);
    }
    faults_install();
    return 0;
}

static enum reel_status init(struct chat_template *chat, const struct fixture *fixture,
                             struct reel_error *err) {
    const struct chat_sources sources = { .text = fixture->text,
                                          .n_bytes = fixture->n_bytes,
                                          .words = { "<s>" } };
    return chat_template_init(chat, &sources, NULL, NULL, err);
}

static enum reel_status render(void *context, struct reel_error *err) {
    const struct fixture *fixture = context;
    struct chat_template chat;
    struct chat_text text = { 0 };
    struct reel_chat_options options = { .size = sizeof options,
                                         .tools = "[{\"type\":\"function\",\"n\":1.5}]" };
    enum reel_status status = init(&chat, fixture, err);
    if (status != REEL_OK) return status;
    status = chat_render(&chat, messages, (int)(sizeof messages / sizeof *messages), &options,
                         &text, err);
    if (status != REEL_OK && (text.text.bytes || text.pieces)) fail_msg("a failure left text");
    chat_text_release(&text);
    chat_template_release(&chat);
    return status;
}

static void rendering_survives_every_failing_allocation(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct faults_sweep sweep = { .name = "chat_render",
                                      .run = render,
                                      .context = &fixtures[i] };
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
        if (i == 0 || !sanitized_briefly()) faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    }
}

static const char answer_text[] =
    "why\n</think>\n\nI look.\n"
    "<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\na\"b\n</"
    "parameter>\n"
    "</function>\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": [1.5, \"x\"]}}\n</tool_call> and so on";

static enum reel_status read_answer(void *context, struct reel_error *err) {
    const struct fixture *fixture = context;
    const struct reel_chat_options options = {
        .size = sizeof options,
        .thinking = REEL_THINKING_ON,
        .tools =
            "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"n\":{\"type\":\"integer\"}}}}]",
    };
    struct chat_template chat;
    struct chat_answer answer;
    enum reel_status status = init(&chat, fixture, err);
    if (status != REEL_OK) return status;
    status = chat_answer_read(&answer, &chat, &options, answer_text, strlen(answer_text), err);
    if (status == REEL_OK && !answer.tool_calls) fail_msg("success without the call");
    if (status != REEL_OK && (answer.reasoning || answer.content || answer.tool_calls))
        fail_msg("a failure left text");
    chat_answer_release(&answer);
    chat_template_release(&chat);
    return status;
}

static bool count_calls(void *user, const struct reel_answer_piece *piece) {
    if (piece->kind == REEL_ANSWER_CALL_END && !piece->broken) ++*(int *)user;
    return true;
}

/* The same byte by byte, so that a call is told on trust. */
static enum reel_status read_pieces(void *context, struct reel_error *err) {
    const struct fixture *fixture = context;
    int calls = 0;
    const struct reel_chat_options options = { .size = sizeof options,
                                               .thinking = REEL_THINKING_ON,
                                               .tools = "[]" };
    const struct reel_answer_reader_options reading = { .size = sizeof reading,
                                                        .on_piece = count_calls,
                                                        .user = &calls };
    struct reel_answer_reader *reader = NULL;
    struct chat_template chat;
    enum reel_status status = init(&chat, fixture, err);
    if (status != REEL_OK) return status;
    status = answer_reader_open(&reader, &chat, &options, &reading, err);
    for (size_t i = 0; answer_text[i] && status == REEL_OK; i++)
        status = answer_reader_push(reader, answer_text + i, 1, err);
    if (status == REEL_OK) status = answer_reader_finish(reader, err);
    if (status == REEL_OK && calls != 1) fail_msg("success with %d calls", calls);
    answer_reader_close(reader);
    chat_template_release(&chat);
    return status;
}

static void reading_an_answer_survives_every_failing_allocation(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct faults_sweep sweep = { .name = "answer_reader",
                                      .run = read_pieces,
                                      .context = &fixtures[i] };
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    }
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct faults_sweep sweep = { .name = "chat_answer_read",
                                      .run = read_answer,
                                      .context = &fixtures[i] };
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
        if (i == 0 || !sanitized_briefly()) faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    }
}

static enum reel_status load(void *context, struct reel_error *err) {
    struct model_source source = { 0 };
    struct chat_template chat = { 0 };
    enum reel_status status = model_source_open(&source, context, err);
    if (status == REEL_OK) status = chat_template_load(&chat, &source, NULL, NULL, NULL, err);
    chat_template_release(&chat);
    model_source_release(&source);
    return status;
}

static void loading_survives_every_failing_call(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "chat_template_load",
                                  .run = load,
                                  .context = "models/demo" };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rendering_survives_every_failing_allocation),
        cmocka_unit_test(reading_an_answer_survives_every_failing_allocation),
        cmocka_unit_test(loading_survives_every_failing_call),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
