/* Repositories on a Hugging Face style hub, copied into the local model cache. */
#ifndef REEL_CLI_HUB_H
#define REEL_CLI_HUB_H

#include "base/error.h"

#define HUB_DEFAULT_MIRROR "https://huggingface.co"

struct hub_pull {
    const char *repo;      /* "owner/name" */
    const char *revision;  /* branch, tag or commit; NULL: "main" */
    const char *mirror;    /* base address; NULL: HUB_DEFAULT_MIRROR */
    const char *token;     /* access token, or NULL */
    const char *cache_dir; /* models go to cache_dir/models/owner/name */
    const char *gguf;      /* a .gguf file of the repository to take instead, or NULL */
    bool offline;          /* only check what is there */
    reel_progress_fn progress;
    void *progress_user;
};

/* Whether text has the form "owner/name" that a hub accepts. */
bool hub_is_repo(const char *text);

/* *folder (caller frees) = cache_dir/models/owner/name. */
enum reel_status hub_folder(const char *cache_dir, const char *repo, char **folder,
                            struct reel_error *err);

/* Downloads what reel reads of the repository (configs, tokenizer files, safetensors, or the one
 * GGUF file), verifies each file's hash, and makes the folder appear only when it is complete. An
 * interrupted pull goes on where it stopped. *folder (caller frees) receives the place. Nothing
 * that is downloaded is ever executed. */
enum reel_status hub_pull(const struct hub_pull *pull, char **folder, struct reel_error *err);

#endif
