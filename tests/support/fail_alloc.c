#include "fail_alloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local unsigned fail_alloc_left; /* 0: not armed, or it failed */
static _Thread_local bool fail_alloc_failed;

void fail_alloc_arm(unsigned n)
{
	fail_alloc_failed = false;
	fail_alloc_left = n;
}

bool fail_alloc_disarm(void)
{
	fail_alloc_left = 0;
	return fail_alloc_failed;
}

/* These run before a sanitizer has begun. */
#define FAIL_ALLOC_EARLY __attribute__((no_sanitize("address", "undefined")))
#define FAIL_ALLOC __attribute__((visibility("default"))) FAIL_ALLOC_EARLY

FAIL_ALLOC_EARLY static bool fail_alloc_now(void)
{
	if (fail_alloc_left == 0 || --fail_alloc_left > 0)
		return false;
	fail_alloc_failed = true;
	errno = ENOMEM;
	return true;
}

FAIL_ALLOC void *malloc(size_t bytes)
{
	static void *(*next)(size_t);

	if (!next)
		next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	return fail_alloc_now() ? NULL : next(bytes);
}

FAIL_ALLOC void *calloc(size_t count, size_t bytes)
{
	static void *(*next)(size_t, size_t);

	if (!next)
		next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	return fail_alloc_now() ? NULL : next(count, bytes);
}

FAIL_ALLOC void *realloc(void *old, size_t bytes)
{
	static void *(*next)(void *, size_t);

	if (!next)
		next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	return fail_alloc_now() ? NULL : next(old, bytes);
}

FAIL_ALLOC void *reallocarray(void *old, size_t count, size_t bytes)
{
	size_t product;

	if (__builtin_mul_overflow(count, bytes, &product)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(old, product);
}

/* AddressSanitizer's own would not call this malloc. */
FAIL_ALLOC char *strdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = malloc(bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}
