/* What a model writes, taken apart while it is being written: the pieces of reel.h's reader of
 * answers. Put together they are what chat_answer_read makes of the whole text, however it was cut,
 * as long as calls that end as broken are left out. */
#ifndef REEL_MODEL_ANSWER_READER_H
#define REEL_MODEL_ANSWER_READER_H

#include "model/chat_template.h"

/* As reel_answer_reader_open; the template is borrowed, options and their texts are copied. */
enum reel_status answer_reader_open(struct reel_answer_reader **out,
                                    const struct chat_template *chat,
                                    const struct reel_chat_options *chat_options,
                                    const struct reel_answer_reader_options *options,
                                    struct reel_error *err);
enum reel_status answer_reader_push(struct reel_answer_reader *reader, const char *text, size_t n,
                                    struct reel_error *err);
enum reel_status answer_reader_finish(struct reel_answer_reader *reader, struct reel_error *err);
void answer_reader_close(struct reel_answer_reader *reader);

#endif
