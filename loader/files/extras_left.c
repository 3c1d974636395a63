#include "extras.h"

#include "../../base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUOTE(number) #number
#define NUMBER(constant) QUOTE(constant)

static_assert(INDEX_FILES_BYTES_MAX == MIB(32), "the words say it");

/* The words between "left out, " and the names. */
static const char *const reasons[LEFT_REASONS] = {
	[LEFT_WEIGHTS] = "weights that this version does not have (load them as a version of their own)",
	[LEFT_FORMAT] = "pickles, archives and weights of other formats",
	[LEFT_POINTER] = "Git LFS pointers (`git lfs pull` fetches the files that they stand for)",
	[LEFT_LINK] = "links out of the folder, to a folder or to nothing",
	[LEFT_SPECIAL] = "neither files nor folders",
	[LEFT_NAME] = "names that are not UTF-8, have control characters, or more than " NUMBER(
		FILE_NAME_BYTES_MAX) " bytes",
	[LEFT_LARGE] = "above the 32 MiB that the files of a version have in all",
	[LEFT_MANY] = "more than " NUMBER(EXTRA_FILES_MAX) " files",
	[LEFT_DEEP] = "more than " NUMBER(FILE_DEPTH_MAX) " folders deep",
	[LEFT_ENTRIES] = "the rest of a folder with more than " NUMBER(EXTRA_ENTRIES_MAX) " entries",
	[LEFT_UNREAD] = "could not be read",
	[LEFT_HIDDEN] = "hidden",
};

void extras_leave(struct extras *extras, enum left_reason reason, const char *name, uint64_t bytes,
		  const char *detail)
{
	struct left *left = &extras->left[reason];
	char shown[UTF8_SHOWN_MAX(TEXT_SHOWN_MAX)], entry[sizeof(shown) + 128], size[32] = "";

	if (bytes != LEFT_SIZE_UNKNOWN) {
		left->bytes += bytes;
		snprintf(size, sizeof(size), "%" PRIu64 " bytes", bytes);
	}
	utf8_show(name, shown, TEXT_SHOWN_MAX);
	snprintf(entry, sizeof(entry), "%s%s%s%s%.80s%s", shown, size[0] || detail ? " (" : "", size,
		 size[0] && detail ? ", " : "", detail ? detail : "", size[0] || detail ? ")" : "");
	text_list_add(&left->list, left->names, sizeof(left->names), ", ", entry);
}

void extras_tell_left(const struct extras *extras)
{
	size_t note = 0;

	for (size_t i = 0; i < LEFT_REASONS; i++) {
		const struct left *left = &extras->left[i];
		char more[80] = "";

		if (left->list.count > left->list.shown)
			snprintf(more, sizeof(more), ", and %zu more, %" PRIu64 " bytes in all",
				 left->list.count - left->list.shown, left->bytes);
		if (left->list.count > 0)
			snprintf(extras->source->left[note++], TEXT_BYTES_MAX + 1, "left out, %s: %s%s",
				 reasons[i], left->names, more);
	}
}
