#include "peer_dial.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool peer_place_lacks(const struct peer_place *place)
{
	const int code = place->why.code;

	return code == -ENOENT || code == -ESTALE || code == -EPROTONOSUPPORT || code == -ENOTSUP;
}

bool peer_place_is_busy(const struct peer_place *place)
{
	return place->why.code == -EBUSY || place->why.code == -ECONNRESET;
}

/* Of the message, besides its beginning, which is about all nodes. */
#define REASONS_BYTES 800

struct reasons {
	char text[REASONS_BYTES];
	size_t used;
	size_t left_out; /* for which there was no room */
};

static void reasons_add(struct reasons *reasons, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void reasons_add(struct reasons *reasons, const char *format, ...)
{
	char reason[TEXT_BYTES_MAX + 1];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	bytes = strlen(reason) + strlen("; ");
	if (reasons->used + bytes >= sizeof(reasons->text)) {
		reasons->left_out++;
		return;
	}
	reasons->used += (size_t)snprintf(reasons->text + reasons->used, sizeof(reasons->text) - reasons->used,
					  "%s%s", reasons->used > 0 ? "; " : "", reason);
}

static const struct peer_place *first_reason(const struct peer_place *places, size_t count)
{
	const struct peer_place *first = NULL;

	for (size_t i = 0; i < count; i++) {
		if (places[i].why.code &&
		    (!first || (peer_place_lacks(first) && !peer_place_lacks(&places[i]))))
			first = &places[i];
	}
	return first;
}

int peer_places_explain(const struct peer_place *places, size_t count, const char *ref, struct error *error)
{
	const struct peer_place *first = first_reason(places, count);
	struct reasons reasons = {0};
	size_t missing = 0, unasked = 0;
	char more[64] = "";

	if (!first)
		return error_set(error, -ENOENT, NULL, "no node was asked for %s", ref);
	if (count == 1) {
		*error = first->why;
		return error->code;
	}
	for (size_t i = 0; i < count; i++) {
		missing += places[i].why.code == -ENOENT;
		unasked += !places[i].why.code && !places[i].offered;
	}
	if (missing > 0)
		reasons_add(&reasons, "%zu %s not have it", missing, missing == 1 ? "does" : "do");
	if (unasked > 0)
		reasons_add(&reasons, "%zu %s not asked", unasked, unasked == 1 ? "was" : "were");
	for (size_t i = 0; i < count; i++) {
		if (places[i].why.code && places[i].why.code != -ENOENT)
			reasons_add(&reasons, "%s", places[i].why.message);
	}
	if (reasons.left_out > 0)
		snprintf(more, sizeof(more), "; and %zu more reasons", reasons.left_out);
	return error_set(error, first->why.code, first->why.detail, "none of %zu nodes gives %s: %s%s", count,
			 ref, reasons.text, more);
}
