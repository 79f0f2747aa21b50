#include "cli/hub_token.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "cli/folders.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOKEN 4096

/* White space around a token is dropped, as other programs do. Anything else that is not printable
 * would end up in a header of HTTP. */
static enum reel_status take(struct hub_token *token, const char *text, size_t n,
                             struct reel_error *err) {
    static const char space[] = " \t\r\n";
    while (n > 0 && strchr(space, text[0]))
        text++, n--;
    while (n > 0 && strchr(space, text[n - 1]))
        n--;
    if (n == 0) return REEL_OK;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return err_set(err, REEL_E_FORMAT, "%s: this is no access token", token->from);
    return mem_text(&token->text, text, n, "an access token", err);
}

static enum reel_status take_file(struct hub_token *token, struct reel_error *err) {
    struct file_map map = { 0 };
    struct reel_error why = { 0 };
    enum reel_status status = file_map_open_most(&map, token->from, MAX_TOKEN, &why);
    if (status == REEL_E_NOT_FOUND) return REEL_OK;
    if (status != REEL_OK)
        return err_set(err, status, "the access token cannot be read: %s", why.text);
    status = take(token, (const char *)map.bytes, map.size, err);
    file_map_close(&map);
    return status;
}

enum reel_status hub_token_find(struct hub_token *token, struct reel_error *err) {
    static const char variable[] = "$HF_TOKEN";
    const char *text = getenv(variable + 1);
    *token = (struct hub_token){ 0 };
    enum reel_status status = REEL_OK;
    if (text && text[0]) {
        status = mem_text(&token->from, variable, strlen(variable), "a name", err);
        if (status == REEL_OK && strlen(text) > MAX_TOKEN)
            status = err_set(err, REEL_E_FORMAT, "%s: this is no access token", variable);
        if (status == REEL_OK) status = take(token, text, strlen(text), err);
        if (status != REEL_OK || token->text) goto out;
        mem_free(token->from); /* nothing but blanks counts as unset */
        token->from = NULL;
    }
    if (file_of_hub_token(&token->from, NULL) == REEL_OK) status = take_file(token, err);
out:
    if (status != REEL_OK) hub_token_release(token);
    return status;
}

void hub_token_release(struct hub_token *token) {
    mem_free(token->text);
    mem_free(token->from);
    *token = (struct hub_token){ 0 };
}
