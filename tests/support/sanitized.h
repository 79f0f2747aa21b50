/* SANITIZED: 1 with the address or thread sanitizer, else 0. Clang says so by __has_feature alone.
 */
#ifndef REEL_SUPPORT_SANITIZED_H
#define REEL_SUPPORT_SANITIZED_H

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* THREAD_SANITIZED: 1 with the thread sanitizer, else 0. */
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif

#include <stdlib.h>

/* Whether this run leaves out what takes the host the same way once more: under a sanitizer, which
 * makes the host slow and never sees kernels, but for `make soak`. */
static inline int sanitized_briefly(void) { return SANITIZED && !getenv("REEL_SOAK"); }

/* Whether this run takes lengths and numbers of draws in full: in `make soak`, but not under a
 * sanitizer, which sees the same code in fewer of them and takes hours for all. */
static inline int soaking_in_full(void) { return !SANITIZED && getenv("REEL_SOAK"); }

#endif
