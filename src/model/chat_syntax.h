/* How a template's models write thinking and calls of tools, as found by rendering conversations
 * whose texts are known (chat_probe.c). Reading answers goes by it (chat_answer.c). */
#ifndef REEL_MODEL_CHAT_SYNTAX_H
#define REEL_MODEL_CHAT_SYNTAX_H

#include "base/error.h"

#include <stdbool.h>

enum chat_call_kind {
    CHAT_CALLS_NONE,  /* the template writes none, or in a way that is not read */
    CHAT_CALLS_JSON,  /* {"name": "f", "arguments": {"a": 1}} */
    CHAT_CALLS_NAMED, /* f, words, {"a": 1} */
    CHAT_CALLS_TAGGED /* f, then words, key, words, value, words for each argument */
};

/* An answer's calls are
 *   before (open CALL close) between (open CALL close) ... after
 * White space at the ends of these words is loose: a model may write more or less of it. */
struct chat_call_words {
    char *before, *open, *close, *between, *after;
    char *name_end; /* NAMED: between name and arguments; TAGGED: behind the name, may be empty */
    char *key_open, *key_close, *value_close; /* TAGGED */
    char *key_close_typed; /* instead of key_close before a value that is no text; or NULL */
    char *name_key, *arguments_key; /* JSON: "name", "arguments" */
};

struct chat_syntax {
    bool thinks;                    /* the template knows thinking */
    bool opens_thinking[3];         /* by enum reel_thinking: the prompt ends inside thinking */
    char *think_open, *think_close; /* without white space at their ends; NULL where unknown */
    bool writes_calls;              /* calls of an assistant's message are in the text; */
    bool drops_calls;               /* but of several only one */
    bool prints_none[4];            /* by enum chat_role: a missing content becomes words */
    enum chat_call_kind calls;
    struct chat_call_words words;
};

void chat_syntax_release(struct chat_syntax *syntax);

/* One line for people: "JSON in <tool_call>...</tool_call>"; "none" where calls are not read. */
void chat_syntax_describe_calls(const struct chat_syntax *syntax, char *line, size_t n_bytes);

#endif
