/* A safetensors file as two files and an index, as folders of larger models are published: its
 * tensors are dealt to both in turn. */
#ifndef REEL_TESTS_SHARDS_H
#define REEL_TESTS_SHARDS_H

#include "support/model_bytes.h"

struct shards {
    struct bytes files[2];
    char *index; /* text of model.safetensors.index.json */
};

extern const char *const shard_names[2];

/* Ends the running cmocka test when the file cannot be read. */
void shards_deal(struct shards *shards, const char *path);
void shards_release(struct shards *shards);

#endif
