/* The whole model on the reference phases: what cpu_backend runs under the path "reference", under
 * REEL_ROUNDING_FAITHFUL, and what golden tests look into. */
#ifndef REEL_CPU_REFERENCE_MODEL_H
#define REEL_CPU_REFERENCE_MODEL_H

#include "cpu/reference.h"
#include "runtime/backend.h"

/* Called for each position after each phase with what the phase made. `layer` is -1 outside the
 * layers. `values` is borrowed for the call. Phases, in order:
 *   embed; in each layer: attn_norm q k q_norm k_norm q_rope k_rope v attention out_proj
 *   attn_residual ffn_norm gate up swiglu down ffn_residual; final_norm logits
 * q_norm and k_norm only with qk_norm; q has the gates too when attention is gated, and
 * attention_gate follows attention. In a DeltaNet layer attn_norm and out_proj stand around
 *   delta_qkv delta_z delta_b delta_a delta_conv delta_beta delta_decay delta_rule delta_norm
 * final_norm and logits only where they are computed. */
typedef void (*ref_tap_fn)(void *user, const char *phase, int layer, int position,
                           const float *values, int n);

struct ref_options {
    enum ref_rounding mode;
    enum ref_weights weights;
    enum kv_form kv;
    int max_positions;
    int rotation_offset; /* added to a position where it becomes an angle, so that far positions can
                            be tested without evaluating those before them; otherwise 0 */
    ref_tap_fn tap;      /* or NULL */
    void *tap_user;
};

struct ref_state; /* KV cache and scratch of one timeline */

/* config and weights are borrowed until close. */
enum reel_status ref_state_open(struct ref_state **out, const struct model_config *config,
                                const struct weights *weights, const struct ref_options *options,
                                struct reel_error *err);
void ref_state_close(struct ref_state *state);

/* As backend_ops.eval. */
enum reel_status ref_state_eval(struct ref_state *state, const struct backend_eval *eval,
                                struct reel_error *err);

/* As backend_ops.resume. */
int ref_state_resume(const struct ref_state *state, int n);

/* As backend_ops.save_bytes, save and restore: f32 [attention layers, 2, n, kv_heads * head_dim],
 * and the recurrent state. A copy is a save and a restore. */
size_t ref_state_save_bytes(const struct ref_state *state, int n);
enum reel_status ref_state_save(const struct ref_state *state, int n, void *bytes,
                                struct reel_error *err);
enum reel_status ref_state_restore(struct ref_state *state, int n, const void *bytes,
                                   size_t n_bytes, struct reel_error *err);

/* For backend_info. */
size_t ref_state_fixed_bytes(const struct model_config *config);
size_t ref_state_position_bytes(const struct model_config *config);

#endif
