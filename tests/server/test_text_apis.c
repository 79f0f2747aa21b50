/* The text interfaces over HTTP, on the demo model: what they answer, and what they refuse. */
#include "tests/support/http_client.h"
#include "tests/support/served.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct served served;

static int set_up(void **state) {
    (void)state;
    served.options.context = 256;
    served.options.sessions = 2;
    if (served_open(&served)) return 0;
    fprintf(stderr, "%s\n", served.err.text);
    return -1;
}

static int tear_down(void **state) {
    (void)state;
    served_close(&served);
    return 0;
}

/* ---- asking ---- */

/* The JSON of an answer of this code; json_decref. */
static json_t *post(const char *path, const char *body, int code) {
    struct http_answer answer;
    const struct http_request request = { .path = path, .body = body };
    if (!http_ask(&answer, served.port, &request))
        fail_msg("%s: no whole answer to %.200s", path, body);
    if (answer.code != code)
        fail_msg("%s: %d instead of %d for %.300s: %.600s", path, answer.code, code, body,
                 answer.body.bytes);
    json_error_t err;
    json_t *json = json_loads(answer.body.bytes, 0, &err);
    if (!json) fail_msg("%s: no JSON (%s): %.300s", path, err.text, answer.body.bytes);
    http_answer_release(&answer);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("no text '%s'", key);
    return text;
}

static json_int_t number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("no whole number '%s'", key);
    return json_integer_value(value);
}

/* 400 in OpenAI's form, whose param is this field. */
static void assert_refused(const char *path, const char *body, const char *field) {
    json_t *json = post(path, body, 400);
    const json_t *error = json_object_get(json, "error");
    const char *param = json_string_value(json_object_get(error, "param"));
    assert_string_equal(text_of(error, "type"), "invalid_request_error");
    if (!param || strcmp(param, field) != 0)
        fail_msg("%s: param %s instead of %s for %.200s: %s", path, param ? param : "null", field,
                 body, text_of(error, "message"));
    json_decref(json);
}

/* ---- chat ---- */

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"She was\"}]"

static void chat_answers_whole(void **state) {
    (void)state;
    json_t *json = post("/v1/chat/completions",
                        "{" HELLO ",\"model\":\"demo\",\"max_tokens\":5,\"temperature\":0}", 200);
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    assert_string_equal(text_of(json, "object"), "chat.completion");
    assert_string_equal(text_of(choice, "finish_reason"), "length");
    assert_int_equal(number_of(json_object_get(json, "usage"), "completion_tokens"), 5);
    json_decref(json);
}

static void chat_refuses_by_name(void **state) {
    static const char path[] = "/v1/chat/completions";
    (void)state;
    assert_refused(path, "{" HELLO ",\"temperature\":-1}", "temperature");
    assert_refused(path, "{" HELLO ",\"top_logprobs\":3}", "top_logprobs");
    assert_refused(path, "{\"messages\":[]}", "messages");
    assert_refused(path, "{" HELLO ",\"n\":1000000}", "n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_answers_whole),
        cmocka_unit_test(chat_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
