/* Restoring a snapshot from hostile bytes. The check sum would turn nearly everything away, so the
 * target also repairs it: what lies behind it must stand on its own. Whatever comes out must be a
 * session that works. */
#include "runtime/snapshot.h"
#include "support/fake_backend.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { CONTEXT = 40 };
static struct fake_settings settings;
static struct reel_model *model;
static struct reel_session *session, *maker;

static void open_once(void) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    if (model) return;
    model = fake_model_open(&settings, NULL);
    if (!model || reel_session_open(&session, model, &options, NULL) != REEL_OK ||
        reel_session_open(&maker, model, &options, NULL) != REEL_OK)
        abort();
}

static void use(const uint8_t *bytes, size_t n) {
    struct reel_error err = { 0 };
    struct reel_generation g = { .size = sizeof g, .max_tokens = 3 };
    if (reel_session_restore(session, bytes, n, &err) != REEL_OK) {
        if (!err.text[0] || reel_session_length(session) != 0) abort();
        return;
    }
    for (int i = 0; i < reel_session_length(session); i++)
        if (reel_session_ids(session)[i] >= FAKE_VOCAB) abort();
    enum reel_status status = reel_generate(session, &g, NULL, &err);
    if (status != REEL_OK && status != REEL_E_STATE && status != REEL_E_DEVICE) abort();
}

/* A valid snapshot with bytes of the input written over it: offset, value, offset, value, ... */
static void patched(const uint8_t *data, size_t n) {
    static const int32_t ids[] = { 1, 2, 3, 4, 5 };
    static uint8_t bytes[2000];
    if (reel_session_sync(maker, ids, 5, NULL, NULL) != REEL_OK) abort();
    size_t n_bytes = reel_session_snapshot_bytes(maker);
    if (n_bytes > sizeof bytes ||
        reel_session_snapshot(maker, bytes, sizeof bytes, NULL) != REEL_OK)
        abort();
    for (size_t i = 0; i + 2 < n; i += 3)
        bytes[(size_t)(data[i] | data[i + 1] << 8) % n_bytes] = data[i + 2];
    snapshot_seal(bytes, n_bytes);
    use(bytes, n_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    open_once();
    use(data, n);
    patched(data, n);
    return 0;
}
