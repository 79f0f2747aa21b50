/* Sessions as bytes, and copied to other sessions.
 *
 *   header | ids i32 [length] | logits f32 [n_logits] | state, in the backend's own form
 *
 * A snapshot is for the machine and build that wrote it: numbers are in its byte order, the state
 * in the form of its backend. The check sum finds accidents; against intent, everything that is
 * used as a size, an index or an id is checked against its range. */
#include "runtime/snapshot.h"

#include "base/checked.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

#define SNAPSHOT_VERSION    2
#define SNAPSHOT_BYTE_ORDER 0x01020304u
static const char snapshot_magic[8] = "REELSNAP";

struct snapshot_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    char identity[64];
    char backend[32]; /* name and path, padded with zeros */
    int32_t vocab, hidden, n_layers, n_kv_heads, head_dim;
    int32_t length, n_evaluated, n_logits; /* n_logits: 0 or vocab */
    uint64_t state_bytes;
    uint64_t check; /* of everything, with this field 0 */
    char kv[8];     /* the form of keys and values, padded with zeros */
};
_Static_assert(sizeof(struct snapshot_header) == 168, "no padding: its bytes are written");

/* Four lanes of multiply and rotate, so that it runs at the speed of memory. */
static uint64_t check_sum(const void *bytes, size_t n, uint64_t seed) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    const unsigned char *p = bytes;
    uint64_t lane[4] = { seed, seed + odd, seed + 2 * odd, seed + 3 * odd };
    uint64_t word[4];
    size_t left = n;
    for (; left >= sizeof word; left -= sizeof word, p += sizeof word) {
        memcpy(word, p, sizeof word);
        for (int j = 0; j < 4; j++) {
            lane[j] = (lane[j] ^ word[j]) * odd;
            lane[j] ^= lane[j] >> 29;
        }
    }
    memset(word, 0, sizeof word);
    memcpy(word, p, left);
    uint64_t sum = n;
    for (int j = 0; j < 4; j++) {
        sum = (sum ^ lane[j] ^ word[j]) * odd;
        sum ^= sum >> 32;
    }
    return sum;
}

static uint64_t check_of(const struct snapshot_header *header, const void *body, size_t n) {
    struct snapshot_header h = *header;
    h.check = 0;
    return check_sum(body, n, check_sum(&h, sizeof h, 0));
}

void snapshot_seal(void *bytes, size_t n_bytes) {
    struct snapshot_header h;
    memcpy(&h, bytes, sizeof h);
    h.check = check_of(&h, (char *)bytes + sizeof h, n_bytes - sizeof h);
    memcpy(bytes, &h, sizeof h);
}

static struct snapshot_header header_of(const struct reel_session *s) {
    const struct reel_model *model = s->model;
    const struct model_config *c = &model->model.config;
    struct snapshot_header h = { .version = SNAPSHOT_VERSION,
                                 .byte_order = SNAPSHOT_BYTE_ORDER,
                                 .vocab = c->vocab,
                                 .hidden = c->hidden,
                                 .n_layers = c->n_layers,
                                 .n_kv_heads = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .length = s->length,
                                 .n_evaluated = s->n_evaluated,
                                 .n_logits = s->has_logits ? c->vocab : 0 };
    const char *name = model->backend_info.name, *path = model->backend_info.path;
    memcpy(h.magic, snapshot_magic, sizeof h.magic);
    memcpy(h.identity, model->identity, sizeof h.identity);
    strncpy(h.backend, name ? name : "", 15);
    strncpy(h.backend + 16, path ? path : "", 15);
    strncpy(h.kv, kv_form_name(model->kv), sizeof h.kv - 1);
    h.state_bytes = model->ops->save_bytes(s->state, s->n_evaluated);
    return h;
}

/* Where the parts lie; false when they do not add up to n_bytes. */
struct snapshot_parts {
    size_t ids, logits, state, end;
};
static bool parts_of(const struct snapshot_header *h, struct snapshot_parts *parts) {
    parts->ids = sizeof *h;
    parts->logits = parts->ids + (size_t)h->length * sizeof(int32_t);
    parts->state = parts->logits + (size_t)h->n_logits * sizeof(float);
    return h->state_bytes <= SIZE_MAX &&
           size_add(parts->state, (size_t)h->state_bytes, &parts->end);
}

/* ---- writing ---- */

size_t reel_session_snapshot_bytes(const struct reel_session *s) {
    if (!s) return 0;
    struct snapshot_header h = header_of(s);
    struct snapshot_parts parts;
    return parts_of(&h, &parts) ? parts.end : 0;
}

enum reel_status reel_session_snapshot(const struct reel_session *s, void *bytes, size_t n_bytes,
                                       struct reel_error *err) {
    struct snapshot_parts parts;
    unsigned char *to = bytes;
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status == REEL_OK) status = err_if_null(err, "bytes", (const void *const[]){ bytes });
    if (status != REEL_OK) return status;
    struct snapshot_header h = header_of(s);
    if (!parts_of(&h, &parts) || n_bytes < parts.end)
        return err_set(err, REEL_E_LIMIT,
                       "a snapshot of this session has %zu bytes; there is room "
                       "for %zu",
                       reel_session_snapshot_bytes(s), n_bytes);
    if (h.length > 0) memcpy(to + parts.ids, s->ids, parts.logits - parts.ids);
    memcpy(to + parts.logits, s->logits, parts.state - parts.logits);
    struct turn turn = { 0 };
    status = turn_take(&turn, s->model->turns, NULL, err);
    if (status == REEL_OK)
        status = s->model->ops->save(s->state, s->n_evaluated, to + parts.state, err);
    turn_give(&turn);
    if (status != REEL_OK) return status;
    memcpy(to, &h, sizeof h);
    snapshot_seal(to, parts.end);
    return REEL_OK;
}

/* ---- reading ---- */

static void empty(struct reel_session *s) {
    s->length = s->n_evaluated = s->read_from = s->read_to = s->again_to = 0;
    s->has_logits = false;
}

static enum reel_status refuse(const char *what, struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "snapshot: %s", what);
}

static enum reel_status check_origin(const struct snapshot_header *h,
                                     const struct snapshot_header *own, struct reel_error *err) {
    if (memcmp(h->magic, own->magic, sizeof h->magic) != 0)
        return refuse("it does not begin with REELSNAP", err);
    if (h->version != own->version)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "snapshot: its version is %u, this library reads %u", (unsigned)h->version,
                       (unsigned)own->version);
    if (h->byte_order != own->byte_order)
        return err_set(err, REEL_E_UNSUPPORTED, "snapshot: written in another byte order");
    if (memcmp(h->identity, own->identity, sizeof h->identity) != 0)
        return err_set(err, REEL_E_MISMATCH, "snapshot: made with another model");
    if (memcmp(h->backend, own->backend, sizeof h->backend) != 0)
        return err_set(err, REEL_E_MISMATCH,
                       "snapshot: made by backend %.15s %.15s; this session uses %.15s %.15s",
                       h->backend, h->backend + 16, own->backend, own->backend + 16);
    if (memcmp(h->kv, own->kv, sizeof h->kv) != 0)
        return err_set(err, REEL_E_MISMATCH,
                       "snapshot: its keys and values are %.7s; this session keeps them in %.7s",
                       h->kv, own->kv);
    if (h->vocab != own->vocab || h->hidden != own->hidden || h->n_layers != own->n_layers ||
        h->n_kv_heads != own->n_kv_heads || h->head_dim != own->head_dim)
        return err_set(err, REEL_E_MISMATCH, "snapshot: made with a model of other dimensions");
    return REEL_OK;
}

static enum reel_status check_counts(const struct snapshot_header *h, int max_context,
                                     struct reel_error *err) {
    if (h->length < 0 || h->n_evaluated < 0 || h->n_evaluated > h->length)
        return refuse("its number of tokens makes no sense", err);
    if (h->length > max_context)
        return err_set(err, REEL_E_CONTEXT,
                       "snapshot: it holds %d tokens; this session has room "
                       "for %d",
                       (int)h->length, max_context);
    bool logits_ok = h->n_logits == 0 ||
                     (h->n_logits == h->vocab && h->length > 0 && h->n_evaluated == h->length);
    if (!logits_ok) return refuse("its number of logits makes no sense", err);
    return REEL_OK;
}

static enum reel_status check_snapshot_ids(const struct snapshot_header *h, const int32_t *ids,
                                           struct reel_error *err) {
    for (int i = 0; i < h->length; i++) {
        /* an embedding is known only by what its evaluation left */
        int lowest = i < h->n_evaluated ? -1 : 0;
        if (ids[i] < lowest || ids[i] >= h->vocab)
            return err_set(err, REEL_E_FORMAT, "snapshot: id %d is %d; ids are 0 to %d", i,
                           (int)ids[i], (int)h->vocab - 1);
    }
    return REEL_OK;
}

static enum reel_status restore(struct reel_session *s, const unsigned char *from, size_t n_bytes,
                                struct reel_error *err) {
    struct snapshot_header h, own = header_of(s);
    struct snapshot_parts parts;
    if (n_bytes < sizeof h) return refuse("it ends inside its header", err);
    memcpy(&h, from, sizeof h);
    enum reel_status status = check_origin(&h, &own, err);
    if (status == REEL_OK) status = check_counts(&h, s->max_context, err);
    if (status != REEL_OK) return status;
    if (!parts_of(&h, &parts) || parts.end != n_bytes)
        return err_set(err, REEL_E_FORMAT, "snapshot: it has %zu bytes, its header says otherwise",
                       n_bytes);
    if (h.check != check_of(&h, from + sizeof h, n_bytes - sizeof h))
        return refuse("its check sum does not hold", err);
    memcpy(s->ids, from + parts.ids, parts.logits - parts.ids);
    memcpy(s->logits, from + parts.logits, parts.state - parts.logits);
    status = check_snapshot_ids(&h, s->ids, err);
    struct turn turn = { 0 };
    if (status == REEL_OK) status = turn_take(&turn, s->model->turns, NULL, err);
    if (status == REEL_OK)
        status = s->model->ops->restore(s->state, h.n_evaluated, from + parts.state,
                                        (size_t)h.state_bytes, err);
    turn_give(&turn);
    if (status != REEL_OK) return status;
    s->length = h.length;
    s->n_evaluated = s->read_from = s->read_to = h.n_evaluated;
    s->has_logits = h.n_logits > 0;
    return REEL_OK;
}

enum reel_status reel_session_restore(struct reel_session *s, const void *bytes, size_t n_bytes,
                                      struct reel_error *err) {
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status != REEL_OK) return status;
    empty(s);
    status = err_if_null(err, "bytes", (const void *const[]){ bytes });
    if (status != REEL_OK) return status;
    return restore(s, bytes, n_bytes, err);
}

/* ---- copying ---- */

enum reel_status reel_session_copy(struct reel_session *dst, const struct reel_session *src,
                                   struct reel_error *err) {
    err_clear(err);
    enum reel_status status = session_idle(dst, err);
    if (status == REEL_OK) status = session_idle(src, err);
    if (status != REEL_OK || dst == src) return status;
    if (dst->model != src->model)
        return err_set(err, REEL_E_ARGUMENT, "the sessions are open on different models");
    if (src->length > dst->max_context)
        return err_set(err, REEL_E_CONTEXT, "%d tokens do not fit in a context of %d", src->length,
                       dst->max_context);
    empty(dst);
    struct turn turn = { 0 };
    status = turn_take(&turn, dst->model->turns, NULL, err);
    if (status == REEL_OK)
        status = dst->model->ops->copy(dst->state, src->state, src->n_evaluated, err);
    turn_give(&turn);
    if (status != REEL_OK) return status;
    memcpy(dst->ids, src->ids, (size_t)src->length * sizeof *src->ids);
    if (src->has_logits)
        memcpy(dst->logits, src->logits,
               (size_t)src->model->model.config.vocab * sizeof *src->logits);
    dst->length = src->length;
    dst->n_evaluated = src->n_evaluated;
    dst->read_from = src->read_from;
    dst->read_to = src->read_to;
    dst->again_to = src->again_to;
    dst->has_logits = src->has_logits;
    draft_session_copy(dst->draft, src->draft);
    return REEL_OK;
}
