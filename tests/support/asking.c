#include "tests/support/asking.h"

#include "tests/support/http_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

json_t *ask(int port, const char *path, const char *body, int code) {
    struct http_answer answer;
    const struct http_request request = { .path = path, .body = body };
    if (!http_ask(&answer, port, &request))
        fail_msg("%s: no whole answer to %.200s", path, body ? body : "");
    if (answer.code != code)
        fail_msg("%s: %d instead of %d for %.300s: %.600s", path, answer.code, code,
                 body ? body : "", answer.body.bytes);
    json_error_t err;
    json_t *json = json_loads(answer.body.bytes, 0, &err);
    if (!json) fail_msg("%s: no JSON (%s): %.300s", path, err.text, answer.body.bytes);
    http_answer_release(&answer);
    return json;
}

const char *field_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("no text '%s'", key);
    return text;
}

json_int_t number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("no whole number '%s'", key);
    return json_integer_value(value);
}

void assert_refused(int port, const char *path, const char *body, const char *field) {
    json_t *json = ask(port, path, body, 400);
    const json_t *error = json_object_get(json, "error");
    const char *param = json_string_value(json_object_get(error, "param"));
    assert_string_equal(field_of(error, "type"), "invalid_request_error");
    if (!param || strcmp(param, field) != 0)
        fail_msg("%s: param %s instead of %s for %.200s: %s", path, param ? param : "null", field,
                 body, field_of(error, "message"));
    json_decref(json);
}

static void add_event(struct events *e, char *event) {
    const char *name = NULL;
    char *data = event;
    if (strncmp(event, "event: ", 7) == 0) {
        char *end = strchr(event, '\n');
        if (!end) fail_msg("an event without data: %s", event);
        *end = '\0';
        name = event + 7;
        data = end + 1;
    }
    if (strncmp(data, "data: ", 6) != 0) fail_msg("no event: %s", event);
    if (strchr(data, '\n')) fail_msg("an event of two lines: %s", event);
    if (strcmp(data + 6, "[DONE]") == 0) {
        e->done = true;
        return;
    }
    assert_in_range(e->n, 0, 999);
    e->names[e->n] = name;
    e->list[e->n] = json_loads(data + 6, 0, NULL);
    if (!e->list[e->n++]) fail_msg("no JSON: %s", data);
}

struct events ask_stream(int port, const char *path, const char *body) {
    struct http_answer answer;
    const struct http_request request = { .path = path, .body = body };
    struct events e = { 0 };
    char type[256];
    if (!http_ask(&answer, port, &request)) fail_msg("%s: no whole answer", path);
    if (answer.code != 200) fail_msg("%s: %d: %.500s", path, answer.code, answer.body.bytes);
    assert_string_equal(http_header(&answer, "Content-Type", type), "text/event-stream");
    e.text = strdup(answer.body.bytes);
    http_answer_release(&answer);
    for (char *at = e.text; at && *at;) {
        char *end = strstr(at, "\n\n");
        if (!end) fail_msg("a stream that ends inside an event: %s", at);
        *end = '\0';
        assert_false(e.done); /* nothing comes behind it */
        add_event(&e, at);
        at = end + 2;
    }
    return e;
}

void release_events(struct events *e) {
    for (int i = 0; i < e->n; i++)
        json_decref(e->list[i]);
    free(e->text);
}
