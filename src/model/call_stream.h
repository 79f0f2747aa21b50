/* One call of a tool while it is being written. Where calls are JSON, its name and arguments are
 * told as they come, on trust: as soon as the brace of the arguments has come behind a name. Should
 * the call turn out to be none, or another one, it ends as broken. */
#ifndef REEL_MODEL_CALL_STREAM_H
#define REEL_MODEL_CALL_STREAM_H

#include "model/chat_calls.h"
#include "model/chat_words.h"
#include "reel.h"

enum call_stage {
    CALL_BLANKS,    /* before the object */
    CALL_NAME,      /* up to the words behind it */
    CALL_BRACE,     /* an id, perhaps */
    CALL_OBJECT,    /* up to its last brace */
    CALL_CLOSE,     /* the words behind the object */
    CALL_PARAMETER, /* whether tagged arguments follow, or the end */
    CALL_TAGS       /* up to the closing words that do end it */
};

struct call_stream {
    struct call_reader reader; /* status and err are those of the whole answer's reader */
    struct loose_word close, name_end, key_open;
    bool name_is_trimmed; /* a name's white space is the words' */
    reel_answer_fn on_piece;
    void *user;
    bool whole_calls; /* nothing is told on trust */
    int n_calls;      /* told so far, those that ended as broken included */

    /* The call at hand; offsets of the answer's text. */
    enum call_stage stage;
    bool trusts; /* it may be told on trust */
    size_t body; /* behind the words that open it */
    size_t name_end_at, after_name;
    size_t scan;
    struct loose_search search;
    struct loose_match match, key;
    bool name_has_text, name_has_line;
    int depth; /* of braces */
    bool quoted, escaped;
    int attempts; /* to read tags, and when the next one is worth it */
    size_t next_attempt;
    bool untried;

    /* What was told on trust. */
    bool begun;
    size_t arguments, arguments_end, told; /* end 0: not come yet */
    struct buffer name, scratch;
};

enum reel_status call_stream_open(struct call_stream *c, const struct chat_syntax *syntax,
                                  reel_answer_fn on_piece, void *user, struct reel_error *err);
void call_stream_close(struct call_stream *c);

/* A call may begin at `body`. `quietly`: nothing of it is told on trust. */
void call_stream_begin(struct call_stream *c, size_t body, bool quietly);

/* Reads on. YES: c->reader.call is it, and it ends at *end. NO: it is no call. MAYBE: more text is
 * needed; never when `whole`, which says that none comes. */
enum loose call_stream_go(struct call_stream *c, struct span text, bool whole, size_t *end);

/* Tells what is still untold of the call, which `json` holds. */
void call_stream_tell(struct call_stream *c, struct span text, struct span json);

/* Ends what was told on trust. */
void call_stream_break(struct call_stream *c);

#endif
