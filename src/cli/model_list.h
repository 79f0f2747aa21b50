/* Which models are on this machine: those that reel pulled, and those of Hugging Face's programs.
 */
#ifndef REEL_CLI_MODEL_LIST_H
#define REEL_CLI_MODEL_LIST_H

#include "cli/hub_name.h"

#include "base/error.h"

struct model_entry {
    char *name; /* as every command takes it: OWNER/NAME or OWNER/NAME:WHAT */
    char *path; /* the folder, or the .gguf file */
    bool gguf;
    char label[HUB_MAX_LABEL]; /* the quantisation; empty for safetensors */
    bool hugging_face;         /* in that cache, which reel only reads */
    int n_files;
    int64_t n_bytes;
    int64_t changed; /* seconds since 1970 of the newest file */
};

struct model_list {
    struct model_entry *list; /* [n] sorted by name, reel's own first */
    int n, cap;
};

enum reel_status model_list_read(struct model_list *all, struct reel_error *err);
void model_list_release(struct model_list *all);

#endif
