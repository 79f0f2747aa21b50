/* Mutations of the kernels: one ordering taken out, or one line made wrong, that a test under the
 * simulator must see, as other bits, as a report, or as a wait that never ends. All of them stand
 * in mutations_*.c; the test named beside a list there tries them.
 *
 * Compiling one takes seconds, so a run tries a share of each list and the next run the next share.
 * Which share a run takes is printed, with how to repeat it:
 *   REEL_MUTATION_TURN=n   share n
 *   REEL_MUTATION=text     those whose name contains the text; an empty one: all
 *   REEL_SOAK=1            all of them, with more schedules each
 * Where a program's lists take turns themselves (shares.h), their shares and the number of those
 * turns have no divisor in common: in builds of their own, day by day, all would not come round
 * else. tools/mutations.sh tries all of all lists, with the schedules of any run. */
#ifndef REEL_TESTS_MUTATIONS_H
#define REEL_TESTS_MUTATIONS_H

#include "sim/fake_cuda.h"

enum { MUTATION_PATCHES = 4 };

struct mutation {
    const char *what;
    struct fake_patch patches[MUTATION_PATCHES + 1]; /* the first without a file ends them */
};

struct mutation_list {
    const char *name;
    const struct mutation *all;
    int n, shares; /* runs that it takes to try all */
};

extern const struct mutation_list decode_mutations, hops_mutations, columns_mutations,
    columns_delta_mutations, columns_digits_mutations, follow_mutations, follow_delta_mutations,
    padding_mutations, queue_mutations, packed_mutations, short_mutations, far_mutations,
    delta_mutations, tower_mutations, position_mutations, bias_mutations, limits_mutations,
    narrow_mutations, rounded_mutations, codes_mutations, faults_mutations,
    columns_waiting_mutations, columns_stages_mutations, columns_parts_mutations,
    columns_turns_mutations, columns_odd_ring_mutations, columns_overlaid_mutations, gpus_mutations,
    halves_mutations, draft_layer_mutations, eagle3_mutations;
extern const struct mutation columns_scratch_none;         /* harmless by itself */
extern const struct mutation_list *const mutation_lists[]; /* all, NULL at the end */

/* What the fake compiler is told, until it is reset. */
void mutation_apply(const struct mutation *m, struct fake_nvrtc *nvrtc);

/* Gives this run's share of the list to `is_seen`, which says whether the mutation was noticed.
 * Fails the test with the names of those that were not. */
void mutations_try(const struct mutation_list *list, bool (*is_seen)(const struct mutation *m));

#endif
