/* Whether ids are the same with drafts as without, for every kind of speculation that a model has
 * and every number of drafts: stories in the model's words, as many ids as are wanted.
 *
 *   speculated_ids MODEL [KEY=VALUE ...]
 *
 *   device=D      as --device of reel; default gpu     options=TEXT  gpu_options of the models
 *   cache=FOLDER  of compiled kernels                  text=FILE     README.md: prompts are cut of
 * it greedy=N      4000: ids made greedily              drawn=N       2000: at temperature 0.8,
 * top-k 50 and top-p 0.9 most=M,...    0,1,2,3,4,5,6,7: drafts of a pass, 0: all that there may be
 *   draft=MODEL   guesses, too                         head=1        an EAGLE-3 head of synthetic
 *                                                                    weights does; some of its
 * guesses are right by chance
 *
 * Prints CSV lines: kind,most,ids,n,passes,drafted,accepted,same. The exit status is 0 only when
 * all ids were the same. */
#include "arguments.h"
#include "base/file_map.h"
#include "runtime/session.h"
#include "support/eagle3_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 40, HEAD_IDS = 16 };

static struct {
    struct reel_model_options options;
    struct reel_model *plain, *with_head, *draft;
    int32_t *text; /* the ids that prompts are cut of */
    size_t n_text;
    int story; /* ids of a story at most */
    bool differs;
} b;

struct made {
    int32_t *ids;
    int n;
    struct reel_generation_result sum;
};

static void check(enum reel_status status, const struct reel_error *err) {
    if (status == REEL_OK) return;
    fprintf(stderr, "speculated_ids: %s\n", err->text);
    exit(1);
}

static bool keep(void *user, const struct reel_token *token) {
    struct made *m = user;
    m->ids[m->n++] = token->id;
    return true;
}

static void read_text(const char *path) {
    struct reel_error err = { 0 };
    struct file_map map;
    check(file_map_open(&map, path, &err), &err);
    b.text = malloc((map.size + 1) * sizeof *b.text); /* an id has a byte and more */
    if (!b.text) exit(1);
    check(reel_encode(reel_model_tokenizer(b.plain), (const char *)map.bytes, map.size, 0, b.text,
                      map.size, &b.n_text, &err),
          &err);
    file_map_close(&map);
}

/* One story behind another prompt each, until n ids are made. */
static struct made make(const struct reel_model *model, enum reel_speculation kind, int most,
                        const struct reel_sampling *sampling, int n) {
    struct reel_error err = { 0 };
    struct made m = { .ids = malloc((size_t)n * sizeof *m.ids) };
    struct reel_session *s = NULL;
    const struct reel_session_options o = { .size = sizeof o,
                                            .max_context = PROMPT + b.story,
                                            .speculation = kind,
                                            .draft_model =
                                                kind == REEL_SPECULATION_DRAFT ? b.draft : NULL };
    if (!m.ids) exit(1);
    check(reel_session_open(&s, model, &o, &err), &err);
    for (int i = 0; m.n < n; i++) {
        struct reel_generation_result result = { .size = sizeof result };
        const struct reel_generation g = { .size = sizeof g,
                                           .sampling = sampling,
                                           .max_tokens = b.story < n - m.n ? b.story : n - m.n,
                                           .ignore_stop_ids = true,
                                           .speculation = kind,
                                           .most_drafts = most,
                                           .on_token = keep,
                                           .user = &m };
        const size_t at = (size_t)(i * PROMPT) % (b.n_text - PROMPT);
        check(reel_session_sync(s, b.text + at, PROMPT, NULL, &err), &err);
        check(reel_generate(s, &g, &result, &err), &err);
        m.sum.n_passes += result.n_passes;
        m.sum.n_drafted += result.n_drafted;
        m.sum.n_accepted += result.n_accepted;
    }
    reel_session_close(s);
    return m;
}

static void compare(const char *name, enum reel_speculation kind, int most, bool drawn,
                    const struct made *without) {
    const struct reel_sampling sampling = { .size = sizeof sampling,
                                            .temperature = drawn ? 0.8F : 0,
                                            .top_k = 50,
                                            .top_p = 0.9F,
                                            .seed = 7 };
    const struct reel_model *model = kind == REEL_SPECULATION_EAGLE3 ? b.with_head : b.plain;
    struct made m = make(model, kind, most, &sampling, without->n);
    const bool same = memcmp(m.ids, without->ids, (size_t)m.n * sizeof *m.ids) == 0;
    printf("%s,%d,%s,%d,%d,%d,%d,%s\n", name, most, drawn ? "drawn" : "greedy", m.n, m.sum.n_passes,
           m.sum.n_drafted, m.sum.n_accepted, same ? "yes" : "NO");
    fflush(stdout);
    b.differs = b.differs || !same;
    free(m.ids);
}

/* The head guesses among the first ids of a story. */
static void open_head(const struct made *story) {
    char folder[] = "/tmp/reel-head-XXXXXX";
    struct reel_error err = { 0 };
    const struct eagle3_head head = { .model = &b.plain->model.config,
                                      .n_ids = HEAD_IDS,
                                      .ids = story->ids };
    if (!mkdtemp(folder) || !eagle3_head_write(folder, &head)) exit(1);
    struct reel_model_options options = b.options;
    options.draft_head = folder;
    check(reel_model_open(&b.with_head, b.plain->model.source.path, &options, &err), &err);
    eagle3_head_remove(folder);
}

static void compare_all(const char *mosts, bool drawn, int n) {
    static const struct {
        const char *name;
        enum reel_speculation kind;
    } kinds[] = { { "ngram", REEL_SPECULATION_NGRAM },
                  { "auto", REEL_SPECULATION_AUTO },
                  { "mtp", REEL_SPECULATION_MTP },
                  { "draft", REEL_SPECULATION_DRAFT },
                  { "eagle3", REEL_SPECULATION_EAGLE3 } };
    const struct reel_sampling sampling = { .size = sizeof sampling,
                                            .temperature = drawn ? 0.8F : 0,
                                            .top_k = 50,
                                            .top_p = 0.9F,
                                            .seed = 7 };
    struct made without = make(b.plain, REEL_SPECULATION_OFF, 0, &sampling, n);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const enum reel_speculation kind = kinds[i].kind;
        if (kind == REEL_SPECULATION_MTP && !b.plain->backend_info.guesses) continue;
        if (kind == REEL_SPECULATION_DRAFT && !b.draft) continue;
        if (kind == REEL_SPECULATION_EAGLE3 && !b.with_head) continue;
        for (const char *at = mosts; *at; at += strspn(at, ",")) {
            compare(kinds[i].name, kind, (int)strtol(at, NULL, 10), drawn, &without);
            at += strcspn(at, ",");
        }
    }
    free(without.ids);
}

int main(int argc, char **argv) {
    struct reel_error err = { 0 };
    if (argc < 2) {
        fprintf(stderr, "usage: speculated_ids MODEL [KEY=VALUE ...]\n");
        return 2;
    }
    const char *device = text_of(argc, argv, "device"), *mosts = text_of(argc, argv, "most");
    const char *draft = text_of(argc, argv, "draft"), *text = text_of(argc, argv, "text");
    b.options = (struct reel_model_options){ .size = sizeof b.options,
                                             .device = device ? device : "gpu",
                                             .gpu_options = text_of(argc, argv, "options"),
                                             .cache_dir = text_of(argc, argv, "cache") };
    check(reel_model_open(&b.plain, argv[1], &b.options, &err), &err);
    if (draft) check(reel_model_open(&b.draft, draft, &b.options, &err), &err);
    read_text(text ? text : "README.md");
    const int context = b.plain->model.config.max_context - PROMPT;
    b.story = context < 4096 ? context : 4096;
    if (number_of(argc, argv, "head", 0) > 0) {
        const struct reel_sampling greedy = { .size = sizeof greedy };
        struct made story = make(b.plain, REEL_SPECULATION_OFF, 0, &greedy, HEAD_IDS);
        open_head(&story);
        free(story.ids);
    }
    puts("kind,most,ids,n,passes,drafted,accepted,same");
    compare_all(mosts ? mosts : "0,1,2,3,4,5,6,7", false,
                (int)number_of(argc, argv, "greedy", 4000));
    compare_all(mosts ? mosts : "0,1,2,3,4,5,6,7", true, (int)number_of(argc, argv, "drawn", 2000));
    reel_model_close(b.with_head);
    reel_model_close(b.draft);
    reel_model_close(b.plain);
    free(b.text);
    return b.differs;
}
