#include "cli/known_words.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/demo_model.h"
#include "cli/model_list.h"
#include "cli/options.h"

#include <dirent.h>
#include <string.h>

#define MOST_WORDS 4096
#define GPU_FOLDER "/proc/driver/nvidia/gpus"

void word_list_release(struct word_list *list) {
    for (int i = 0; i < list->n; i++)
        mem_free(list->words[i]);
    mem_free(list->words);
    *list = (struct word_list){ 0 };
}

/* Takes over `word`, also when it fails. */
static enum reel_status add(struct word_list *list, char *word, struct reel_error *err) {
    if (list->n % 64 == 0 && list->n < MOST_WORDS) {
        const size_t bytes = ((size_t)list->n + 65) * sizeof *list->words;
        char **grown = mem_resize(list->words, bytes);
        if (!grown) {
            mem_free(word);
            return err_memory(err, "a list of names", bytes);
        }
        list->words = grown;
    }
    if (list->n == MOST_WORDS) { /* more than anyone looks through */
        mem_free(word);
        return REEL_OK;
    }
    list->words[list->n++] = word;
    list->words[list->n] = NULL;
    return REEL_OK;
}

static bool holds(const struct word_list *list, const char *text) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->words[i], text) == 0) return true;
    return false;
}

static enum reel_status add_text(struct word_list *list, const char *text, struct reel_error *err) {
    char *word = NULL;
    enum reel_status status = mem_text(&word, text, strlen(text), "a name", err);
    return status == REEL_OK ? add(list, word, err) : status;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* A shell expands the words that it completes, and the names of files are anybody's. */
static bool is_plain(const char *name) {
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_.+/:")] == '\0';
}

static enum reel_status add_inside(struct word_list *list, struct reel_error *err) {
    static const char *const names[] = { "demo", "demo-speech" };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == REEL_OK; i++) {
        int n = 0;
        if (demo_model_files(names[i], &n) && n > 0) status = add_text(list, names[i], err);
    }
    return status;
}

enum reel_status known_models(struct word_list *list, struct reel_error *err) {
    struct model_list all = { 0 };
    *list = (struct word_list){ 0 };
    enum reel_status status = add_inside(list, err);
    if (status == REEL_OK && model_list_read(&all, NULL) != REEL_OK) return REEL_OK;
    for (int i = 0; i < all.n && status == REEL_OK; i++) {
        const char *name = all.list[i].name;
        if (is_plain(name) && !holds(list, name)) status = add_text(list, name, err);
    }
    model_list_release(&all);
    if (status != REEL_OK) word_list_release(list);
    return status;
}

void known_model_near(char **name, const char *typed) {
    struct word_list list = { 0 };
    const char *near = NULL;
    *name = NULL;
    if (known_models(&list, NULL) != REEL_OK) return;
    if (list.n) near = cli_nearest(typed, (const char *const *)list.words);
    for (int i = 0; i < list.n && !near && !strchr(typed, '/'); i++) { /* the owner left out */
        const char *slash = strchr(list.words[i], '/');
        if (slash && cli_nearest(typed, (const char *const[]){ slash + 1, NULL }))
            near = list.words[i];
    }
    if (near && mem_text(name, near, strlen(near), "a name", NULL) != REEL_OK) *name = NULL;
    word_list_release(&list);
}

/* ---- devices --------------------------------------------------------------------------------- */

static const char *const fixed_devices[] = { "auto", "cpu", "gpu" };
#define N_FIXED ((int)(sizeof fixed_devices / sizeof *fixed_devices))

static enum reel_status add_gpus(struct word_list *list, const char *folder,
                                 struct reel_error *err) {
    DIR *dir = opendir(folder);
    enum reel_status status = REEL_OK;
    for (const struct dirent *e; dir && status == REEL_OK && (e = readdir(dir));) {
        struct buffer word = { 0 };
        if (e->d_name[0] == '.') continue;
        status = buffer_printf(&word, err, "gpu:%d", list->n - N_FIXED);
        if (status == REEL_OK) status = add(list, buffer_detach(&word, NULL), err);
    }
    if (dir) closedir(dir);
    return status;
}

enum reel_status known_devices(struct word_list *list, const char *gpus, struct reel_error *err) {
    *list = (struct word_list){ 0 };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < N_FIXED && status == REEL_OK; i++)
        status = add_text(list, fixed_devices[i], err);
    if (status == REEL_OK) status = add_gpus(list, gpus ? gpus : GPU_FOLDER, err);
    if (status != REEL_OK) word_list_release(list);
    return status;
}
