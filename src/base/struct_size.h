/* Public structs begin with their size, so that library and program may be of different age. These
 * functions are the only place where that matters. `name` is the struct's, for messages. */
#ifndef REEL_BASE_STRUCT_SIZE_H
#define REEL_BASE_STRUCT_SIZE_H

#include "base/error.h"

/* Copies what both sides know of *given into *own (own_bytes long) and zeroes the rest; own's first
 * member becomes own_bytes. NULL gives all zeroes. Refused are a size no version ever had, and
 * bytes beyond own_bytes that are not zero: they are options which this library does not know. */
enum reel_status struct_read(void *own, size_t own_bytes, const void *given, const char *name,
                             struct reel_error *err);

/* The same for a list of n structs that lie as far apart as the first one says; all must say the
 * same. *own is the caller's to mem_free, also after a failure. */
enum reel_status struct_read_list(void *own, size_t own_bytes, const void *given, int n,
                                  const char *name, struct reel_error *err);

/* Refuses NULL and a size that no version ever had. */
enum reel_status struct_check(const void *given, size_t own_bytes, const char *name,
                              struct reel_error *err);

/* struct_check; then copies what both sides know of *own into *given, keeping given's size. */
enum reel_status struct_write(void *given, const void *own, size_t own_bytes, const char *name,
                              struct reel_error *err);

#endif
