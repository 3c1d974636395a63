/* What a start finds in the folder: versions that come back, and what of them is on disk. An error of one file costs its own version. */
#include "descriptions_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was read so far. */
struct taking {
	struct descriptions *d;
	bool adopts; /* the ledger gets what it does not have */
	uint64_t adopted;
	uint32_t left_out; /* pins */
	uint64_t unknown; /* versions that the ledger does not have, and does not get */
	struct named_version *left; /* d->left.versions, to be filled */
	struct error first; /* of a file that is left */
};

static void move_aside(const struct descriptions *d, const char *name, const struct error *why)
{
	char aside[DESCRIPTION_FILE_TEXT + sizeof(WRONG_SUFFIX)];
	struct error error;

	snprintf(aside, sizeof(aside), "%s%s", name, WRONG_SUFFIX);
	log_error("%s/%s: %s. gpuwmd goes on without it, and calls it %s", d->path, name, why->message, aside);
	if (descriptions_rename(d, name, aside, &error) < 0)
		log_error("%s/%s can't be renamed: %s", d->path, name, error.message);
}

static struct version *version_of(const struct descriptions *d, const struct version_id *id)
{
	const struct ref ref = {.has_id = true, .id = *id};
	struct version *version;
	uint64_t none;

	return registry_find(d->ledger->registry, &ref, &version, &none, NULL) == 0 ? version : NULL;
}

/* The file stays, and the names go on listing it, so that a later start brings its version back. */
static void leave_file(struct taking *t, const struct named_version *named, const struct error *why)
{
	struct descriptions *d = t->d;
	struct named_version *left = &t->left[d->left.version_count];
	struct described *file = described_find(d, named->id);

	log_error("%s: %s. The version did not come back; the file stays, and the next start tries again",
		  d->path, why->message);
	if (named->unnamed)
		registry_note_unnamed(d->ledger->registry);
	if (d->left.version_count++ == 0)
		t->first = *why;
	file->is_left = true;
	*left = *named;
	left->id = &file->id;
	left->left = true;
}

/* Adds the version to the ledger. If its file is wrong, gpuwmd moves it aside; if it can't be read, gpuwmd leaves it. */
static void take_file(struct taking *t, const struct named_version *named)
{
	struct described *file = described_find(t->d, named->id);
	struct description_reading reading;
	char name[DESCRIPTION_FILE_TEXT];
	struct version *version;
	struct error why;
	int r;

	description_file_name(named->id, name);
	if (!file) {
		log_error("%s: %s is not there: the version is lost", t->d->path, name);
		return;
	}
	r = descriptions_read(t->d, name, DESCRIPTION_VERSION, &reading, &why);
	if (r == 0) {
		r = description_take(&reading, named->id, t->d->ledger, &version, &why);
		description_file_close(&reading);
	}
	if (r == 0) {
		t->left_out += description_take_named(version, named);
		version->restores = named->resident;
		t->adopted++;
		file->came = true;
	} else if (r == -EUCLEAN || r == -EEXIST || r == -EINVAL) {
		move_aside(t->d, name, &why);
		if (named->unnamed)
			registry_note_unnamed(t->d->ledger->registry);
		described_remove(t->d, file);
	} else {
		leave_file(t, named, &why);
	}
}

/* ---- by the names ---- */

/* What the ledger has is newer than the names, which are written after the state. */
static void take_named(struct taking *t, const struct named_version *named)
{
	struct described *file = described_find(t->d, named->id);

	if (!version_of(t->d, named->id) && !(file && file->is_left)) {
		if (t->adopts || (named->left && !t->d->is_late))
			take_file(t, named);
		else
			t->unknown++;
	}
	file = described_find(t->d, named->id);
	if (file) {
		file->key = *named->key;
		file->is_listed = !file->is_left;
	}
}

/* An entry that is wrong costs itself, and is named. */
static void take_all_named(struct taking *t, const struct described_names *names)
{
	uint32_t devices = t->adopts ? description_take_devices(names, &t->d->ledger->devices) : 0, aliases = 0,
		 owners = 0;

	for (uint32_t i = 0; i < names->versions.count; i++)
		take_named(t, &names->versions.items[i]);
	for (uint32_t i = 0; i < names->aliases.count; i++) {
		const struct described *file = described_find(t->d, names->aliases.items[i].version);

		if (file && file->came)
			aliases += !description_take_alias(&names->aliases.items[i], t->d->ledger);
	}
	/* Owners are in the state too, which is newer. */
	if (t->adopts)
		owners = description_take_owners(names, t->d->ledger);
	if (owners > 0) /* nobody but operators gets those models */
		registry_note_unnamed(t->d->ledger->registry);
	if (devices + t->left_out + aliases + owners > 0)
		log_warning("%s: what did not come back: %u devices, %u pins, %u aliases, %u owners",
			    t->d->path, devices, t->left_out, aliases, owners);
}

static int take_by_names(struct taking *t, struct error *error)
{
	struct descriptions *d = t->d;
	struct description_reading reading;
	int r = descriptions_read(d, NAMES_FILE, DESCRIPTION_NAMES, &reading, error);

	if (r < 0)
		return r;
	r = description_names_read(reading.body, reading.body_bytes, &d->read, error);
	if (r == 0) {
		d->read_body = reading.body;
		reading.body = NULL;
		take_all_named(t, &d->read.kept);
	}
	if (r == 0) { /* the names are not written again before they change */
		d->names = malloc(reading.body_bytes);
		d->names_bytes = reading.body_bytes;
		if (d->names)
			memcpy(d->names, d->read_body, reading.body_bytes);
	}
	description_file_close(&reading);
	return r;
}

/* ---- without names ---- */

/* The names are missing or can't be read: every file is a version, without aliases and pins. */
static void take_every_file(struct taking *t)
{
	struct described *file = t->d->files, *next;
	static const struct digest no_key;

	for (; file; file = next) {
		next = file->hh.next;
		if (version_of(t->d, &file->id))
			continue;
		if (t->adopts)
			take_file(t,
				  &(struct named_version){
					  .id = &file->id, .key = &no_key, .resident = true, .unnamed = true});
		else
			t->unknown++;
	}
}

/* If the names do not come, the folder is not used. */
static void descriptions_take_all(struct taking *t)
{
	struct error why;
	int r = take_by_names(t, &why);

	if (r == 0 || (r == -ENOENT && !t->d->files))
		return;
	descriptions_forget_read(t->d);
	if (r == -ETIMEDOUT) {
		descriptions_give_up(t->d, true, &why);
		return;
	}
	if (r == -ENOENT) /* a kill came before the first names, or somebody has removed them */
		log_warning("%s/%s is not there: versions come back without aliases and pins", t->d->path,
			    NAMES_FILE);
	take_every_file(t);
	if (r != -ENOENT && !(t->d->is_late && t->unknown > 0)) /* else the folder is not used */
		move_aside(t->d, NAMES_FILE, &why);
}

/* Only a gpuwmd that starts takes versions from the folder. */
#define TAKE_LATE "restart gpuwmd, which brings these versions back; or set another folder in [tiers]"

static int refuse_late(struct descriptions *d, uint64_t unknown)
{
	struct error error;

	error_set(
		&error, -ENOTEMPTY, TAKE_LATE,
		"the descriptions in %s are not used, and stay as they are: gpuwmd does not hold %llu of their "
		"versions",
		d->path, (unsigned long long)unknown);
	descriptions_close(d);
	descriptions_fail(d, &error);
	return error.code;
}

/* The names say at once which versions are left: the state says from now on that the others were described. */
static int keep_left(struct taking *t)
{
	struct descriptions *d = t->d;
	const struct described_names *names = &d->read.kept;
	struct kept_alias *aliases = calloc(names->aliases.count + 1, sizeof(*aliases));

	if (!aliases)
		return -ENOMEM;
	d->left.aliases = aliases;
	for (uint32_t i = 0; i < names->aliases.count; i++) {
		const struct described *file = described_find(d, names->aliases.items[i].version);

		if (file && file->is_left)
			aliases[d->left.alias_count++] = names->aliases.items[i];
	}
	error_set(&d->left_error, t->first.code, "correct the cause, and restart gpuwmd",
		  "versions in %s that did not come back: %u; %s", d->path, d->left.version_count,
		  t->first.message);
	return descriptions_write_names(d);
}

int descriptions_take(struct descriptions *d, bool adopts, uint64_t *ret_adopted)
{
	struct taking t = {.d = d, .adopts = adopts};

	*ret_adopted = 0;
	if (d->folder >= 0) {
		t.left = calloc(HASH_COUNT(d->files) + 1, sizeof(*t.left));
		if (!t.left)
			return -ENOMEM;
		d->left.versions = t.left;
		descriptions_take_all(&t);
	}
	if (d->folder < 0 && d->may_hold && adopts)
		registry_note_unnamed(d->ledger->registry);
	if (d->folder < 0)
		return d->error.code;
	if (d->is_late && t.unknown > 0)
		return refuse_late(d, t.unknown);
	*ret_adopted = t.adopted;
	return d->left.version_count == 0 ? 0 : keep_left(&t);
}
