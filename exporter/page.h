/* The status page: one HTML text with its style and script in it. The Makefile puts it together from the folder page/. */
#ifndef GPUWM_EXPORTER_PAGE_H
#define GPUWM_EXPORTER_PAGE_H

#include <stddef.h>

/* Random digits that only the page's own style and script carry: the browser runs nothing else. */
#define NONCE_DIGITS 32

/* Returns a copy of the page with a new nonce, which the caller frees, and writes the nonce to
 * ret_nonce. NULL: out of memory, or the kernel has no random numbers. */
char *page_make(size_t *ret_bytes, char ret_nonce[NONCE_DIGITS + 1]);

#endif
