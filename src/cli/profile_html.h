/* A profile as one HTML page that needs nothing else: its table, its timeline, how a prompt is
 * read.
 */
#ifndef REEL_CLI_PROFILE_HTML_H
#define REEL_CLI_PROFILE_HTML_H

#include "base/buffer.h"
#include "base/json.h"

/* `profile` is what reel profile prints with -o json, `trace` its trace events as text. */
enum reel_status profile_html(struct buffer *out, const json_t *profile, const char *trace,
                              struct reel_error *err);

#endif
