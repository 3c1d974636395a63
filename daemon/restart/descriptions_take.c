/* What a start finds in the folder: versions that come back, and what of them is on disk. */
#include "descriptions_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What was read so far. */
struct taking {
	struct descriptions *d;
	bool adopts; /* the ledger gets what it does not have */
	uint64_t adopted;
	uint64_t unknown; /* versions that the ledger does not have, and does not get */
};

static void move_aside(const struct descriptions *d, const char *name, const struct error *why)
{
	char aside[DESCRIPTION_FILE_TEXT + sizeof(WRONG_SUFFIX)];

	snprintf(aside, sizeof(aside), "%s%s", name, WRONG_SUFFIX);
	log_error("%s/%s: %s. gpuwmd goes on without it, and calls it %s", d->path, name, why->message, aside);
	if (renameat(d->folder, name, d->folder, aside) < 0)
		log_error("%s/%s can't be renamed: %s", d->path, name, strerror(errno));
}

static struct version *version_of(const struct descriptions *d, const struct version_id *id)
{
	const struct ref ref = {.has_id = true, .id = *id};
	struct version *version;
	uint64_t none;

	return registry_find(d->ledger->registry, &ref, &version, &none, NULL) == 0 ? version : NULL;
}

/* Returns 1 if the version was added, 0 if its file is wrong or gone. */
static int take_file(struct taking *t, const struct version_id *id, struct version **ret, struct error *error)
{
	struct description_reading reading;
	char name[DESCRIPTION_FILE_TEXT];
	int r;

	description_file_name(id, name);
	r = description_file_open(t->d->folder, name, DESCRIPTION_VERSION, &reading, error);
	if (r == 0) {
		r = description_take(&reading, id, t->d->ledger, ret, error);
		description_file_close(&reading);
	}
	if (r == 0) {
		t->adopted++;
		return 1;
	}
	if (r == -ENOENT)
		log_error("%s: %s: the version is lost", t->d->path, error->message);
	else if (r == -EUCLEAN || r == -EEXIST || r == -EINVAL)
		move_aside(t->d, name, error);
	else
		return r;
	if (described_find(t->d, id))
		described_remove(t->d, described_find(t->d, id));
	return 0;
}

/* ---- by the names ---- */

static int adopt(struct taking *t, const struct named_version *named, struct error *error)
{
	struct version *version;
	int r = take_file(t, named->id, &version, error);

	if (r == 1) {
		description_take_named(version, named);
		version->restores = named->resident;
	}
	return r < 0 ? r : 0;
}

/* What the ledger has is newer than the names, which are written after the state. */
static int take_named(struct taking *t, const struct named_version *named, struct error *error)
{
	struct version *version = version_of(t->d, named->id);
	struct described *file;
	int r = 0;

	if (!version && t->adopts)
		r = adopt(t, named, error);
	else if (!version)
		t->unknown++;
	file = r == 0 ? described_find(t->d, named->id) : NULL;
	if (file) {
		file->key = *named->key;
		file->is_listed = true;
	}
	return r;
}

static int take_all_named(struct taking *t, const struct described_names *names, struct error *error)
{
	uint32_t left_out;
	int r = t->adopts ? description_take_devices(names, &t->d->ledger->devices, error) : 0;

	for (uint32_t i = 0; r == 0 && i < names->versions.count; i++)
		r = take_named(t, &names->versions.items[i], error);
	if (r < 0 || t->adopted == 0)
		return r;
	left_out = description_take_names(names, t->d->ledger);
	if (left_out > 0)
		log_warning("%s: aliases that did not come back: %u", t->d->path, left_out);
	return 0;
}

static int take_by_names(struct taking *t, struct error *error)
{
	struct description_reading reading;
	struct description_names names;
	int r = description_file_open(t->d->folder, NAMES_FILE, DESCRIPTION_NAMES, &reading, error);

	if (r < 0)
		return r;
	r = description_names_read(reading.body, reading.body_bytes, &names, error);
	if (r == 0) {
		r = take_all_named(t, &names.kept, error);
		message_clear(&names.message);
	}
	if (r == 0) { /* so that they are not written again before they change */
		t->d->names = reading.body;
		t->d->names_bytes = reading.body_bytes;
		reading.body = NULL;
	}
	description_file_close(&reading);
	return r;
}

/* ---- without names ---- */

/* The names are damaged or missing: every file is a version, without aliases and pins. */
static int take_every_file(struct taking *t, struct error *error)
{
	struct described *file = t->d->files, *next;
	int r = 0;

	for (; r >= 0 && file; file = next) {
		const struct version_id id = file->id;
		struct version *version = version_of(t->d, &id);

		next = file->hh.next;
		t->unknown += !version && !t->adopts;
		r = version || !t->adopts ? 0 : take_file(t, &id, &version, error);
		if (r == 1)
			version->restores = true;
	}
	registry_find_owners(t->d->ledger->registry);
	return r < 0 ? r : 0;
}

static int take(struct taking *t, struct error *error)
{
	int r = take_by_names(t, error);

	if (r == -ENOENT && !t->d->files)
		return 0;
	if (r == -ENOENT) /* a kill came before the first names, or somebody has removed them */
		log_warning("%s/%s is not there: versions come back without aliases and pins", t->d->path,
			    NAMES_FILE);
	else if (r == -EUCLEAN)
		move_aside(t->d, NAMES_FILE, error);
	else
		return r;
	return take_every_file(t, error);
}

/* Only a gpuwmd that starts takes versions from the folder. */
#define TAKE_LATE "restart gpuwmd, which brings these versions back; or set another folder in [tiers]"
#define TAKE_AGAIN "correct the cause, and restart gpuwmd; or set another folder in [tiers]"

int descriptions_take(struct descriptions *d, bool adopts, uint64_t *ret_adopted)
{
	struct taking t = {.d = d, .adopts = adopts};
	const char *remedy = TAKE_AGAIN;
	struct error why, error;
	int r;

	*ret_adopted = 0;
	if (d->folder < 0)
		return d->error.code;
	r = take(&t, &why);
	if (r == 0 && t.unknown > 0 && d->is_late) {
		r = error_set(&why, -ENOTEMPTY, NULL, "gpuwmd does not hold %llu of their versions",
			      (unsigned long long)t.unknown);
		remedy = TAKE_LATE;
	}
	*ret_adopted = t.adopted;
	if (r == 0)
		return 0;
	error_set(&error, r, remedy, "the descriptions in %s are not used, and stay as they are: %s", d->path,
		  why.message);
	descriptions_close(d);
	descriptions_fail(d, &error);
	return r;
}
