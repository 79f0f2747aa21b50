#include "cuda/driver/nvrtc.h"

#include "cuda/driver/library.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__)
#define TARGET "sbsa-linux"
#else
#define TARGET "x86_64-linux"
#endif

/* Newest first; 0: the version is known only once it is open. Between 11.2 and 11.8 the name stayed
 * the same; older ones make no machine code. */
static const struct {
    const char *name;
    int major;
} releases[] = {
    { "libnvrtc.so.13", 13 },
    { "libnvrtc.so.12", 12 },
    { "libnvrtc.so.11.2", 11 },
    { "libnvrtc.so", 0 },
};

/* "" is where the loader looks. */
static const char *const folders[] = {
    "",
    "/usr/local/cuda/lib64/",
    "/usr/local/cuda/targets/" TARGET "/lib/",
    "/opt/cuda/lib64/",
    "/opt/cuda/targets/" TARGET "/lib/",
    "/usr/lib/cuda/lib64/",
    "/run/opengl-driver/lib/",
};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

#define SYMBOL(name, symbol, parameters) { #symbol, offsetof(struct nvrtc_calls, name) },
static const struct library_symbol symbols[] = { NVRTC_CALLS(SYMBOL) };
#undef SYMBOL
static const struct library_symbol flow[] = {
    { "nvrtcSetFlowCallback", offsetof(struct nvrtc, set_flow) },
};

/* What was seen on the way to none. */
struct search {
    char why[LIBRARY_WHY]; /* the loader's words */
    char broken[256];      /* a library that opened and lacks something, or "" */
    int newer_major, newer_minor;
};

static void *open_named(const char *folder, const char *name, char why[LIBRARY_WHY]) {
    char paths[N_FOLDERS][64];
    const char *names[N_FOLDERS + 1] = { NULL };
    const char *const alone[] = { name, NULL };
    if (folder) return library_open(folder, alone, why);
    for (int i = 0; i < N_FOLDERS; i++) {
        snprintf(paths[i], sizeof paths[i], "%s%s", folders[i], name);
        names[i] = paths[i];
    }
    return library_open(NULL, names, why);
}

/* Whether the open library can be used under a driver of this major version. */
static bool suits_driver(struct nvrtc *nvrtc, int driver_major, struct search *seen) {
    const char *missing = library_bind(nvrtc->library, &nvrtc->call, symbols,
                                       (int)(sizeof symbols / sizeof *symbols));
    if (missing) {
        snprintf(seen->broken, sizeof seen->broken, "it lacks %s", missing);
        return false;
    }
    int (*version)(int *, int *) = nvrtc->call.version;
    void *address = NULL;
    memcpy(&address, &version, sizeof address);
    library_path(address, nvrtc->path, sizeof nvrtc->path);
    if (version(&nvrtc->major, &nvrtc->minor) != 0) {
        snprintf(seen->broken, sizeof seen->broken, "%.200s does not say its version", nvrtc->path);
        return false;
    }
    if (nvrtc->major <= driver_major) return true;
    seen->newer_major = nvrtc->major;
    seen->newer_minor = nvrtc->minor;
    return false;
}

static enum reel_status explain_missing(const struct search *seen, int driver_version,
                                        struct reel_error *err) {
    int major = driver_version / 1000, minor = driver_version % 1000 / 10;
    char packages[200];
    snprintf(
        packages, sizeof packages,
        "apt install cuda-nvrtc-%d-%d (NVIDIA's repository), or pip install nvidia-cuda-nvrtc%s "
        "with its lib folder in LD_LIBRARY_PATH",
        major, minor,
        major >= 13   ? ""
        : major == 12 ? "-cu12"
                      : "-cu11");
    if (seen->newer_major)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "the NVIDIA driver (CUDA %d.%d) is too old for the compiler found, NVRTC "
                       "%d.%d: update the driver, or install an NVRTC of its version: %s",
                       major, minor, seen->newer_major, seen->newer_minor, packages);
    if (seen->broken[0])
        return err_set(err, REEL_E_UNSUPPORTED, "the NVRTC library cannot be used: %s; %s",
                       seen->broken, packages);
    return err_set(err, REEL_E_UNSUPPORTED,
                   "NVRTC, NVIDIA's compiler library, was not found (%s): %s", seen->why, packages);
}

enum reel_status nvrtc_open(struct nvrtc *nvrtc, const char *folder, int driver_version,
                            struct reel_error *err) {
    struct search seen = { .why = "" };
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        *nvrtc = (struct nvrtc){ 0 };
        nvrtc->library = open_named(folder, releases[i].name, seen.why);
        if (!nvrtc->library) continue;
        if (suits_driver(nvrtc, driver_version / 1000, &seen)) {
            (void)library_bind(nvrtc->library, nvrtc, flow, 1);
            return REEL_OK;
        }
        nvrtc_close(nvrtc);
    }
    return explain_missing(&seen, driver_version, err);
}

void nvrtc_close(struct nvrtc *nvrtc) {
    if (!nvrtc) return;
    library_close(nvrtc->library);
    *nvrtc = (struct nvrtc){ 0 };
}

enum { MOST_TARGETS = 128 };

enum reel_status nvrtc_check_target(const struct nvrtc *nvrtc, int compute,
                                    struct reel_error *err) {
    int n = 0, list[MOST_TARGETS], newest = 0;
    int error = nvrtc->call.n_targets(&n);
    if (error == 0 && (n < 1 || n > MOST_TARGETS)) error = INT_MAX;
    if (error == 0) error = nvrtc->call.targets(list);
    if (error != 0)
        return err_set(err, REEL_E_DEVICE, "NVRTC %d.%d (%s) does not say what it compiles for: %s",
                       nvrtc->major, nvrtc->minor, nvrtc->path, nvrtc_error_text(error));
    for (int i = 0; i < n; i++) {
        if (list[i] == compute) return REEL_OK;
        if (list[i] > newest) newest = list[i];
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "NVRTC %d.%d (%s) does not compile for compute capability %d.%d (the newest it "
                   "knows is %d.%d): install %s",
                   nvrtc->major, nvrtc->minor, nvrtc->path, compute / 10, compute % 10, newest / 10,
                   newest % 10, compute > newest ? "a newer NVRTC and driver" : "an older NVRTC");
}

const char *nvrtc_error_text(int error) {
    static const char *const texts[] = {
        [0] = "no error",
        [1] = "out of memory",
        [2] = "the program could not be made",
        [3] = "invalid input",
        [4] = "invalid program",
        [5] = "an option it does not know: it may be older than what reel was made for",
        [6] = "the sources do not compile",
        [7] = "its libnvrtc-builtins is missing beside it or of another version",
        [11] = "an internal error",
    };
    bool known = error >= 0 && (size_t)error < sizeof texts / sizeof *texts && texts[error];
    return known ? texts[error] : "an unknown error";
}
