/* Chat templates when memory or the template's file fails. */
#include "model/chat_template.h"
#include "support/faults.h"

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

static char template_text[8192];
static size_t template_bytes;

static int install(void **state) {
    (void)state;
    FILE *f = fopen("tests/fixtures/chat/qwen3.jinja", "rb");
    if (!f) return -1;
    template_bytes = fread(template_text, 1, sizeof template_text, f);
    fclose(f);
    faults_install();
    return 0;
}

static enum reel_status render(void *context, struct reel_error *err) {
    (void)context;
    struct chat_template chat;
    struct chat_text text = { 0 };
    struct reel_chat_options options = { .size = sizeof options,
                                         .tools = "[{\"type\":\"function\",\"n\":1.5}]" };
    enum reel_status status = chat_template_init(&chat, template_text, template_bytes, NULL, err);
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
    struct faults_sweep sweep = { .name = "chat_render", .run = render };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static enum reel_status load(void *context, struct reel_error *err) {
    struct model_source source = { 0 };
    struct chat_template chat = { 0 };
    enum reel_status status = model_source_open(&source, context, err);
    if (status == REEL_OK) status = chat_template_load(&chat, &source, NULL, NULL, err);
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
        cmocka_unit_test(loading_survives_every_failing_call),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
