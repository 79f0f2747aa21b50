/* reel top: what a running server does, second by second. */
#include "base/clock.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "cli/chart.h"
#include "cli/commands.h"
#include "cli/keys.h"
#include "cli/raw_mode.h"
#include "cli/terminal.h"
#include "cli/top_view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_URL    "http://127.0.0.1:8080"
#define MOST_KEY_BYTES 65536
#define WITHOUT_WINDOW 120 /* columns where there is no terminal */

enum { WINDOW = 60, MOST_MADE = 400 };

static const struct cli_option options[] = {
    { .name = "once",
      .kind = CLI_FLAG,
      .help = "print one view and end: rates over one interval, the rest since the server's "
              "start" },
    { .name = "output",
      .letter = 'o',
      .kind = CLI_CHOICE,
      .argument = "FORMAT",
      .choices = "table json",
      .help = "table or json, an object on a line for each interval; default table" },
    { .name = "interval",
      .kind = CLI_REAL,
      .argument = "SECONDS",
      .low = 0.1,
      .high = 3600,
      .help = "seconds between two readings; default 1" },
    { .name = "api-key-file",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "the first line of FILE is the key that the server wants" },
    { .name = "ca-file",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .others = "cacert tls-ca",
      .help = "trust the certificates of FILE (PEM) and no others; default: the system's" },
};
static const struct cli_group group = CLI_GROUP("Watching", options);

struct top {
    const struct cli_args *args;
    struct http_get client;
    char url[1024];
    char key[512];
    double interval_ms;
    struct top_reading *readings; /* [WINDOW + 1], a ring */
    int n;                        /* readings made so far */
    double made_per_s[MOST_MADE];
    int n_made;
    struct reel_error trouble;
    bool quit;
};

/* ---- where to ask ---------------------------------------------------------------------------- */

/* HOST:PORT alone is http; a slash at the end, and the /v1 that clients want there, are taken off.
 */
static enum reel_status read_url(struct top *top, const char *text, struct reel_error *err) {
    const char *scheme = strstr(text, "://");
    const bool known =
        strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0;
    if ((scheme && !known) || !text[0])
        return err_set(err, REEL_E_ARGUMENT,
                       "\"%s\" is not an address of the form http://HOST:PORT or https://HOST:PORT",
                       text);
    const int n = snprintf(top->url, sizeof top->url, "%s%s", scheme ? "" : "http://", text);
    if (n >= (int)sizeof top->url)
        return err_set(err, REEL_E_LIMIT, "an address of more than %zu bytes", sizeof top->url - 1);
    size_t length = (size_t)n;
    while (length > 0 && top->url[length - 1] == '/')
        length--;
    if (length > 3 && memcmp(top->url + length - 3, "/v1", 3) == 0) length -= 3;
    top->url[length] = '\0';
    return REEL_OK;
}

static enum reel_status read_key(struct top *top, struct reel_error *err) {
    const char *path = cli_text(top->args, "api-key-file", NULL);
    struct file_map file = { 0 };
    if (!path) return REEL_OK;
    enum reel_status status = file_map_open_most(&file, path, MOST_KEY_BYTES, err);
    if (status != REEL_OK) return status;
    const char *text = (const char *)file.bytes;
    size_t n = 0;
    while (n < file.size && text[n] != '\n' && text[n] != '\r')
        n++;
    if (n == 0 || n >= sizeof top->key || memchr(text, '\0', n))
        status = err_set(err, REEL_E_FORMAT, "%s: its first line is no key of 1 to %zu bytes", path,
                         sizeof top->key - 1);
    else
        memcpy(top->key, text, n);
    file_map_close(&file);
    top->client.bearer = top->key;
    return status;
}

/* ---- readings -------------------------------------------------------------------------------- */

static struct top_reading *reading(const struct top *top, int i) {
    return &top->readings[i % (WINDOW + 1)];
}

static void note_made(struct top *top, double made_per_s) {
    if (top->n_made == MOST_MADE)
        memmove(top->made_per_s, top->made_per_s + 1, (MOST_MADE - 1) * sizeof *top->made_per_s);
    else
        top->n_made++;
    top->made_per_s[top->n_made - 1] = made_per_s;
}

static enum reel_status read_next(struct top *top, struct reel_error *err) {
    enum reel_status status = top_read(reading(top, top->n), &top->client, top->url, err);
    if (status != REEL_OK) return status;
    if (top->n > 0) note_made(top, top_made_per_s(reading(top, top->n - 1), reading(top, top->n)));
    top->n++;
    return REEL_OK;
}

static struct top_view view_of(const struct top *top, bool live) {
    const int oldest = top->n > WINDOW ? top->n - 1 - WINDOW : 0;
    struct top_view view = { .url = top->url,
                             .now = reading(top, top->n - 1),
                             .before = top->n > 1 ? reading(top, top->n - 2) : NULL,
                             .since = live && top->n > 1 ? reading(top, oldest) : NULL,
                             .made_per_s = top->made_per_s,
                             .n_made = live ? top->n_made : 0,
                             .trouble = top->trouble.text[0] ? top->trouble.text : NULL,
                             .live = live && terminal_is(stdout),
                             .columns = WITHOUT_WINDOW,
                             .unicode = chart_is_unicode(),
                             .styles = terminal_has_styles(stdout) };
    if (terminal_is(stdout)) view.columns = terminal_columns(stdout);
    return view;
}

static enum reel_status print(const struct top *top, bool live, struct reel_error *err) {
    const struct top_view view = view_of(top, live);
    const bool json = strcmp(cli_text(top->args, "output", "table"), "json") == 0;
    struct buffer rows = { 0 };
    json_t *object = NULL;
    char *text = NULL;
    enum reel_status status =
        json ? top_view_json(&object, &view, err) : top_view_rows(&rows, &view, err);
    if (status == REEL_OK && json) status = json_write_compact(&text, object, "a reading", err);
    if (status == REEL_OK && json) printf("%s\n", text);
    if (status == REEL_OK && !json) fwrite(rows.bytes, 1, rows.size, stdout);
    mem_free(text);
    json_decref(object);
    buffer_release(&rows);
    return status;
}

/* ---- once, or line by line ------------------------------------------------------------------- */

static bool wait_interval(const struct top *top, double since_ms) {
    for (;;) {
        const double left = since_ms + top->interval_ms - clock_ms();
        if (interrupt_pending()) return false;
        if (left <= 0) return true;
        const double ms = left < 100 ? left : 100;
        nanosleep(&(struct timespec){ .tv_nsec = (long)(ms * 1e6) }, NULL); /* or a signal */
    }
}

static enum reel_status run_lines(struct top *top, bool once, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    top->client.stop = interrupt_pending;
    while (status == REEL_OK && (!once || top->n < 2)) {
        status = read_next(top, err);
        const double start = clock_ms(); /* a slow answer does not shorten the interval */
        if (status == REEL_OK && top->n > 1) status = print(top, !once, err);
        if (status == REEL_OK && fflush(stdout) != 0) break; /* main() says so */
        if (once && top->n > 1) break;
        if (status == REEL_OK && !wait_interval(top, start)) break;
    }
    if (interrupt_pending()) return once ? err_set(err, REEL_E_CANCELLED, "cancelled") : REEL_OK;
    return status;
}

/* ---- the whole screen ------------------------------------------------------------------------ */

static enum reel_status draw(const struct top *top, struct reel_error *err) {
    struct top_view view = view_of(top, true);
    struct buffer rows = { 0 };
    terminal_size(stdout, &view.columns, &view.rows);
    enum reel_status status = top_view_rows(&rows, &view, err);
    fputs("\033[H", stdout);
    int n = 0;
    for (const char *at = rows.bytes; status == REEL_OK && at && *at && n < view.rows; n++) {
        const char *end = strchr(at, '\n');
        /* No newline behind the last row: it would move the others up. What a row had before is
         * erased first, as behind the last column there is nothing left to erase. */
        printf("%s\033[2K%.*s", n > 0 ? "\n" : "", (int)(end - at), at);
        at = end + 1;
    }
    fputs("\033[J", stdout);
    buffer_release(&rows);
    if (status == REEL_OK && fflush(stdout) != 0)
        status = err_set(err, REEL_E_IO, "the terminal: %s", strerror(errno));
    return status;
}

static bool is_quit(const struct key *key) {
    if (key->code == KEY_TEXT)
        return memchr(key->text, 'q', key->n) || memchr(key->text, 'Q', key->n);
    return key->code == KEY_INTERRUPT || key->code == KEY_DELETE_OR_CLOSE || key->code == KEY_QUIT;
}

static void read_keys(struct top *top) {
    char bytes[256];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) top->quit = true;
    for (size_t at = 0; n > 0 && at < (size_t)n;) {
        struct key key;
        at += key_read(bytes + at, (size_t)n - at, true, &key);
        if (is_quit(&key)) top->quit = true;
    }
}

static bool is_wanted(void) { return interrupt_pending() || terminal_wait(0); }

/* Shows, and until the next reading is due looks at keys and the size of the window. */
static enum reel_status show(struct top *top, double start_ms, struct reel_error *err) {
    enum reel_status status = draw(top, err);
    while (status == REEL_OK && !top->quit && !interrupt_pending()) {
        const double left = start_ms + top->interval_ms - clock_ms();
        if (left <= 0) break;
        if (terminal_wait((int)left + 1)) read_keys(top);
        const bool resumed = raw_mode_resumed();
        if (raw_mode_resized() || resumed) status = draw(top, err);
    }
    return status;
}

static enum reel_status run_screen(struct top *top, struct reel_error *err) {
    /* An address that is wrong is said before the screen is taken. */
    top->client.stop = interrupt_pending;
    enum reel_status status = read_next(top, err);
    if (status != REEL_OK) return status;
    raw_mode_whole_screen();
    if (!raw_mode_enter()) return err_set(err, REEL_E_IO, "the terminal cannot be set");
    top->client.stop = is_wanted;
    double start = clock_ms();
    while (status == REEL_OK && !top->quit && !interrupt_pending()) {
        status = show(top, start, err);
        if (status != REEL_OK || top->quit || interrupt_pending()) break;
        struct reel_error why = { 0 };
        const enum reel_status read = read_next(top, &why);
        if (read != REEL_E_CANCELLED) top->trouble = why; /* a key: show() reads it */
        start = clock_ms();
    }
    raw_mode_leave();
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum reel_status check_terminal(const struct cli_args *args, bool *screen,
                                       struct reel_error *err) {
    const bool json = strcmp(cli_text(args, "output", "table"), "json") == 0;
    *screen = !json && !cli_has(args, "once");
    if (!*screen || (terminal_is(stdin) && terminal_is(stdout))) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "there is no terminal to draw on: --once prints one view, --output json a line "
                   "for each interval");
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct top top = { .args = args, .interval_ms = 1e3 * cli_real(args, "interval", 1) };
    bool screen = false;
    top.client.ca = cli_text(args, "ca-file", NULL);
    enum reel_status status = check_terminal(args, &screen, err);
    if (status == REEL_OK)
        status = read_url(&top, args->n_arguments ? args->arguments[0] : DEFAULT_URL, err);
    if (status == REEL_OK) status = read_key(&top, err);
    if (status == REEL_OK)
        status = mem_zeroed(&top.readings, WINDOW + 1, sizeof *top.readings, "readings", err);
    if (status == REEL_OK) status = http_get_open(&top.client, err);
    interrupt_install();
    if (status == REEL_OK)
        status = screen ? run_screen(&top, err) : run_lines(&top, cli_has(args, "once"), err);
    http_get_close(&top.client);
    mem_free(top.readings);
    return status;
}

const struct cli_command cmd_top = {
    .name = "top",
    .others = "watch stats monitor",
    .arguments = "[URL]",
    .least_arguments = 0,
    .most_arguments = 1,
    .summary = "watch a running server: speed, requests, memory, each model",
    .description =
        "Asks /metrics, /health and /v1/models of a reel serve each second and shows: tokens made "
        "a second, requests that run and wait, memory, the GPU's power and tokens a joule where "
        "the server reports them; and for each model its speed, busy sessions of how many, the "
        "time to the first token (median and 99th percentile, interpolated in the server's "
        "buckets), the share of prompt tokens that a session held already, and the share of KV "
        "cache in use. What is counted by requests is of the last 60 intervals. q quits.\n\n"
        "URL is http://HOST:PORT or https://HOST:PORT, default " DEFAULT_URL
        ". What reel top asks is in the server's access log and in its count of connections, from "
        "which reel top leaves itself out.\n\n"
        "With --output json, what is not known is null, rates are over interval_s seconds, times "
        "to the first token and shares over window_s, or since the server's start where that is "
        "null.",
    .groups = { &group },
    .run = run,
};
