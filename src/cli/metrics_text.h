/* Prometheus' text format, line by line: what a server's /metrics says. */
#ifndef REEL_CLI_METRICS_TEXT_H
#define REEL_CLI_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define METRIC_LABELS     4
#define METRIC_VALUE_SIZE 256

struct metric_label {
    const char *name; /* [n_name] borrowed from the page */
    size_t n_name;
    char value[METRIC_VALUE_SIZE]; /* without its escapes; a longer one is cut */
};

/* NAME{LABEL="VALUE",...} NUMBER */
struct metric {
    const char *name; /* [n_name] borrowed from the page */
    size_t n_name;
    struct metric_label labels[METRIC_LABELS]; /* further ones are passed over */
    int n_labels;
    double number;
};

/* Reads the next sample of a text that ends with a NUL and moves *at behind its line; comments and
 * lines that are none are passed over. False: there are no more. */
bool metric_next(const char **at, struct metric *metric);

bool metric_is(const struct metric *metric, const char *name);
/* The value of a label, or NULL. */
const char *metric_label(const struct metric *metric, const char *name);

#endif
