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
    /* Set where a call was read in a way that text behind its end might have changed: words that
     * ought to be there were not found. Never cleared here. */
    bool unsure;
};

/* Reads the call that *text begins with (without the words around it) into r->call, and `close`
 * behind it; false, with *text as it was, when it is none. Arguments that are written without
 * quotes are texts unless the tool says that they are of another type and they read as JSON (or as
 * Python's True, False and None). */
bool call_read(struct call_reader *r, struct span *text);

/* The parts of it, for text that goes on: the call itself (where calls are tagged with `close`),
 * whether nothing more may stand for `close`, and whether what was read is a call that anybody
 * takes. */
bool call_read_body(struct call_reader *r, struct span *text);
bool call_may_end_here(const struct chat_syntax *syntax, struct span rest);
bool call_is_valid(struct call_reader *r);

/* Reads s as JSON; false when it is none. The value is good until the next call of these. */
bool call_read_json(struct call_reader *r, struct span s, struct json_span *value);
void call_reader_release(struct call_reader *r);

#endif
