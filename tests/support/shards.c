#include "support/shards.h"

#include "base/file_map.h"
#include "base/json.h"
#include "reel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

const char *const shard_names[2] = { "model-00001-of-00002.safetensors",
                                     "model-00002-of-00002.safetensors" };

static void deal_to(struct bytes *file, int part, const json_t *header,
                    const unsigned char *payload, json_t *where) {
    struct bytes data = { 0 };
    json_t *mine = json_object(), *t;
    const char *key;
    char *text = NULL;
    int turn = 0;
    json_object_foreach((json_t *)(uintptr_t)header, key, t) {
        const json_t *at = json_object_get(t, "data_offsets");
        size_t from = (size_t)json_integer_value(json_array_get(at, 0));
        size_t end = (size_t)json_integer_value(json_array_get(at, 1));
        if (turn++ % 2 != part) continue;
        json_object_set_new(where, key, json_string(shard_names[part]));
        json_object_set_new(mine, key,
                            json_pack("{s:O, s:O, s:[I, I]}", "dtype", json_object_get(t, "dtype"),
                                      "shape", json_object_get(t, "shape"), "data_offsets",
                                      (json_int_t)data.n, (json_int_t)(data.n + end - from)));
        bytes_add(&data, payload + from, end - from);
    }
    assert_int_equal(json_write(&text, mine, "a header", NULL), REEL_OK);
    bytes_safetensors(file, text, 0);
    bytes_add(file, data.data, data.n);
    bytes_release(&data);
    json_decref(mine);
    reel_free(text);
}

void shards_deal(struct shards *shards, const char *path) {
    struct file_map map = { 0 };
    json_t *header = NULL, *where = json_object(), *index = json_object();
    *shards = (struct shards){ 0 };
    assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | map.bytes[i];
    assert_int_equal(json_read(&header, path, map.bytes + 8, (size_t)n, NULL), REEL_OK);
    json_object_del(header, "__metadata__");
    for (int part = 0; part < 2; part++)
        deal_to(&shards->files[part], part, header, map.bytes + 8 + n, where);
    json_object_set_new(index, "metadata", json_object());
    json_object_set(index, "weight_map", where);
    assert_int_equal(json_write(&shards->index, index, "an index", NULL), REEL_OK);
    json_decref(where);
    json_decref(index);
    json_decref(header);
    file_map_close(&map);
}

void shards_release(struct shards *shards) {
    for (int part = 0; part < 2; part++)
        bytes_release(&shards->files[part]);
    reel_free(shards->index);
}
