#include "support/eagle3_head.h"

#include "kernels/synthetic.h"
#include "model/synthetic.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 1, MOST = 15, FILL = 1 << 16 };

struct part {
    const char *name;
    int rows, columns; /* rows 0: a norm's gains */
};

static int list_tensors(const struct eagle3_head *h, struct part out[MOST]) {
    const struct model_config *c = h->model;
    const int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, both = 2 * c->hidden;
    const struct part all[] = {
        { "fc.weight", c->hidden, 3 * c->hidden },
        { "midlayer.hidden_norm.weight", 0, c->hidden },
        { "midlayer.input_layernorm.weight", 0, c->hidden },
        { "midlayer.post_attention_layernorm.weight", 0, c->hidden },
        { "midlayer.self_attn.q_proj.weight", q, both },
        { "midlayer.self_attn.k_proj.weight", kv, both },
        { "midlayer.self_attn.v_proj.weight", kv, both },
        { "midlayer.self_attn.o_proj.weight", c->hidden, q },
        { "midlayer.mlp.gate_proj.weight", c->intermediate, c->hidden },
        { "midlayer.mlp.up_proj.weight", c->intermediate, c->hidden },
        { "midlayer.mlp.down_proj.weight", c->hidden, c->intermediate },
        { "norm.weight", 0, c->hidden },
        { "lm_head.weight", h->n_ids, c->hidden },
        { "embed_tokens.weight", c->vocab, c->hidden },
    };
    const int n = (int)(sizeof all / sizeof *all) - !h->embedding;
    memcpy(out, all, (size_t)n * sizeof *all);
    return n;
}

static uint64_t elements(const struct part *t) {
    return (uint64_t)(t->rows ? t->rows : 1) * (uint64_t)t->columns;
}

/* Matrices keep the size of what they multiply, about. */
static struct synthetic_tensor filled(const struct part *t) {
    struct synthetic_tensor s = { .offset = t->rows ? 0 : 1, .scale = SYNTHETIC_GAIN_SCALE };
    snprintf(s.name, sizeof s.name, "%s", t->name);
    if (t->rows) s.scale = (float)(0.75 / sqrt((double)t->columns) / SYNTHETIC_DEVIATION);
    return s;
}

static void write_header(const struct eagle3_head *h, FILE *file) {
    struct part all[MOST];
    const int n = list_tensors(h, all);
    char *text = NULL;
    size_t size = 0;
    uint64_t at = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return;
    for (int i = 0; i < n; i++) {
        const uint64_t end = at + 2 * elements(&all[i]);
        fprintf(out, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[", i ? ',' : '{', all[i].name);
        if (all[i].rows) fprintf(out, "%d,", all[i].rows);
        fprintf(out, "%d],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", all[i].columns, at, end);
        at = end;
    }
    fprintf(out,
            ",\"d2t\":{\"dtype\":\"I64\",\"shape\":[%d],\"data_offsets\":[%" PRIu64 ",%" PRIu64
            "]}}",
            h->n_ids, at, at + 8 * (uint64_t)h->n_ids);
    while (ftell(out) % 8)
        fputc(' ', out);
    if (fclose(out) == 0) {
        const uint64_t length = size;
        fwrite(&length, sizeof length, 1, file);
        fwrite(text, 1, size, file);
    }
    free(text);
}

static void write_tensors(const struct eagle3_head *h, FILE *file) {
    static uint16_t some[FILL];
    struct part all[MOST];
    const int n = list_tensors(h, all);
    for (int i = 0; i < n; i++) {
        const struct synthetic_tensor t = filled(&all[i]);
        const uint64_t count = elements(&all[i]);
        for (uint64_t at = 0; at < count; at += FILL) {
            const size_t now = count - at < FILL ? (size_t)(count - at) : FILL;
            synthetic_fill(&t, SEED, at, now, some);
            fwrite(some, sizeof *some, now, file);
        }
    }
    for (int i = 0; i < h->n_ids; i++) {
        const int64_t offset = h->ids ? h->ids[i] - i : 0;
        fwrite(&offset, sizeof offset, 1, file);
    }
}

static FILE *open_in(const char *folder, const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "wb");
}

static bool close_good(FILE *file) {
    const bool bad = ferror(file);
    return fclose(file) == 0 && !bad;
}

bool eagle3_head_write(const char *folder, const struct eagle3_head *h) {
    const struct model_config *c = h->model;
    FILE *file = open_in(folder, "config.json");
    if (!file) return false;
    fprintf(file,
            "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\",\n"
            " \"hidden_size\": %d, \"num_hidden_layers\": 1, \"num_attention_heads\": %d,\n"
            " \"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d,\n"
            " \"vocab_size\": %d, \"draft_vocab_size\": %d, \"tie_word_embeddings\": false,\n"
            " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, \"max_position_embeddings\": 4096}\n",
            c->hidden, c->n_heads, c->n_kv_heads, c->head_dim, c->intermediate, c->vocab, h->n_ids);
    if (!close_good(file)) return false;
    file = open_in(folder, "model.safetensors");
    if (!file) return false;
    write_header(h, file);
    write_tensors(h, file);
    return close_good(file);
}

void eagle3_head_remove(const char *folder) {
    static const char *const names[] = { "config.json", "model.safetensors" };
    char path[300];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}
