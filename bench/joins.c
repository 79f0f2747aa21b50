/* Sessions that come and go at random from many threads, for as long as is wanted, on any device:
 * every id must be the one that the session makes alone (tests/support/joins.h).
 *
 *   joins MODEL [KEY=VALUE ...]
 *
 *   device=D     as --device of reel; default gpu      cache=FOLDER   of compiled kernels
 *   threads=N    64                                    stories=N      32: prompts
 *   joins=N      0: no limit                           seconds=S      180
 *   prompt=N     300: the longest                      tokens=N       48: of a session, at most
 *   seed=N       1                                     copies=0       no copies, no snapshots
 *   kinds=N      0, all: kinds of speculation          calm=1         nobody cancels from outside
 *   options=TEXT gpu_options of the model
 *   mapped=KB    128: malloc takes blocks from this size on from the system and gives them back.
 *                0: the C library's own rule, which keeps freed blocks of up to 32 MB
 *
 * Prints CSV lines: what,value,unit; what it does meanwhile goes to standard error. The exit status
 * is 0 only when all ids were right. */
#include "support/joins.h"
#include "arguments.h"
#include "reel.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell(uint64_t n_joins, uint64_t n_tokens, double seconds, size_t resident_bytes) {
    fprintf(stderr, "%.0f s: %llu joins, %llu ids, %zu MB resident\n", seconds,
            (unsigned long long)n_joins, (unsigned long long)n_tokens, resident_bytes >> 20);
}

/* Means over the second and the last third: the first one warms up. */
static void print_memory(const char *what, const struct joins_memory *m,
                         const struct joins_result *r) {
    const double growth = m->late - m->early;
    printf("%s early,%.0f,KB\n", what, m->early / 1024);
    printf("%s late,%.0f,KB\n", what, m->late / 1024);
    printf("%s at most,%.0f,KB\n", what, m->most / 1024);
    printf("%s growth after warming up,%.0f,KB\n", what, growth / 1024);
    printf("%s growth a join,%.1f,B\n", what, /* a third lies between the means */
           r->n_joins > 0 ? growth / ((double)r->n_joins / 3) : 0);
}

static void print_result(const struct joins_plan *plan, const struct joins_result *r) {
    printf("what,value,unit\n");
    printf("threads,%d,\n", plan->n_threads);
    printf("joins,%llu,calls\n", (unsigned long long)r->n_joins);
    printf("ids,%llu,\n", (unsigned long long)r->n_tokens);
    printf("sessions,%llu,\n", (unsigned long long)r->n_sessions);
    printf("cancelled,%llu,calls\n", (unsigned long long)r->n_cancelled);
    printf("wrong,%llu,\n", (unsigned long long)r->n_wrong);
    printf("seconds,%.1f,s\n", r->seconds);
    printf("joins a second,%.1f,1/s\n", r->seconds > 0 ? (double)r->n_joins / r->seconds : 0);
    printf("ids a second,%.1f,1/s\n", r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0);
    print_memory("resident", &r->resident, r);
    print_memory("malloc'ed", &r->in_use, r);
}

int main(int argc, char **argv) {
    struct reel_error err = { 0 };
    struct reel_model *model = NULL;
    struct joins_result result;
    if (argc < 2) {
        fprintf(stderr, "usage: joins MODEL [KEY=VALUE ...]\n");
        return REEL_E_ARGUMENT;
    }
    const int mapped_kb = (int)number_of(argc, argv, "mapped", 128);
    if (mapped_kb > 0) mallopt(M_MMAP_THRESHOLD, mapped_kb << 10);
    const char *device = text_of(argc, argv, "device");
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = device ? device : "gpu",
                                                .cache_dir = text_of(argc, argv, "cache"),
                                                .gpu_options = text_of(argc, argv, "options") };
    enum reel_status status = reel_model_open(&model, argv[1], &options, &err);
    const struct joins_plan plan = {
        .model = model,
        .n_threads = (int)number_of(argc, argv, "threads", 64),
        .n_stories = (int)number_of(argc, argv, "stories", 32),
        .longest_prompt = (int)number_of(argc, argv, "prompt", 300),
        .most_tokens = (int)number_of(argc, argv, "tokens", 48),
        .n_joins = (uint64_t)number_of(argc, argv, "joins", 0),
        .seconds = number_of(argc, argv, "seconds", 180),
        .seed = (uint64_t)number_of(argc, argv, "seed", 1),
        .copies = number_of(argc, argv, "copies", 1) != 0,
        .calm = number_of(argc, argv, "calm", 0) != 0,
        .n_kinds = (int)number_of(argc, argv, "kinds", 0),
        .tell = tell,
    };
    if (status == REEL_OK) {
        status = joins_run(&plan, &result, &err);
        print_result(&plan, &result);
    }
    if (status != REEL_OK) fprintf(stderr, "joins: %s\n", err.text);
    reel_model_close(model);
    return (int)status;
}
