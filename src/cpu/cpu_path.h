/* The instruction sets of this build and this machine, by name. */
#ifndef REEL_CPU_CPU_PATH_H
#define REEL_CPU_CPU_PATH_H

#include "base/error.h"
#include "cpu/kernels.h"

/* The fastest path (name NULL or "auto") or the named one. REEL_E_ARGUMENT for a name that does not
 * exist, REEL_E_UNSUPPORTED for one this machine lacks; both say what there is. */
enum reel_status cpu_path_choose(struct kernels *out, const char *name, struct reel_error *err);

/* Whether the name asks for the plain reference: "reference", or "reference-bf16", whose matrices
 * are rounded to bf16 as a GPU holds them. */
bool cpu_path_is_reference(const char *name);
#define CPU_PATH_REFERENCE_BF16 "reference-bf16"

/* Space-separated names of what this machine can run, fastest last, in a caller's buffer. */
#define CPU_PATH_TEXT 96
void cpu_path_list(char text[CPU_PATH_TEXT]);

#endif
