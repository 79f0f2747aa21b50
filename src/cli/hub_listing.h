/* What a repository holds, as its hub tells or as the manifest of an earlier pull does, and which
 * models can be taken from it. */
#ifndef REEL_CLI_HUB_LISTING_H
#define REEL_CLI_HUB_LISTING_H

#include "base/json.h"
#include "cli/hub_name.h"

#define HUB_MANIFEST "reel-manifest.json"

/* Texts are borrowed from the listing's JSON. */
struct hub_file {
    const char *path; /* safe, hub_path_is_safe */
    int64_t n_bytes;
    const char *sha256; /* or NULL */
    const char *git_id; /* or NULL; one of the two is there */
    const char *commit; /* of which the file is */
};

struct hub_listing {
    json_t *json;
    const char *repo; /* borrowed; for messages */
    const char *commit;
    bool gated;             /* its owner decides who may read the files */
    struct hub_file *files; /* [n_files], those with a safe path, a size and a hash */
    int n_files;
    int n_entries; /* all that the repository has */
};

/* Reads an answer of the hub, or a manifest: both have the same form. A model's file whose path
 * would leave the folder is refused. `repo` is borrowed. */
enum reel_status hub_listing_read(struct hub_listing *list, const char *repo, const char *text,
                                  size_t n_bytes, struct reel_error *err);
void hub_listing_release(struct hub_listing *list);

const struct hub_file *hub_listing_find(const struct hub_listing *list, const char *path);

/* *text (caller frees) is the manifest of a folder that holds these files; those without a hash are
 * left out. */
enum reel_status hub_manifest_write(char **text, const char *commit,
                                    const struct hub_file *const *files, int n_files,
                                    struct reel_error *err);

/* One model of a repository: a folder with config.json and safetensors, or a GGUF file. */
struct hub_choice {
    bool gguf;
    const char *path; /* the file; or the folder with its '/', "" for the top one; borrowed */
    size_t n_path;    /* bytes of path that count */
    int64_t n_bytes;  /* of the weights */
    int parts;        /* above 1: a GGUF file in several parts, which reel does not read */
    char label[HUB_MAX_LABEL]; /* what stands after the ':' */
};

struct hub_choices {
    struct hub_choice *list;
    int n;
};

/* All of them, the safetensors of the top folder first, then by path. */
enum reel_status hub_choices_find(struct hub_choices *all, const struct hub_listing *list,
                                  struct reel_error *err);
void hub_choices_release(struct hub_choices *all);

/* The one that `what` means. */
enum reel_status hub_choices_pick(const struct hub_choices *all, const struct hub_listing *list,
                                  const char *what, const struct hub_choice **choice,
                                  struct reel_error *err);

/* What to offer first: Q4_K_M, or what is nearest to it; -1 where nothing is near. */
int hub_choices_usual(const struct hub_choices *all);

/* REEL_E_ARGUMENT with the list of all and the command that takes one. */
enum reel_status hub_choices_ask(const struct hub_choices *all, const struct hub_listing *list,
                                 struct reel_error *err);

/* Why nothing of the repository can be run: names what it has instead. */
enum reel_status hub_listing_no_model(const struct hub_listing *list, struct reel_error *err);

/* "1.2 GB" */
#define HUB_SIZE_TEXT 24
void hub_size_text(int64_t n_bytes, char text[HUB_SIZE_TEXT]);

/* Whether reel would read a file of this name. */
bool hub_is_of_a_model(const char *path);

/* Files that reel reads beside weights, of a folder with safetensors; NULL ends the list. The first
 * says what the model is. */
extern const char *const hub_small_files[];
#define HUB_INDEX   "model.safetensors.index.json"
#define HUB_WEIGHTS "model.safetensors"

#endif
