#include "cli/metrics_text.h"

#include <stdlib.h>
#include <string.h>

/* Letters, digits, '_' and ':', whatever the locale. */
static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

static const char *after_name(const char *at) {
    while (in_name(*at))
        at++;
    return at;
}

static const char *after_blanks(const char *at) {
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* A value in quotes from behind the first one. Returns what follows the second; NULL: there is
 * none. */
static const char *read_value(const char *at, char value[METRIC_VALUE_SIZE]) {
    size_t n = 0;
    for (; *at && *at != '"' && *at != '\n'; at++) {
        char c = *at;
        if (c == '\\' && at[1] && at[1] != '\n') c = *++at == 'n' ? '\n' : *at;
        if (n < METRIC_VALUE_SIZE - 1) value[n++] = c;
    }
    value[n] = '\0';
    return *at == '"' ? at + 1 : NULL;
}

/* Labels from behind the brace. Returns what follows the other one; NULL: they are malformed. */
static const char *read_labels(const char *at, struct metric *metric) {
    struct metric_label passed_over;
    for (at = after_blanks(at); *at != '}'; at = after_blanks(at)) {
        struct metric_label *label =
            metric->n_labels < METRIC_LABELS ? &metric->labels[metric->n_labels++] : &passed_over;
        label->name = at;
        at = after_name(at);
        label->n_name = (size_t)(at - label->name);
        if (label->n_name == 0 || at[0] != '=' || at[1] != '"') return NULL;
        at = read_value(at + 2, label->value);
        if (!at) return NULL;
        at = after_blanks(at);
        if (*at == ',')
            at++;
        else if (*at != '}')
            return NULL;
    }
    return at + 1;
}

static bool read_sample(const char *at, struct metric *metric) {
    metric->n_labels = 0;
    metric->name = at;
    at = after_name(at);
    metric->n_name = (size_t)(at - metric->name);
    if (metric->n_name == 0) return false;
    if (*at == '{') at = read_labels(at + 1, metric);
    if (!at || (*at != ' ' && *at != '\t')) return false;
    at = after_blanks(at);
    if (*at == '\n' || !*at) return false; /* strtod would look in the next line */
    char *end = NULL;
    metric->number = strtod(at, &end);
    return end != at;
}

bool metric_next(const char **at, struct metric *metric) {
    while (**at) {
        const char *line = *at, *end = strchr(line, '\n');
        *at = end ? end + 1 : line + strlen(line);
        if (read_sample(line, metric)) return true;
    }
    return false;
}

bool metric_is(const struct metric *metric, const char *name) {
    return strlen(name) == metric->n_name && memcmp(metric->name, name, metric->n_name) == 0;
}

const char *metric_label(const struct metric *metric, const char *name) {
    for (int i = 0; i < metric->n_labels; i++) {
        const struct metric_label *label = &metric->labels[i];
        if (label->n_name == strlen(name) && memcmp(label->name, name, label->n_name) == 0)
            return label->value;
    }
    return NULL;
}
