/* Repositories on a Hugging Face style hub, copied into the local model cache. */
#ifndef REEL_CLI_HUB_H
#define REEL_CLI_HUB_H

#include "cli/hub_listing.h"
#include "cli/hub_token.h"

#define HUB_DEFAULT_MIRROR "https://huggingface.co"

struct hub_pull {
    const char *repo;              /* "owner/name" */
    const char *const *what;       /* [n_what] quantisations, files or sub-folders of it to take */
    int n_what;                    /* 0: its safetensors, or its only GGUF file */
    const char *revision;          /* branch, tag or commit; NULL: "main" */
    const char *mirror;            /* base address; NULL: HUB_DEFAULT_MIRROR */
    const struct hub_token *token; /* or NULL */
    const char *cache_dir;         /* models go to cache_dir/models/owner/name */
    bool offline;                  /* only check what is there */
    reel_progress_fn progress;
    void *progress_user;
    /* Asked which of several models to take; answers its index, or -1 to take none. `usual` is the
     * one to offer first, or -1. NULL: several are refused with a list of them. */
    int (*choose)(void *user, const char *repo, const struct hub_choices *all, int usual);
    /* Told what is going to be fetched; or NULL. */
    void (*note)(void *user, const char *repo, int n_files, int64_t n_bytes);
    void *user;
    int retry_ms, stall_s, at_once; /* as in struct download_client */
};

struct hub_pulled {
    char *folder; /* the model's place */
    char *name;   /* what names it from now on: "owner/name" or "owner/name:Q4_K_M" */
};

/* Asks the hub for the list of files with sizes and hashes, takes what reel reads of the wanted
 * model (config, tokenizer and safetensors; or a GGUF file), judges it by its config or header
 * before the weights are fetched, verifies each file's hash, and lets the folder change only when
 * all is there. Models of the repository that were pulled before stay. An interrupted pull goes on
 * where it stopped. Nothing that is downloaded is ever executed. */
enum reel_status hub_pull(const struct hub_pull *pull, struct hub_pulled *out,
                          struct reel_error *err);
void hub_pulled_release(struct hub_pulled *pulled);

#endif
