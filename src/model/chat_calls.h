/* One call of a tool, read out of what a model wrote. */
#ifndef REEL_MODEL_CHAT_CALLS_H
#define REEL_MODEL_CHAT_CALLS_H

#include "base/buffer.h"
#include "model/chat_json.h"
#include "model/chat_span.h"
#include "model/chat_syntax.h"

struct call_reader {
    const struct chat_syntax *syntax;
    struct json_span tools; /* at is NULL when there are none */
    struct buffer call;     /* the one read last, as JSON: {"name": ..., "arguments": {...}} */
    struct buffer word;     /* scratch: a terminated copy */
    struct reel_error *err;
    enum reel_status status; /* the first failure; malformed text is none */
};

/* Reads the call that *text begins with (without the words around it) into r->call, and `close`
 * behind it; false, with *text as it was, when it is none. Arguments that are written without
 * quotes are texts unless the tool says that they are of another type and they read as JSON (or as
 * Python's True, False and None). */
bool call_read(struct call_reader *r, struct span *text);
void call_reader_release(struct call_reader *r);

#endif
