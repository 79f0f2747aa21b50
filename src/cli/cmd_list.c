/* reel list: the models on this machine. */
#include "base/json.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/hub_listing.h"
#include "cli/model_list.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct cli_option options[] = {
    { .name = "json", .kind = CLI_FLAG, .help = "print one JSON array" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static const char *cache_of(const struct model_entry *e) {
    return e->hugging_face ? "huggingface" : "reel";
}

static void time_text(const struct model_entry *e, const char *format, bool local, char *text,
                      size_t n) {
    struct tm parts = { 0 };
    time_t t = (time_t)e->changed;
    if (!(local ? localtime_r(&t, &parts) : gmtime_r(&t, &parts)) ||
        strftime(text, n, format, &parts) == 0)
        text[0] = '\0';
}

static void print_table(const struct model_list *all) {
    int width = 4, label = 7;
    for (int i = 0; i < all->n; i++) {
        int n = (int)strlen(all->list[i].name), m = (int)strlen(all->list[i].label);
        if (n > width) width = n;
        if (m > label) label = m;
    }
    if (label < (int)strlen("safetensors")) label = (int)strlen("safetensors");
    printf("%-*s  %-*s  %5s  %9s  %-16s  %s\n", width, "NAME", label, "WEIGHTS", "FILES", "SIZE",
           "FETCHED", "CACHE");
    for (int i = 0; i < all->n; i++) {
        const struct model_entry *e = &all->list[i];
        char size[HUB_SIZE_TEXT], when[40];
        hub_size_text(e->n_bytes, size);
        time_text(e, "%Y-%m-%d %H:%M", true, when, sizeof when);
        printf("%-*s  %-*s  %5d  %9s  %-16s  %s\n", width, e->name, label,
               e->gguf ? e->label : "safetensors", e->n_files, size, when, cache_of(e));
    }
}

static json_t *entry_json(const struct model_entry *e) {
    char when[40];
    time_text(e, "%Y-%m-%dT%H:%M:%SZ", false, when, sizeof when);
    return json_pack("{s:s, s:s, s:s*, s:i, s:I, s:s, s:s, s:s}", "name", e->name, "format",
                     e->gguf ? "gguf" : "safetensors", "quantisation", e->gguf ? e->label : NULL,
                     "files", e->n_files, "bytes", (json_int_t)e->n_bytes, "changed", when, "cache",
                     cache_of(e), "path", e->path);
}

static enum reel_status print_json(const struct model_list *all, struct reel_error *err) {
    json_t *list = json_array();
    char *text = NULL;
    bool good = list != NULL;
    for (int i = 0; good && i < all->n; i++)
        good = json_array_append_new(list, entry_json(&all->list[i])) == 0;
    enum reel_status status =
        good ? json_write(&text, list, "a list of models", err) : err_memory(err, "a list", 0);
    if (status == REEL_OK) puts(text);
    mem_free(text);
    json_decref(list);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct model_list all = { 0 };
    enum reel_status status = model_list_read(&all, err);
    if (status == REEL_OK && cli_has(args, "json"))
        status = print_json(&all, err);
    else if (status == REEL_OK && all.n > 0)
        print_table(&all);
    else if (status == REEL_OK)
        fputs("no models yet: reel pull OWNER/NAME fetches one from the Hugging Face hub\n",
              stderr);
    model_list_release(&all);
    return status;
}

const struct cli_command cmd_list = {
    .name = "list",
    .arguments = "",
    .summary = "the models on this machine, by the names that commands take",
    .description = "Lists what reel pull fetched, and what other programs put into the Hugging "
                   "Face cache, from which reel reads. A GGUF file is a line of its own, with its "
                   "quantisation.",
    .groups = { &group },
    .run = run,
};
