/* Compile or take from the cache. */
#include "cuda/compile/kernel_build.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "cuda/compile/kernel_cache.h"
#include "cuda/compile/kernel_compile.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_DIGITS 32 /* of the key: enough to tell files apart; the header holds all of it */

enum { LOG_LINES = 3 }; /* in a message */

/* ---- options ---- */

struct options {
    struct buffer text; /* each terminated by a zero */
    const char **list;
    int n;
};

static enum reel_status add_option(struct options *o, const char *prefix, const char *text,
                                   size_t n, struct reel_error *err) {
    enum reel_status status = buffer_text(&o->text, prefix, err);
    if (status == REEL_OK) status = buffer_append(&o->text, text, n, err);
    if (status == REEL_OK) status = buffer_append(&o->text, "", 1, err);
    if (status == REEL_OK) o->n++;
    return status;
}

/* A line that is an option itself begins with "-". */
static enum reel_status add_constants(struct options *o, const char *constants,
                                      struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (const char *line = constants; line && *line && status == REEL_OK;) {
        size_t n = strcspn(line, "\n");
        if (n > 0) status = add_option(o, line[0] == '-' ? "" : "-D", line, n, err);
        line += n + (line[n] == '\n');
    }
    return status;
}

/* Products and sums are contracted as the compiler likes: code that must round as on the host asks
 * for each operation by name. */
static enum reel_status add_fixed(struct options *o, int compute, bool ptx,
                                  struct reel_error *err) {
    static const char *const fixed[] = { "-std=c++17", "--fmad=true" };
    char target[32];
    /* "a": what only this architecture has, setmaxnreg among it */
    int n = snprintf(target, sizeof target, "%d%s", compute, !ptx && compute >= 90 ? "a" : "");
    enum reel_status status = add_option(
        o, ptx ? "--gpu-architecture=compute_" : "--gpu-architecture=sm_", target, (size_t)n, err);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && status == REEL_OK; i++)
        status = add_option(o, fixed[i], "", 0, err);
    return status;
}

static void release_options(struct options *o) {
    mem_free(o->list);
    buffer_release(&o->text);
}

static enum reel_status make_options(struct options *o, const struct kernel_build *build,
                                     int compute, bool ptx, struct reel_error *err) {
    *o = (struct options){ 0 };
    enum reel_status status = add_fixed(o, compute, ptx, err);
    if (status == REEL_OK) status = add_constants(o, build->constants, err);
    if (status == REEL_OK)
        status = mem_zeroed(&o->list, (size_t)o->n, sizeof *o->list, "compiler options", err);
    const char *at = o->text.bytes;
    for (int i = 0; i < o->n && status == REEL_OK; i++) {
        o->list[i] = at;
        at += strlen(at) + 1;
    }
    return status;
}

/* ---- key ---- */

static enum reel_status add_sized(struct buffer *b, const char *text, size_t n,
                                  struct reel_error *err) {
    enum reel_status status = buffer_printf(b, err, "%zu:", n);
    return status == REEL_OK ? buffer_append(b, text, n, err) : status;
}

/* All that the image depends on. Each text comes with its length, so that none runs into the next.
 */
static enum reel_status make_key(char key[SHA256_HEX], const struct kernel_build *build,
                                 const struct options *options, struct reel_error *err) {
    struct buffer b = { 0 };
    enum reel_status status = buffer_printf(
        &b, err, "reel kernels 1\nnvrtc %d.%d gpu %d driver %d program %s\n", build->nvrtc->major,
        build->nvrtc->minor, build->gpu_compute, build->driver_version / 1000, build->program);
    if (status == REEL_OK) status = add_sized(&b, options->text.bytes, options->text.size, err);
    for (int i = 0; i < build->n_sources && status == REEL_OK; i++) {
        const struct kernel_source *s = &build->sources[i];
        status = add_sized(&b, s->name, strlen(s->name), err);
        if (status == REEL_OK) status = add_sized(&b, s->text, strlen(s->text), err);
    }
    if (status == REEL_OK) sha256_hex(b.bytes, b.size, key);
    buffer_release(&b);
    return status;
}

/* ---- cache ---- */

static enum reel_status cache_path(struct buffer *path, const struct kernel_build *build,
                                   const char *key, const char *ending, struct reel_error *err) {
    *path = (struct buffer){ 0 };
    return buffer_printf(path, err, "%s/kernels-%.*s.%s", build->cache_dir, NAME_DIGITS, key,
                         ending);
}

static void warn_caller(const struct kernel_build *build, const char *path, const char *what) {
    struct reel_error text;
    if (!build->log) return;
    err_set(&text, REEL_OK, "%s: %s", path, what);
    build->log(build->log_user, REEL_LOG_WARNING, text.text);
}

static enum reel_status read_cache(struct kernel_image *image, const struct kernel_build *build,
                                   struct reel_error *err) {
    struct buffer path;
    const char *damage = NULL;
    char text[160];
    if (!build->cache_dir) return REEL_OK;
    enum reel_status status = cache_path(&path, build, image->key, "bin", err);
    if (status == REEL_OK)
        status =
            kernel_cache_read(&image->bytes, &image->n_bytes, &damage, path.bytes, image->key, err);
    if (status == REEL_OK && damage) {
        snprintf(text, sizeof text, "%s; the kernels are compiled again", damage);
        warn_caller(build, path.bytes, text);
    }
    image->from_cache = image->bytes != NULL;
    buffer_release(&path);
    return status;
}

/* A cache that cannot be written costs the next start its time, nothing else. */
static void write_cache(const struct kernel_image *image, const struct kernel_build *build) {
    struct buffer path;
    struct reel_error why;
    if (!build->cache_dir) return;
    mkdir(build->cache_dir, 0777); /* may exist; if it cannot be made, writing fails below */
    enum reel_status status = cache_path(&path, build, image->key, "bin", &why);
    if (status == REEL_OK)
        status = kernel_cache_write(path.bytes, image->key, image->bytes, image->n_bytes, &why);
    if (status != REEL_OK) warn_caller(build, "the compiled kernels were not kept", why.text);
    buffer_release(&path);
}

/* ---- a failed compilation ---- */

/* Writes the whole log into the cache folder; *path is empty where there is none. */
static void keep_log(struct buffer *path, const struct kernel_image *image,
                     const struct kernel_build *build) {
    *path = (struct buffer){ 0 };
    if (!build->cache_dir) return;
    mkdir(build->cache_dir, 0777);
    if (cache_path(path, build, image->key, "log", NULL) == REEL_OK &&
        file_write_atomic(path->bytes, image->log, strlen(image->log), NULL) == REEL_OK)
        return;
    buffer_release(path);
}

/* The first lines of the log that are not empty, in one. */
static void first_lines(char *text, size_t size, const char *log) {
    size_t used = 0;
    text[0] = '\0';
    for (int lines = 0; *log && lines < LOG_LINES;) {
        size_t n = strcspn(log, "\n");
        if (n > 0 && used + 1 < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", lines ? " | " : "",
                                     (int)(n < 300 ? n : 300), log);
            lines++;
        }
        log += n + (log[n] == '\n');
    }
}

static enum reel_status explain_failure(const struct kernel_image *image,
                                        const struct kernel_build *build, enum reel_status status,
                                        struct reel_error *err) {
    struct buffer path;
    char lines[400];
    if (!image->log || status != REEL_E_DEVICE) return status;
    keep_log(&path, image, build);
    first_lines(lines, sizeof lines, image->log);
    status = err_set(err, REEL_E_DEVICE, "NVRTC %d.%d cannot compile the kernels%s%s: %s",
                     build->nvrtc->major, build->nvrtc->minor,
                     path.bytes ? "; its whole log is " : "", path.bytes ? path.bytes : "", lines);
    buffer_release(&path);
    return status;
}

/* ---- all of it ---- */

static enum reel_status find_target(int *compute, bool *ptx, const struct kernel_build *build,
                                    struct reel_error *err) {
    *compute = build->compute ? build->compute : build->gpu_compute;
    *ptx = *compute / 10 < build->gpu_compute / 10; /* machine code runs on its own major version */
    if (*compute > build->gpu_compute)
        return err_set(err, REEL_E_ARGUMENT,
                       "kernels for compute capability %d.%d cannot run on a GPU of %d.%d",
                       *compute / 10, *compute % 10, build->gpu_compute / 10,
                       build->gpu_compute % 10);
    return nvrtc_check_target(build->nvrtc, *compute, err);
}

static enum reel_status compile_image(struct kernel_image *image, const struct kernel_build *build,
                                      const struct options *options, bool ptx,
                                      struct reel_error *err) {
    const struct compile_input input = {
        .build = build, .options = options->list, .n_options = options->n, .ptx = ptx
    };
    enum reel_status status = kernel_compile(image, &input, err);
    if (status != REEL_OK) return explain_failure(image, build, status, err);
    write_cache(image, build);
    return REEL_OK;
}

enum reel_status kernel_build(struct kernel_image *image, const struct kernel_build *build,
                              struct reel_error *err) {
    struct options options = { 0 };
    int compute = 0;
    bool ptx = false;
    *image = (struct kernel_image){ 0 };
    enum reel_status status = find_target(&compute, &ptx, build, err);
    if (status == REEL_OK) status = make_options(&options, build, compute, ptx, err);
    if (status == REEL_OK) status = make_key(image->key, build, &options, err);
    if (status == REEL_OK) status = read_cache(image, build, err);
    if (status == REEL_OK && !image->bytes)
        status = compile_image(image, build, &options, ptx, err);
    release_options(&options);
    if (status != REEL_OK) kernel_image_release(image);
    return status;
}

void kernel_image_release(struct kernel_image *image) {
    if (!image) return;
    mem_free(image->bytes);
    mem_free(image->log);
    *image = (struct kernel_image){ 0 };
}
