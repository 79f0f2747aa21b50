/* What the CPU is, for people. */
#include "base/json.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "cpu/cpu_path.h"
#include "runtime/backend.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* What the kernel calls the processor, into text; empty when it does not say. */
static void read_cpu_name(char *text, size_t size) {
    char file[4096];
    text[0] = '\0';
    int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, file, sizeof file - 1);
    close(fd);
    file[n > 0 ? n : 0] = '\0';
    const char *at = strstr(file, "model name");
    if (at) at = strchr(at, ':');
    if (!at) return;
    at += strspn(at, ": \t");
    size_t length = strcspn(at, "\n");
    if (length >= size) length = size - 1;
    memcpy(text, at, length);
    text[length] = '\0';
}

/* NULL when memory runs out, which json_pack passes on. */
static json_t *list_paths(void) {
    char text[CPU_PATH_TEXT + 16] = "reference ", *rest = NULL;
    json_t *list = json_array();
    cpu_path_list(text + strlen(text));
    for (char *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        if (json_array_append_new(list, json_string(name)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *describe_cpu(void) {
    char name[128];
    read_cpu_name(name, sizeof name);
    return json_pack("{s:s, s:i, s:o, s:I, s:I}", "name", name, "cores", thread_pool_cores(),
                     "paths", list_paths(), "memory_bytes", (json_int_t)machine_memory_total(),
                     "memory_available_bytes", (json_int_t)machine_memory_available());
}

static enum reel_status describe(json_t **devices, json_t **notes,
                                 const struct backend_folders *folders, struct reel_error *err) {
    (void)folders;
    *notes = NULL;
    *devices = json_pack("[o]", describe_cpu());
    return *devices ? REEL_OK : err_memory(err, "the description of the CPU", 0);
}

const struct machine_ops cpu_machine = { .describe = describe };
