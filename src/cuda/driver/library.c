/* RTLD_NODELETE is a GNU extension that every libc reel runs on has. */
#define _GNU_SOURCE
#include "cuda/driver/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *open_at(const char *path) {
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* The loader's words for a file that is not there say nothing; for one that is there they matter.
 */
static void keep_reason(char why[LIBRARY_WHY], const char *path, bool *kept_broken) {
    const char *text = dlerror();
    bool broken = strchr(path, '/') && access(path, F_OK) == 0;
    if (why[0] && (*kept_broken || !broken)) return;
    snprintf(why, LIBRARY_WHY, "%.*s", LIBRARY_WHY - 1, text ? text : path);
    *kept_broken = broken;
}

void *library_open(const char *folder, const char *const *names, char why[LIBRARY_WHY]) {
    char path[PATH_MAX];
    bool kept_broken = false;
    why[0] = '\0';
    for (int i = 0; names[i]; i++) {
        if (folder && names[i][0] == '/') continue;
        int n = snprintf(path, sizeof path, "%s%s%s", folder ? folder : "", folder ? "/" : "",
                         names[i]);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        void *library = open_at(path);
        if (library) return library;
        keep_reason(why, path, &kept_broken);
    }
    return NULL;
}

const char *library_bind(void *library, void *table, const struct library_symbol *symbols, int n) {
    for (int i = 0; i < n; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) return symbols[i].name;
        memcpy((char *)table + symbols[i].offset, &symbol, sizeof symbol);
    }
    return NULL;
}

void library_path(const void *function, char *path, size_t size) {
    Dl_info info;
    bool known = dladdr(function, &info) != 0 && info.dli_fname;
    snprintf(path, size, "%s", known ? info.dli_fname : "");
}

bool library_is_same(const void *address, const void *other) {
    Dl_info info, others;
    return dladdr(address, &info) && dladdr(other, &others) && info.dli_fbase == others.dli_fbase;
}

void library_close(void *library) {
    if (library) dlclose(library);
}
