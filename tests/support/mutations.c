#include "support/mutations.h"

#include "support/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct mutation_list *const mutation_lists[] = { &decode_mutations,
                                                       &hops_mutations,
                                                       &columns_mutations,
                                                       &columns_waiting_mutations,
                                                       &columns_stages_mutations,
                                                       &columns_turns_mutations,
                                                       &columns_parts_mutations,
                                                       &columns_odd_ring_mutations,
                                                       &columns_overlaid_mutations,
                                                       &columns_delta_mutations,
                                                       &columns_digits_mutations,
                                                       &follow_mutations,
                                                       &follow_delta_mutations,
                                                       &padding_mutations,
                                                       &queue_mutations,
                                                       &packed_mutations,
                                                       &short_mutations,
                                                       &far_mutations,
                                                       &delta_mutations,
                                                       &tower_mutations,
                                                       &position_mutations,
                                                       &bias_mutations,
                                                       &limits_mutations,
                                                       &narrow_mutations,
                                                       &rounded_mutations,
                                                       &codes_mutations,
                                                       &faults_mutations,
                                                       &gpus_mutations,
                                                       &halves_mutations,
                                                       &draft_layer_mutations,
                                                       &eagle3_mutations,
                                                       NULL };

/* ---- which of them a run tries ---- */

static int share_tried(const struct mutation_list *list) {
    const char *wanted = getenv("REEL_MUTATION_TURN");
    char name[64];
    snprintf(name, sizeof name, "mutations-%s", list->name);
    return (wanted ? atoi(wanted) : turn_next(name)) % list->shares;
}

void mutation_apply(const struct mutation *m, struct fake_nvrtc *nvrtc) {
    nvrtc->patches = m->patches, nvrtc->n_patches = 0;
    while (nvrtc->n_patches < MUTATION_PATCHES && m->patches[nvrtc->n_patches].file)
        nvrtc->n_patches++;
}

void mutations_try(const struct mutation_list *list, bool (*is_seen)(const struct mutation *m)) {
    const char *named = getenv("REEL_MUTATION");
    const bool all = getenv("REEL_SOAK") || named;
    const int turn = all ? 0 : share_tried(list);
    int n_seen = 0;
    char survivors[1000] = "";
    if (!all)
        printf("%s: share %d of %d of the mutations; REEL_MUTATION_TURN=%d repeats it\n",
               list->name, turn, list->shares, turn);
    for (int i = 0; i < list->n; i++) {
        const struct mutation *m = &list->all[i];
        if ((!all && i % list->shares != turn) || (named && !strstr(m->what, named))) continue;
        if (is_seen(m)) {
            n_seen++;
            continue;
        }
        const size_t used = strlen(survivors);
        snprintf(survivors + used, sizeof survivors - used, "; %s", m->what);
    }
    printf("%s: %d of %d mutations seen\n", list->name, n_seen, list->n); /* tools/mutations.sh */
    if (*survivors) fail_msg("%s: not seen: %s", list->name, survivors + 2);
}
