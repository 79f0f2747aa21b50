/* The text of a line that is being edited, its cursor, and what was cut from it last. Places are
 * offsets in bytes and stand between grapheme clusters. */
#ifndef REEL_CLI_EDIT_TEXT_H
#define REEL_CLI_EDIT_TEXT_H

#include "base/buffer.h"

struct edit_text {
    struct buffer text; /* its bytes are never NULL after edit_open */
    size_t cursor;
    struct buffer killed; /* what edit_yank puts back */
    bool killing;         /* the last change was a cut: the next one adds to it */
};

/* limit: the most bytes that the text may have. */
enum reel_status edit_open(struct edit_text *e, size_t limit, struct reel_error *err);
void edit_close(struct edit_text *e);

/* The whole text becomes another one; the cursor stands behind it. */
enum reel_status edit_set(struct edit_text *e, const char *text, size_t n, struct reel_error *err);
enum reel_status edit_insert(struct edit_text *e, const char *text, size_t n,
                             struct reel_error *err);

/* Where the cursor would be after a step. A line is what stands between two newlines. */
size_t edit_left(const struct edit_text *e);
size_t edit_right(const struct edit_text *e);
size_t edit_word_left(const struct edit_text *e);
size_t edit_word_right(const struct edit_text *e);
size_t edit_blank_left(const struct edit_text *e); /* behind the white space before the cursor */
size_t edit_line_begin(const struct edit_text *e);
size_t edit_line_end(const struct edit_text *e);

/* Moves to the line above (-1) or below (+1), into about the same column; false where there is
 * none. */
bool edit_vertical(struct edit_text *e, int direction);

/* Takes out what stands between the cursor and `place`, on either side. */
void edit_erase(struct edit_text *e, size_t place);
/* The same, and keeps it for edit_yank; cuts in a row are kept as one. */
void edit_kill(struct edit_text *e, size_t place);
enum reel_status edit_yank(struct edit_text *e, struct reel_error *err);

/* Exchanges the clusters before and after the cursor; at the end the last two. */
void edit_transpose(struct edit_text *e);

#endif
