/* Questions to a server of a test, and what comes back taken apart. What is not as it should be
 * fails the test. */
#ifndef REEL_TESTS_ASKING_H
#define REEL_TESTS_ASKING_H

#include <jansson.h>
#include <stdbool.h>

/* The JSON of an answer with this code; json_decref. Body NULL: GET. */
json_t *ask(int port, const char *path, const char *body, int code);

const char *field_of(const json_t *object, const char *key);
json_int_t number_of(const json_t *object, const char *key);

/* 400 in OpenAI's form, whose param is this field. */
void assert_refused(int port, const char *path, const char *body, const char *field);

/* The events of a stream, as they came. */
struct events {
    char *text;
    json_t *list[1000];
    const char *names[1000]; /* of "event:" lines, or NULL */
    int n;
    bool done; /* ended with [DONE] */
};
struct events ask_stream(int port, const char *path, const char *body);
void release_events(struct events *e);

#endif
