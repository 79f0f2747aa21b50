#include "cli/profile_html.h"

#include "base/memory.h"

#include <string.h>

/* src/cli/profile.html, with a mark where each text goes. */
extern const char reel_profile_page[] __attribute__((visibility("hidden")));

/* JSON inside a script element: "</script>" in a name would end it. A '<' is in strings only. */
static enum reel_status put_json(struct buffer *out, const char *text, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    while (*text && status == REEL_OK) {
        const size_t n = strcspn(text, "<");
        status = buffer_append(out, text, n, err);
        text += n;
        if (*text && status == REEL_OK) {
            status = buffer_text(out, "\\u003c", err);
            text++;
        }
    }
    return status;
}

/* What stands before the mark, then the text; moves *at behind the mark. */
static enum reel_status put_until(struct buffer *out, const char **at, const char *mark,
                                  const char *text, struct reel_error *err) {
    const char *found = strstr(*at, mark);
    if (!found) return err_set(err, REEL_E_STATE, "the page of profiles lacks %s", mark);
    enum reel_status status = buffer_append(out, *at, (size_t)(found - *at), err);
    *at = found + strlen(mark);
    return status == REEL_OK ? put_json(out, text, err) : status;
}

enum reel_status profile_html(struct buffer *out, const json_t *profile, const char *trace,
                              struct reel_error *err) {
    const char *at = reel_profile_page;
    char *text = NULL;
    enum reel_status status = json_write_compact(&text, profile, "a profile", err);
    if (status == REEL_OK) status = put_until(out, &at, "@PROFILE@", text, err);
    if (status == REEL_OK) status = put_until(out, &at, "@TRACE@", trace, err);
    if (status == REEL_OK) status = buffer_text(out, at, err);
    mem_free(text);
    return status;
}
