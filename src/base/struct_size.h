/* Public structs begin with their size, so that library and program may be of different age. These
 * two functions are the only place where that matters. */
#ifndef REEL_BASE_STRUCT_SIZE_H
#define REEL_BASE_STRUCT_SIZE_H

#include "base/error.h"

/* Copies what both sides know of *given into *own (own_bytes long) and zeroes the rest; own's first
 * member becomes own_bytes. NULL gives all zeroes. `name` is the struct's, for the message that
 * refuses a size no version of it ever had. */
enum reel_status struct_read(void *own, size_t own_bytes, const void *given, const char *name,
                             struct reel_error *err);

/* Copies what both sides know of *own into *given, keeping given's size. False, with nothing
 * written, when that size is one no version ever had. */
bool struct_write(void *given, const void *own, size_t own_bytes);

#endif
