#include "cuda/driver/gpu_info.h"

#include "cuda/driver/nvml.h"
#include "cuda/driver/nvrtc.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gpu_limits_fill(struct gpu_limits *limits, const struct cuda_gpu_facts *facts, int n) {
    *limits = (struct gpu_limits){ .compute = facts->compute,
                                   .n_sms = facts->n_sms,
                                   .n_gpus = n,
                                   .shared_bytes = facts->shared_bytes,
                                   .registers = facts->registers,
                                   .max_threads = facts->max_threads,
                                   .memory_bytes = facts->memory_bytes };
    snprintf(limits->name, sizeof limits->name, "%s", facts->name);
}

/* ---- choosing ---- */

/* The numbers of "N,M" in `text`; 0 when it is something else, or has too many of them. */
static int parse_numbers(int index[CUDA_MOST_GPUS], const char *text) {
    for (int n = 0; n < CUDA_MOST_GPUS; text++) {
        const size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 5) return 0;
        index[n++] = (int)strtol(text, NULL, 10);
        text += digits;
        if (!*text) return n;
        if (*text != ',') return 0;
    }
    return 0;
}

/* *n numbers of GPUs; 0: any GPU; -1: all there are. */
static enum reel_status parse_device(int *index, int *n, const char *device,
                                     struct reel_error *err) {
    *n = 0;
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, "gpu") == 0) return REEL_OK;
    if (strcmp(device, "gpu:all") == 0) *n = -1;
    if (strncmp(device, "gpu:", 4) == 0 && *n == 0) *n = parse_numbers(index, device + 4);
    if (*n != 0) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "device \"%s\" is unknown; allowed are \"auto\", \"cpu\", \"gpu\", \"gpu:N\" (N "
                   "counts from 0), \"gpu:N,M\" (at most %d) and \"gpu:all\"",
                   device, CUDA_MOST_GPUS);
}

static enum reel_status check_compiler(const struct cuda_driver *driver, int compute,
                                       const struct cuda_folders *folders, struct reel_error *err) {
    struct nvrtc nvrtc;
    enum reel_status status = nvrtc_open(&nvrtc, folder_of_nvrtc(folders), driver->version, err);
    if (status != REEL_OK) return status;
    status = nvrtc_check_target(&nvrtc, compute, err);
    nvrtc_close(&nvrtc);
    return status;
}

static enum reel_status check_gpu(const struct cuda_driver *driver, int index,
                                  const struct cuda_folders *folders, struct reel_error *err) {
    struct cuda_gpu_facts facts;
    enum reel_status status = cuda_gpu_facts(&facts, driver, index, err);
    if (status == REEL_OK) status = cuda_gpu_check(&facts, index, err);
    return status == REEL_OK ? check_compiler(driver, facts.compute, folders, err) : status;
}

/* The first that can be used; when none can, the reason is the first one's. */
static enum reel_status choose_any(int *index, const struct cuda_driver *driver,
                                   const struct cuda_folders *folders, struct reel_error *err) {
    enum reel_status first = REEL_OK;
    for (int i = 0; i < driver->n_gpus; i++) {
        enum reel_status status = check_gpu(driver, i, folders, i == 0 ? err : NULL);
        if (i == 0) first = status;
        if (status != REEL_OK) continue;
        *index = i;
        return REEL_OK;
    }
    return first;
}

/* Each GPU of a list; all there are where the list is "all". */
static enum reel_status check_list(int *index, int *n, const struct cuda_driver *driver,
                                   const struct cuda_folders *folders, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (*n < 0 && driver->n_gpus > CUDA_MOST_GPUS)
        return err_set(err, REEL_E_ARGUMENT, "%d GPUs: at most %d can share a model; name them",
                       driver->n_gpus, CUDA_MOST_GPUS);
    if (*n < 0)
        for (*n = 0; *n < driver->n_gpus; ++*n)
            index[*n] = *n;
    for (int i = 0; i < *n && status == REEL_OK; i++)
        status = check_gpu(driver, index[i], folders, err);
    return status;
}

enum reel_status gpu_choose(int *index, int *n, const char *device,
                            const struct cuda_folders *folders, struct reel_error *err) {
    struct cuda_driver driver;
    enum reel_status status = parse_device(index, n, device, err);
    if (status == REEL_OK) status = cuda_driver_open(&driver, folders->driver, err);
    if (status != REEL_OK) return status;
    if (*n == 0) {
        *n = 1;
        status = choose_any(index, &driver, folders, err);
    } else {
        status = check_list(index, n, &driver, folders, err);
    }
    cuda_driver_close(&driver);
    return status;
}

/* ---- describing ---- */

struct survey {
    json_t *gpus, *notes;
    const struct cuda_folders *folders;
    const struct cuda_driver *driver;
    const struct nvrtc *nvrtc; /* NULL: none */
};

static enum reel_status no_memory(struct reel_error *err) {
    return err_memory(err, "the list of GPUs", 0);
}

/* Paths and the loader's words may be anything; JSON is UTF-8. */
static enum reel_status add_note(struct survey *s, char *text, struct reel_error *err) {
    for (char *c = text; *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    return json_array_append_new(s->notes, json_string(text)) == 0 ? REEL_OK : no_memory(err);
}

static bool set_key(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}

/* What NVML adds. Numbers it does not have are left out. */
static bool add_nvml(json_t *gpu, const struct nvml *nvml) {
    uint64_t n_free = 0, mj = 0;
    double w = 0;
    bool good = !nvml->driver[0] || set_key(gpu, "driver", json_string(nvml->driver));
    if (good && nvml_memory_free(nvml, &n_free, NULL) == REEL_OK)
        good = set_key(gpu, "memory_free_bytes", json_integer((json_int_t)n_free));
    if (good && nvml_power(nvml, &w, NULL) == REEL_OK) good = set_key(gpu, "power_w", json_real(w));
    if (good && nvml_energy(nvml, &mj, NULL) == REEL_OK)
        good = set_key(gpu, "energy_mj", json_integer((json_int_t)mj));
    return good;
}

/* Without NVML the free memory is known only inside a context, which takes a tenth of a second. */
static bool add_free_memory(json_t *gpu, const struct survey *s, int index) {
    struct cuda_gpu open;
    uint64_t n_free = 0, n_total = 0;
    bool good = true;
    if (cuda_gpu_open(&open, s->driver, index, NULL) != REEL_OK) return true;
    if (cuda_memory(&open, &n_free, &n_total, NULL) == REEL_OK)
        good = set_key(gpu, "memory_free_bytes", json_integer((json_int_t)n_free));
    cuda_gpu_close(&open);
    return good;
}

static json_t *write_version(int major, int minor) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d", major, minor);
    return json_string(text);
}

static json_t *write_facts(const struct survey *s, const struct cuda_gpu_facts *f, int index,
                           bool usable) {
    json_t *gpu = json_pack(
        "{s:i, s:s, s:s, s:o, s:i, s:i, s:I, s:o, s:b}", "index", index, "name", f->name, "uuid",
        f->uuid, "compute", write_version(f->compute / 10, f->compute % 10), "sms", f->n_sms,
        "shared_bytes", f->shared_bytes, "memory_bytes", (json_int_t)f->memory_bytes, "cuda",
        write_version(s->driver->version / 1000, s->driver->version % 1000 / 10), "usable", usable);
    if (!gpu || !s->nvrtc) return gpu;
    if (set_key(gpu, "nvrtc", write_version(s->nvrtc->major, s->nvrtc->minor))) return gpu;
    json_decref(gpu);
    return NULL;
}

/* The numbers of the GPUs with which it can share a model. */
static bool add_links(const struct survey *s, json_t *gpu, int index) {
    json_t *links = json_array();
    bool good = links != NULL;
    for (int i = 0; i < s->driver->n_gpus && good; i++) {
        bool linked = false;
        if (i == index || cuda_gpus_linked(&linked, s->driver, index, i, NULL) != REEL_OK) continue;
        if (linked) good = json_array_append_new(links, json_integer(i)) == 0;
    }
    if (good && json_array_size(links) > 0) return set_key(gpu, "links", links);
    json_decref(links);
    return good;
}

/* Takes over gpu. */
static enum reel_status append_gpu(struct survey *s, json_t *gpu, int index,
                                   const struct cuda_gpu_facts *facts, struct reel_error *err) {
    struct nvml nvml;
    struct reel_error why;
    enum reel_status status = REEL_OK;
    bool good = true;
    if (nvml_open(&nvml, s->folders->driver, facts->uuid, &why) == REEL_OK) {
        good = add_nvml(gpu, &nvml);
        nvml_close(&nvml);
    } else {
        status = add_note(s, why.text, err);
    }
    if (good && status == REEL_OK && !json_object_get(gpu, "memory_free_bytes"))
        good = add_free_memory(gpu, s, index);
    if (good && status == REEL_OK) good = add_links(s, gpu, index);
    if (!good) status = no_memory(err);
    if (status == REEL_OK && json_array_append(s->gpus, gpu) != 0) status = no_memory(err);
    json_decref(gpu);
    return status;
}

static enum reel_status describe_one(struct survey *s, int index, struct reel_error *err) {
    struct cuda_gpu_facts facts;
    struct reel_error why;
    if (cuda_gpu_facts(&facts, s->driver, index, &why) != REEL_OK)
        return add_note(s, why.text, err);
    enum reel_status usable = cuda_gpu_check(&facts, index, &why);
    if (usable == REEL_OK && s->nvrtc) usable = nvrtc_check_target(s->nvrtc, facts.compute, &why);
    enum reel_status status = usable == REEL_OK ? REEL_OK : add_note(s, why.text, err);
    if (status != REEL_OK) return status;
    json_t *gpu = write_facts(s, &facts, index, usable == REEL_OK && s->nvrtc);
    return gpu ? append_gpu(s, gpu, index, &facts, err) : no_memory(err);
}

static enum reel_status describe_all(struct survey *s, struct reel_error *err) {
    struct cuda_driver driver;
    struct nvrtc nvrtc;
    struct reel_error why;
    enum reel_status status = REEL_OK;
    if (cuda_driver_open(&driver, s->folders->driver, &why) != REEL_OK)
        return add_note(s, why.text, err);
    s->driver = &driver;
    if (nvrtc_open(&nvrtc, folder_of_nvrtc(s->folders), driver.version, &why) == REEL_OK)
        s->nvrtc = &nvrtc;
    else
        status = add_note(s, why.text, err);
    for (int i = 0; i < driver.n_gpus && status == REEL_OK; i++)
        status = describe_one(s, i, err);
    if (s->nvrtc) nvrtc_close(&nvrtc);
    cuda_driver_close(&driver);
    s->nvrtc = NULL;
    s->driver = NULL;
    return status;
}

enum reel_status gpu_describe(json_t **gpus, json_t **notes, const struct cuda_folders *folders,
                              struct reel_error *err) {
    struct survey s = { .gpus = json_array(), .notes = json_array(), .folders = folders };
    *gpus = *notes = NULL;
    enum reel_status status = s.gpus && s.notes ? describe_all(&s, err) : no_memory(err);
    if (status == REEL_OK) {
        *gpus = s.gpus;
        *notes = s.notes;
        return REEL_OK;
    }
    json_decref(s.gpus);
    json_decref(s.notes);
    return status;
}
