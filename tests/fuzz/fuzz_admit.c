/* What decides who is let in, without a network: the first byte chooses, then lines. The first line
 * is "METHOD PATH", each other one "Name: value", or "?name=value" for the query. Nobody without
 * the key comes further than /health, and the log stays JSON. Where the first byte is odd, the rest
 * is base64. */
#include "base/memory.h"
#include "server/admit.h"
#include "server/base64.h"
#include "server/exchange_state.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define KEY "sk-k"

static void on_log(void *user, enum server_log_kind kind, const char *line) {
    (void)user;
    (void)kind;
    json_t *json = json_loads(line, 0, NULL);
    if (!json_is_object(json)) abort();
    json_decref(json);
}

static struct server server = { .options = { .host = "127.0.0.1", .log_json = true, .log = on_log },
                                .loopback = true };

static void check_base64(const char *text, size_t n) {
    struct buffer plain = { 0 }, again = { 0 }, twice = { 0 };
    if (base64_read(&plain, text, n, NULL) == REEL_OK) {
        if (plain.size > n) abort();
        if (base64_write(&again, plain.bytes, plain.size, NULL) != REEL_OK ||
            base64_read(&twice, again.bytes ? again.bytes : "", again.size, NULL) != REEL_OK ||
            twice.size != plain.size ||
            (plain.size && memcmp(twice.bytes, plain.bytes, plain.size)))
            abort();
    }
    buffer_release(&plain);
    buffer_release(&again);
    buffer_release(&twice);
}

static void add_field(struct exchange *x, char *line) {
    const bool query = line[0] == '?';
    char *value = strchr(line, query ? '=' : ':');
    if (x->n_fields == EXCHANGE_FIELDS) {
        x->more_fields = true;
        return;
    }
    if (value) *value++ = '\0';
    value = value ? value + strspn(value, " ") : strchr(line, '\0');
    x->fields[x->n_fields++] = (struct exchange_field){ line + query, value, query };
}

static void check_request(char *text, bool has_key) {
    struct exchange *x = exchange_new(&server, NULL);
    char *rest = NULL, *line = strtok_r(text, "\n", &rest),
         *space = line ? strchr(line, ' ') : NULL;
    if (!x) abort();
    if (space) *space++ = '\0';
    if (mem_text(&x->method, line ? line : "", line ? strlen(line) : 0, "a method", NULL) !=
            REEL_OK ||
        mem_text(&x->path, space ? space : "/", space ? strlen(space) : 1, "a path", NULL) !=
            REEL_OK)
        abort();
    while ((line = strtok_r(NULL, "\n", &rest)))
        add_field(x, line);
    admit_name(x);
    admit_check(x);
    const bool open = x->route && x->route->flags & ROUTE_OPEN;
    if (!x->refuse_code && !x->route) abort();
    if (!x->refuse_code && !open && !has_key) abort();
    if (!x->id[0] || strlen(x->id) >= sizeof x->id) abort();
    if (x->refuse_code) admit_answer(x);
    if (x->refuse_code && (!x->begun || x->code != x->refuse_code)) abort();
    admit_log(x, 200, 1);
    exchange_let_go(x);
}

static bool has_basic(const char *text) {
    for (; *text; text++)
        if (strncasecmp(text, "basic ", 6) == 0) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const keys[] = { KEY };
    if (!server.keys.n) {
        keys_init(&server.keys);
        if (keys_set(&server.keys, keys, 1, NULL) != REEL_OK) abort();
    }
    if (n < 1) return 0;
    char *text = malloc(n);
    if (!text) return 0;
    memcpy(text, data + 1, n - 1);
    text[n - 1] = '\0';
    if (data[0] % 2) {
        check_base64(text, n - 1);
    } else {
        /* in the basic scheme it stands in base64 */
        check_request(text, strstr(text, KEY) || has_basic(text));
    }
    free(text);
    return 0;
}
