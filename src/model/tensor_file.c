#include "model/tensor_file.h"

#include "base/memory.h"
#include "model/quant_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_name(const void *key, const void *element) {
    return strcmp(key, ((const struct tensor *)element)->name);
}

static int compare_ignored_name(const void *key, const void *element) {
    return strcmp(key, ((const struct tensor_ignored *)element)->name);
}

const struct tensor *tensor_find(const struct tensor_file *file, const char *name) {
    if (file->n_tensors == 0) return NULL;
    return bsearch(name, file->tensors, (size_t)file->n_tensors, sizeof *file->tensors,
                   compare_name);
}

const struct tensor_ignored *tensor_find_ignored(const struct tensor_file *file, const char *name) {
    if (file->n_ignored == 0) return NULL;
    return bsearch(name, file->ignored, (size_t)file->n_ignored, sizeof *file->ignored,
                   compare_ignored_name);
}

const char *tensor_file_path(const struct tensor_file *file, const struct tensor *tensor) {
    return file->map_names[tensor->file];
}

const char *tensor_shape_text(int rank, const int64_t *shape, char text[96]) {
    int n = snprintf(text, 96, "[");
    for (int i = 0; i < rank; i++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + n, 96 - (size_t)n, "]");
    return text;
}

static enum reel_status refuse_missing(const struct tensor_file *file, const char *name,
                                       struct reel_error *err) {
    const char *where = file->n_maps ? file->map_names[0] : "no file";
    const struct tensor_ignored *ignored = tensor_find_ignored(file, name);
    if (ignored)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: tensor \"%s\" has %s, which is not supported",
                       where, name, ignored->what);
    return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is missing%s", where, name,
                   file->n_maps > 1 ? " from all files" : "");
}

enum reel_status tensor_require(const struct tensor_file *file, const char *name, int rank,
                                const int64_t *shape, const struct tensor **out,
                                struct reel_error *err) {
    const struct tensor *t = tensor_find(file, name);
    char found[96], wanted[96];
    *out = t;
    if (!t) return refuse_missing(file, name, err);
    if (t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" has shape %s, expected %s",
                   tensor_file_path(file, t), name, tensor_shape_text(t->rank, t->shape, found),
                   tensor_shape_text(rank, shape, wanted));
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int compare_ignored(const void *a, const void *b) {
    return strcmp(((const struct tensor_ignored *)a)->name,
                  ((const struct tensor_ignored *)b)->name);
}

enum reel_status tensor_file_sort(struct tensor_file *file, struct reel_error *err) {
    if (file->n_ignored)
        qsort(file->ignored, (size_t)file->n_ignored, sizeof *file->ignored, compare_ignored);
    for (int i = 0; i < file->n_ignored; i++) {
        const char *name = file->ignored[i].name;
        if (i && strcmp(name, file->ignored[i - 1].name) == 0)
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is there twice",
                           file->map_names[0], name);
    }
    if (file->n_tensors == 0) return REEL_OK;
    qsort(file->tensors, (size_t)file->n_tensors, sizeof *file->tensors, compare_tensors);
    for (int i = 1; i < file->n_tensors; i++) {
        const struct tensor *a = &file->tensors[i - 1], *b = &file->tensors[i];
        if (strcmp(a->name, b->name) == 0)
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is also in %s",
                           tensor_file_path(file, b), b->name, tensor_file_path(file, a));
    }
    for (int i = 0; i < file->n_ignored; i++) {
        const struct tensor *t = tensor_find(file, file->ignored[i].name);
        if (t)
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is there twice",
                           tensor_file_path(file, t), t->name);
    }
    return REEL_OK;
}

void tensor_file_release(struct tensor_file *file) {
    if (!file) return;
    for (int i = 0; i < file->n_maps; i++) {
        file_map_close(&file->maps[i]);
        mem_free(file->map_names[i]);
    }
    mem_free(file->maps);
    mem_free(file->map_names);
    mem_free(file->tensors);
    mem_free(file->ignored);
    quant_config_free(file->quant);
    mem_free(file->names);
    *file = (struct tensor_file){ 0 };
}
