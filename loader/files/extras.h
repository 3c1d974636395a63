/* The files of a checkpoint's folder that are not weights. They travel with the version as data: nobody runs or parses them. What
 * does not travel is left out with a reason, of which the job has a note. extras.c has the order, extras_find.c goes through the
 * folder, extras_left.c makes the notes. */
#ifndef GPUWM_LOADER_EXTRAS_H
#define GPUWM_LOADER_EXTRAS_H

#include "source.h"
#include "../../base/text.h"

#include <assert.h>

/* The most entries of a folder and its subfolders that are looked at, which takes less than a second. Repositories have some
 * thousands of files; a folder with more is a training run, or data. */
#define EXTRA_ENTRIES_MAX 65536
/* How many files a version may have: whoever unpacks it makes each of them. A repository with a file for each voice or language has
 * some hundreds. */
#define EXTRA_FILES_MAX 1024
/* The part of a note that lists names. With the words around it, it fits TEXT_BYTES_MAX. */
#define EXTRA_LIST_BYTES 640

/* Why a file is left out. */
enum left_reason {
	LEFT_WEIGHTS,
	LEFT_FORMAT,
	LEFT_POINTER,
	LEFT_LINK,
	LEFT_SPECIAL,
	LEFT_NAME,
	LEFT_LARGE,
	LEFT_MANY,
	LEFT_DEEP,
	LEFT_ENTRIES,
	LEFT_UNREAD,
	LEFT_HIDDEN,
	LEFT_REASONS
};
static_assert(LEFT_REASONS == SOURCE_LEFT_MAX, "a note for each reason");

/* What is left out for one reason. */
struct left {
	struct text_list list;
	uint64_t bytes;
	char names[EXTRA_LIST_BYTES];
};

#define LEFT_SIZE_UNKNOWN UINT64_MAX /* of a folder, or of a file that could not be looked at */

/* A file that may travel. */
struct extra_found {
	char *name;
	uint64_t bytes;
};

struct extras {
	const struct roots *roots;
	struct source *source;
	int folder; /* -1: the files were handed over */
	int blobs; /* of the hub's cache, if the folder is one of its snapshots; else -1 */
	struct extra_found *found;
	size_t found_count;
	size_t entries; /* that were looked at */
	struct left left[LEFT_REASONS];
	struct error *error;
};

/* ---- finding (extras_find.c) ---- */

/* Sets extras->found: first the files that models usually have, in the order of their importance, then the others, small ones
 * first. Returns 0. Fails with -ENOMEM. */
int extras_find(struct extras *extras);
/* Opens a file by its name. Links in it may lead to the folder's own files, and from a snapshot of the hub's cache to that
 * repository's own blobs. Returns a descriptor or -errno; -EXDEV if a link leads elsewhere. */
int extras_open(const struct extras *extras, const char *name, int flags);

/* ---- what is left out (extras_left.c) ---- */

/* detail may be NULL. */
void extras_leave(struct extras *extras, enum left_reason reason, const char *name, uint64_t bytes,
		  const char *detail);
/* Writes the notes into the source. */
void extras_tell_left(const struct extras *extras);

#endif
