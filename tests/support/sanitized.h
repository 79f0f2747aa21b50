/* SANITIZED: built with the address or thread sanitizer. Clang says so by __has_feature alone. */
#ifndef REEL_SUPPORT_SANITIZED_H
#define REEL_SUPPORT_SANITIZED_H

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#endif
