#include "model/tokenizer_cache.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <sys/stat.h>

#define NAME_DIGITS 32 /* of the hash: enough to tell files apart; the header holds all of it */

static enum reel_status cache_path(struct buffer *path, const char *cache_dir, const char *source,
                                   struct reel_error *err) {
    return buffer_printf(path, err, "%s/tokenizer-%.*s.bin", cache_dir, NAME_DIGITS, source);
}

enum reel_status tokenizer_cache_read(struct reel_tokenizer **out, const char *cache_dir,
                                      const char *source, struct reel_error *err) {
    struct buffer path = { 0 };
    struct reel_tokenizer *tok = NULL;
    *out = NULL;
    enum reel_status status = cache_path(&path, cache_dir, source, err);
    if (status == REEL_OK) status = mem_zeroed(&tok, 1, sizeof *tok, "a tokenizer", err);
    if (status == REEL_OK && file_map_open(&tok->file, path.bytes, NULL) == REEL_OK &&
        tables_attach(tok, tok->file.bytes, tok->file.size, source)) {
        status = tables_compile(tok, path.bytes, err);
        if (status == REEL_OK) *out = tok;
        if (status == REEL_OK) tok = NULL;
        if (status != REEL_E_MEMORY) status = REEL_OK; /* not usable: made again */
    }
    tokenizer_close(tok);
    buffer_release(&path);
    return status;
}

void tokenizer_cache_write(const struct reel_tokenizer *tok, const char *cache_dir) {
    struct buffer path = { 0 };
    mkdir(cache_dir, 0777); /* may exist; if it cannot be made, writing fails below */
    if (cache_path(&path, cache_dir, tok->head.source, NULL) == REEL_OK) {
        enum reel_status ignored =
            file_write_atomic(path.bytes, tok->block, tok->block_bytes, NULL);
        (void)ignored;
    }
    buffer_release(&path);
}
