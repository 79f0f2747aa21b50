#include "cli/fetch_model.h"

#include "base/memory.h"
#include "cli/folders.h"
#include "cli/progress.h"
#include "cli/raw_mode.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool fetch_can_ask(void) { return terminal_is(stdin) && terminal_is(stderr); }

/* Asks, and reads one line without its end; false at the end of the input and when Ctrl-C came. */
static bool read_line(const char *question, char *line, size_t n) {
    raw_mode_pause(); /* before an answer can be typed */
    fputs(question, stderr);
    fflush(stderr);
    bool came = interrupt_or_input(stdin) && fgets(line, (int)n, stdin);
    raw_mode_go_on();
    if (!came) {
        fputc('\n', stderr);
        return false;
    }
    line[strcspn(line, "\r\n")] = '\0';
    return true;
}

bool fetch_ask(const char *question, bool usual) {
    char line[100], asked[1000];
    interrupt_install();
    snprintf(asked, sizeof asked, "%.980s [%s] ", question, usual ? "Y/n" : "y/N");
    for (;;) {
        if (!read_line(asked, line, sizeof line)) return false;
        if (!line[0]) return usual;
        if (strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0) return true;
        if (strcasecmp(line, "n") == 0 || strcasecmp(line, "no") == 0) return false;
    }
}

/* ---- which of several ------------------------------------------------------------------------ */

static void show_choices(const char *repo, const struct hub_choices *all) {
    int width = 0;
    for (int i = 0; i < all->n; i++)
        if ((int)strlen(all->list[i].label) > width) width = (int)strlen(all->list[i].label);
    fprintf(stderr, "%s has %d models:\n", repo, all->n);
    for (int i = 0; i < all->n; i++) {
        const struct hub_choice *c = &all->list[i];
        char size[HUB_SIZE_TEXT];
        hub_size_text(c->n_bytes, size);
        fprintf(stderr, "%4d  %-*s %9s  %s\n", i + 1, width, c->label, size,
                c->gguf ? c->path : "safetensors");
    }
}

static int by_number(const char *line, int n) {
    char *end;
    long number = strtol(line, &end, 10);
    return *end == '\0' && end != line && number >= 1 && number <= n ? (int)number - 1 : -1;
}

static int by_name(const struct hub_choices *all, const char *line) {
    for (int i = 0; i < all->n; i++)
        if (strcasecmp(all->list[i].label, line) == 0 || strcmp(all->list[i].path, line) == 0)
            return i;
    return -1;
}

static int choose(void *user, const char *repo, const struct hub_choices *all, int usual) {
    char line[300], asked[300] = "Which one, by number or name? ";
    progress_end(user);
    show_choices(repo, all);
    if (usual >= 0)
        snprintf(asked, sizeof asked, "Which one, by number or name? [%.200s] ",
                 all->list[usual].label);
    for (;;) {
        if (!read_line(asked, line, sizeof line)) return -1;
        if (!line[0] && usual >= 0) return usual;
        int i = by_number(line, all->n);
        if (i < 0) i = by_name(all, line);
        if (i >= 0) return i;
    }
}

static void note(void *user, const char *repo, int n_files, int64_t n_bytes) {
    char size[HUB_SIZE_TEXT];
    hub_size_text(n_bytes, size);
    progress_end(user);
    fprintf(stderr, "%s: %d file%s to fetch, %s\n", repo, n_files, n_files == 1 ? "" : "s", size);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What Ctrl-C leaves is worth saying: nothing is lost. */
static enum reel_status interrupted(const struct fetch *fetch, struct reel_error *err) {
    struct reel_error why = { 0 };
    if (err) why = *err;
    interrupt_take();
    return err_set(err, REEL_E_CANCELLED,
                   "%s: %s; what has arrived is kept, and the same command goes on from there",
                   fetch->repo, why.text[0] ? why.text : "cancelled");
}

enum reel_status fetch_model(const struct fetch *fetch, struct hub_pulled *out,
                             struct reel_error *err) {
    struct progress progress;
    struct hub_token token = { 0 };
    char *cache = NULL;
    const char *endpoint = getenv("HF_ENDPOINT");
    enum reel_status status = REEL_OK;
    *out = (struct hub_pulled){ 0 };
    if (!fetch->cache) status = folder_of_cache(&cache, err);
    if (status == REEL_OK && !fetch->offline) status = hub_token_find(&token, err);
    struct hub_pull pull = { .repo = fetch->repo,
                             .what = fetch->what,
                             .n_what = fetch->n_what,
                             .revision = fetch->revision,
                             .mirror = fetch->mirror             ? fetch->mirror
                                       : endpoint && endpoint[0] ? endpoint
                                                                 : NULL,
                             .token = &token,
                             .cache_dir = fetch->cache ? fetch->cache : cache,
                             .offline = fetch->offline,
                             .progress = progress_update,
                             .progress_user = &progress,
                             .choose = fetch_can_ask() ? choose : NULL,
                             .note = terminal_is(stderr) ? note : NULL,
                             .user = &progress };
    interrupt_install();
    progress_start(&progress);
    if (status == REEL_OK) status = hub_pull(&pull, out, err);
    progress_end(&progress);
    if (status == REEL_E_CANCELLED && interrupt_pending()) status = interrupted(fetch, err);
    hub_token_release(&token);
    mem_free(cache);
    return status;
}
