/* Linux keeps these numbers in text files; a missing one counts as no limit. */
#include "base/machine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first bytes of a small file, terminated; "" when it cannot be read. Without stdio, so that
 * nothing is allocated. */
static void read_start(const char *path, char *text, size_t size) {
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
}

static uint64_t meminfo(const char *field) {
    char text[4096];
    read_start("/proc/meminfo", text, sizeof text);
    const char *at = strstr(text, field);
    return at ? strtoull(at + strlen(field), NULL, 10) * 1024 : 0;
}

/* A number in a file of the control group; UINT64_MAX when there is none ("max" included). */
static uint64_t group_number(const char *v2, const char *v1) {
    char text[64];
    read_start(v2, text, sizeof text);
    if (!text[0]) read_start(v1, text, sizeof text);
    if (text[0] < '0' || text[0] > '9') return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

static uint64_t group_limit(void) {
    return group_number("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes");
}

uint64_t machine_memory_total(void) {
    uint64_t total = meminfo("MemTotal:"), limit = group_limit();
    return total < limit ? total : limit;
}

uint64_t machine_memory_available(void) {
    uint64_t available = meminfo("MemAvailable:"), limit = group_limit();
    if (limit == UINT64_MAX) return available;
    uint64_t used = group_number("/sys/fs/cgroup/memory.current",
                                 "/sys/fs/cgroup/memory/memory.usage_in_bytes");
    uint64_t rest = used < limit ? limit - used : 0;
    return available < rest ? available : rest;
}
