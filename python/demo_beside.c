/* The demo models of the command in a wheel: files beside it, as Python reads them too, instead of
 * bytes inside it. In place of what tools/embed_demo.sh makes. */
#include "base/buffer.h"
#include "base/file_map.h"
#include "cli/demo_model.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILES 6

static const struct demo {
    const char *name;
    const char *places[2]; /* folders, from that of the program; the first that is there counts */
} demos[] = {
    { "demo", { "../models/demo" } },
    { "demo-speech", { "../models/speech", "../../reel_demo_speech" } },
};
#define N_DEMOS (sizeof demos / sizeof *demos)

static const char *const names[MAX_FILES] = { "model.safetensors",      "config.json",
                                              "generation_config.json", "tokenizer.json",
                                              "tokenizer_config.json",  "golden.json" };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct reel_memory_file files[MAX_FILES];
    int n;
} opened[N_DEMOS];

/* The folder of the program itself, with a slash at its end. */
static bool own_folder(char *path, size_t size) {
    const ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    slash[1] = '\0';
    return true;
}

/* Maps the files, which stay mapped as long as the program runs; without weights there are none. */
static int map_files(struct reel_memory_file *files, const char *base, const char *folder) {
    int n = 0;
    for (int i = 0; i < MAX_FILES; i++) {
        struct buffer path = { 0 };
        struct file_map map = { 0 };
        bool good = buffer_printf(&path, NULL, "%s%s/%s", base, folder, names[i]) == REEL_OK &&
                    file_map_open(&map, path.bytes, NULL) == REEL_OK;
        buffer_release(&path);
        if (good) files[n++] = (struct reel_memory_file){ names[i], map.bytes, map.size };
        if (!good && i == 0) return 0;
    }
    return n;
}

const struct reel_memory_file *demo_model_files(const char *name, int *n_files) {
    char base[4096];
    *n_files = 0;
    for (size_t i = 0; i < N_DEMOS; i++) {
        if (strcmp(demos[i].name, name) != 0) continue;
        pthread_mutex_lock(&lock);
        for (int j = 0; j < 2 && opened[i].n == 0 && demos[i].places[j]; j++)
            if (own_folder(base, sizeof base))
                opened[i].n = map_files(opened[i].files, base, demos[i].places[j]);
        *n_files = opened[i].n;
        pthread_mutex_unlock(&lock);
        return *n_files ? opened[i].files : NULL;
    }
    return NULL;
}
