/* Where a model's files come from: a folder, a single .gguf file, or memory. Names are plain file
 * names, but for "1_Pooling/config.json"; any other with a slash or a leading dot is refused, so a
 * hostile index cannot leave the folder.
 */
#ifndef REEL_MODEL_MODEL_SOURCE_H
#define REEL_MODEL_MODEL_SOURCE_H

#include "base/file_map.h"

struct model_source {
    char *path; /* the folder or file, or the name given for memory; for messages */
    bool is_gguf;
    const struct reel_memory_file *files; /* borrowed; NULL for disk */
    int n_files;
};

/* Decides what path is. REEL_E_NOT_FOUND when it does not exist; REEL_E_FORMAT when it is a file
 * that does not start with GGUF's magic. */
enum reel_status model_source_open(struct model_source *source, const char *path,
                                   struct reel_error *err);
enum reel_status model_source_open_memory(struct model_source *source, const char *name,
                                          const struct reel_memory_file *files, int n_files,
                                          struct reel_error *err);
void model_source_release(struct model_source *source);

bool model_source_has(const struct model_source *source, const char *name);

/* Maps one file; one that is read whole (tokenizer, config, template, index) is refused with
 * REEL_E_LIMIT where it is longer than any such file can sensibly be; `shown` (caller frees)
 * receives the path for messages, and may be NULL. For a GGUF source the only name is NULL: the
 * file itself. */
enum reel_status model_source_map(const struct model_source *source, const char *name,
                                  struct file_map *map, char **shown, struct reel_error *err);

#endif
