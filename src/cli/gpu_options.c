#include "cli/gpu_options.h"

#include "base/buffer.h"
#include "reel_measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KEYS 100

static enum reel_status refuse_key(const char *key, int n, struct reel_error *err) {
    const char *words[MOST_KEYS + 1];
    struct reel_gpu_option o = { .size = sizeof o };
    char typed[60];
    int n_words = 0;
    while (n_words < MOST_KEYS && reel_gpu_option(n_words, &o, NULL) == REEL_OK)
        words[n_words++] = o.key;
    words[n_words] = NULL;
    (void)snprintf(typed, sizeof typed, "%.*s", n, key);
    const char *nearest = cli_nearest(typed, words);
    return err_set(err, REEL_E_ARGUMENT, "--gpu-option: \"%s\" is no key%s%s%s", typed,
                   nearest ? "; did you mean " : "", nearest ? nearest : "",
                   nearest ? "?" : "; reel help gpu-options lists them");
}

/* One KEY=VALUE of n bytes. */
static enum reel_status check_one(const char *text, size_t n, struct reel_error *err) {
    const int n_shown = (int)(n < 60 ? n : 60);
    const char *equals = memchr(text, '=', n);
    struct reel_gpu_option o = { .size = sizeof o };
    if (!equals)
        return err_set(err, REEL_E_ARGUMENT,
                       "--gpu-option: \"%.*s\" is not KEY=VALUE; reel help gpu-options lists keys",
                       n_shown, text);
    const size_t n_key = (size_t)(equals - text);
    int i = 0;
    for (; reel_gpu_option(i, &o, NULL) == REEL_OK; i++)
        if (strlen(o.key) == n_key && memcmp(o.key, text, n_key) == 0) break;
    if (reel_gpu_option(i, &o, NULL) != REEL_OK)
        return refuse_key(text, (int)(n_key < 59 ? n_key : 59), err);
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(equals + 1, &end, 0);
    if (errno || end == equals + 1 || end != text + n || value < o.least || value > o.most)
        return err_set(err, REEL_E_ARGUMENT,
                       "--gpu-option: \"%.*s\": %s is an integer from %lld to %lld", n_shown, text,
                       o.key, (long long)o.least, (long long)o.most);
    return REEL_OK;
}

static enum reel_status check_list(const char *text, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && *text) {
        const size_t n = strcspn(text, ",");
        if (n > 0) status = check_one(text, n, err);
        text += n + (text[n] == ',');
    }
    return status;
}

enum reel_status gpu_options_join(char **text, const struct cli_args *args, const char *first,
                                  struct reel_error *err) {
    struct buffer list = { 0 };
    enum reel_status status = first ? buffer_text(&list, first, err) : REEL_OK;
    const char *one;
    for (int i = 0; status == REEL_OK && (one = cli_repeated(args, "gpu-option", i)); i++) {
        status = check_list(one, err);
        if (status == REEL_OK)
            status = buffer_printf(&list, err, "%s%s", list.size ? "," : "", one);
    }
    *text = status == REEL_OK && list.size ? buffer_detach(&list, NULL) : NULL;
    buffer_release(&list);
    return status;
}
