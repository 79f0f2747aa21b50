#include "model/tokenizer_regex.h"

#include "base/memory.h"
#include "model/tokenizer_regex_parts.h"

uint32_t regex_byte_character(unsigned byte) {
    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad)) return byte;
    if (byte < 0x21) return 0x100 + byte;
    return byte == 0xad ? 0x100 + 67 : 0x100 + 0x21 + (byte - 0x7f);
}

void regex_free(struct regex *re) {
    if (!re) return;
    mem_free(re->next);
    mem_free(re->above);
    mem_free(re);
}

/* From parsed parts; `text` is for the message. */
static enum reel_status finish(struct regex **out, struct regex_parts *parts, bool ok,
                               const char *name, const char *text, size_t n,
                               struct reel_error *err) {
    struct regex *re = ok ? mem_calloc(1, sizeof *re) : NULL;
    if (ok && !re) parts->no_memory = true;
    ok = re && regex_build(re, parts);
    enum reel_status status = REEL_OK;
    if (parts->no_memory)
        status = err_memory(err, "an expression's tables", sizeof *re);
    else if (!ok)
        status =
            err_set(err, REEL_E_UNSUPPORTED, "%s: the expression \"%.*s\" is not supported: %s",
                    name, (int)(n < 200 ? n : 200), text, parts->why ? parts->why : "");
    for (int i = 0; i < parts->n_sets; i++)
        set_release(&parts->sets[i]);
    mem_free(parts);
    if (status == REEL_OK)
        *out = re;
    else
        regex_free(re);
    return status;
}

enum reel_status regex_compile(struct regex **out, const char *text, size_t n, const char *name,
                               struct reel_error *err) {
    struct regex_parts *parts;
    *out = NULL;
    enum reel_status status = mem_zeroed(&parts, 1, sizeof *parts, "an expression", err);
    if (status != REEL_OK) return status;
    return finish(out, parts, regex_parse(parts, text, n), name, text, n, err);
}

enum reel_status regex_of_class(struct regex **out, unsigned class, struct reel_error *err) {
    struct regex_parts *parts;
    *out = NULL;
    enum reel_status status = mem_zeroed(&parts, 1, sizeof *parts, "an expression", err);
    if (status != REEL_OK) return status;
    bool ok = set_property(&parts->sets[0], 0, class);
    if (!ok) parts->no_memory = true;
    parts->n_sets = 1;
    parts->nodes[parts->n_nodes++] = (struct regex_node){ .kind = NODE_SET };
    return finish(out, parts, ok, "", "", 0, err);
}
