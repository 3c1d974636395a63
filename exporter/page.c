#include "http.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* GPUWM_PAGE: the file that the Makefile made. */
__asm__(".pushsection .rodata\n"
	"page_begin:\n"
	".incbin \"" GPUWM_PAGE "\"\n"
	"page_end:\n"
	".balign 8\n"
	"page_bytes: .quad page_end - page_begin\n"
	".popsection\n");

extern const char page_begin[];
extern const uint64_t page_bytes;

/* What stands in the page for the nonce, and is as long. */
#define PLACEHOLDER "@NONCE-NONCE-NONCE-NONCE-NONCE-@"
_Static_assert(sizeof(PLACEHOLDER) == NONCE_DIGITS + 1, "the nonce is written over the placeholder");

char *page_make(size_t *ret_bytes, char ret_nonce[NONCE_DIGITS + 1])
{
	size_t bytes = page_bytes;
	char *page = malloc(bytes), *place = page;
	uint8_t random[NONCE_DIGITS / 2];

	if (!page || getrandom(random, sizeof(random), 0) != sizeof(random)) {
		free(page);
		return NULL;
	}
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(ret_nonce + 2 * i, 3, "%02x", random[i]);
	memcpy(page, page_begin, bytes);
	while ((place = memmem(place, bytes - (size_t)(place - page), PLACEHOLDER, NONCE_DIGITS)))
		memcpy(place, ret_nonce, NONCE_DIGITS);
	*ret_bytes = bytes;
	return page;
}
