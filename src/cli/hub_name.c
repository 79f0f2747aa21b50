#include "cli/hub_name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_NAME 96  /* of an owner or a repository, as hubs have it */
#define MAX_PART 200 /* of a path: file systems stop at 255, and ".part" is added */
#define MAX_PATH 800

/* Letters, digits, '-', '_' and '.', not starting with '.'. */
static bool plain_name(const char *text, size_t n) {
    if (n == 0 || n > MAX_NAME || text[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i])) return false;
    return true;
}

static bool is_repo(const char *text, size_t n) {
    const char *slash = memchr(text, '/', n);
    return slash && plain_name(text, (size_t)(slash - text)) &&
           plain_name(slash + 1, n - (size_t)(slash + 1 - text));
}

bool hub_is_repo(const char *text) { return is_repo(text, strlen(text)); }

bool hub_path_is_safe(const char *path) {
    if (strlen(path) > MAX_PATH) return false;
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > MAX_PART || part[0] == '.') return false;
        for (size_t i = 0; i < n; i++)
            if (!isalnum((unsigned char)part[i]) && !strchr("-_.+=@,()[]~ ", part[i])) return false;
        part += n;
        if (!*part) return true;
    }
}

bool hub_name_parse(struct hub_name *name, const char *text) {
    size_t n = strcspn(text, ":");
    if (n >= sizeof name->repo || !is_repo(text, n)) return false;
    if (text[n] && !hub_path_is_safe(text + n + 1)) return false;
    memcpy(name->repo, text, n);
    name->repo[n] = '\0';
    name->what = text[n] ? text + n + 1 : NULL;
    return true;
}

bool hub_ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The number that five digits are; 0 where other characters are among them. */
static int five_digits(const char *text) {
    int number = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)text[i])) return 0;
        number = 10 * number + (text[i] - '0');
    }
    return number;
}

/* The length of "-00001-of-00003" at the end of n bytes, and *count; 0 and 1 without it. */
static size_t part_suffix(const char *text, size_t n, int *count) {
    enum { LENGTH = 15, MIDDLE = 6, LAST = 10 };
    *count = 1;
    if (n <= LENGTH) return 0;
    const char *end = text + n - LENGTH;
    if (end[0] != '-' || strncmp(end + MIDDLE, "-of-", 4) != 0 || !five_digits(end + 1) ||
        !five_digits(end + LAST))
        return 0;
    *count = five_digits(end + LAST);
    return LENGTH;
}

/* The file's name without ".gguf" and the number of its part. */
static const char *stem_of(const char *path, size_t *n, int *parts) {
    const char *base = base_name(path);
    *n = strlen(base);
    if (hub_ends_with(base, ".gguf")) *n -= strlen(".gguf");
    *n -= part_suffix(base, *n, parts);
    return base;
}

int hub_parts(const char *path) {
    size_t n = 0;
    int parts = 1;
    stem_of(path, &n, &parts);
    return parts;
}

/* Whether a word is how people call a type of weights: Q4_K_M, IQ4_XS, BF16, F32, MXFP4, ... */
static bool is_quantisation(const char *word, size_t n) {
    static const char *const starts[] = { "Q", "IQ", "TQ", "BF", "FP", "F", "MXFP", "NVFP" };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t m = strlen(starts[i]);
        if (n > m && strncasecmp(word, starts[i], m) == 0 && isdigit((unsigned char)word[m]))
            return true;
    }
    return false;
}

void hub_label(const char *path, char label[HUB_MAX_LABEL]) {
    size_t n = 0;
    int parts = 1;
    const char *stem = stem_of(path, &n, &parts);
    size_t at = n;
    while (at > 0 && stem[at - 1] != '-' && stem[at - 1] != '.')
        at--;
    if (!is_quantisation(stem + at, n - at)) at = 0;
    snprintf(label, HUB_MAX_LABEL, "%.*s", (int)(n - at), stem + at);
}

int hub_match(const char *path, const char *what) {
    char label[HUB_MAX_LABEL];
    size_t n = 0, m = strlen(what);
    int parts = 1;
    const char *base = base_name(path), *stem = stem_of(path, &n, &parts);
    if (!hub_ends_with(path, ".gguf") || m == 0) return 0;
    if (strcmp(path, what) == 0) return 5;
    if (strcmp(base, what) == 0) return 4;
    hub_label(path, label);
    if (strcasecmp(label, what) == 0) return 3;
    if (m == n && strncasecmp(stem, what, n) == 0) return 2;
    return m < n && strncasecmp(stem + n - m, what, m) == 0 && strchr("-._", stem[n - m - 1]);
}

bool hub_is_companion(const char *path) {
    const char *base = base_name(path);
    return strncasecmp(base, "mmproj", 6) == 0 || strstr(base, "imatrix");
}
