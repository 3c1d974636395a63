/* Descriptions on a disk that fails: nothing that was described is lost or half written, and the next success heals. */
#include "described.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

SYSTEM_SUITE(bad_disk);

static const struct {
	const char *call;
	int error;
	unsigned after; /* bytes */
} disk_faults[] = {
	{"pwrite", ENOSPC, 0},   {"pwrite", ENOSPC, 40}, {"pwrite", ENOSPC, 300}, {"pwrite", EDQUOT, 0},
	{"pwrite", EIO, 100},    {"pwrite", EFBIG, 64},  {"fsync", EIO, 0},       {"fsync", EDQUOT, 0},
	{"renameat", EDQUOT, 0}, {"renameat", EIO, 0},
};

static const char *fault_path(const struct gpuwmd *d)
{
	static char path[128];

	snprintf(path, sizeof path, "%s/fault", d->dir);
	return path;
}

static void fault_set(const struct gpuwmd *d, const char *call, int error, unsigned after)
{
	FILE *file = fopen(fault_path(d), "we");

	cr_assert(file);
	fprintf(file, "%s %d %u\n", call, error, after);
	fclose(file);
}

static struct gpuwmd *begin(void)
{
	struct gpuwmd *d = described_start(NULL);
	char folder[256];

	/* From the next start on. */
	snprintf(folder, sizeof folder, "%s/described", d->dir);
	setenv("BAD_DISK_FOLDER", folder, 1);
	setenv("BAD_DISK_FAULT", fault_path(d), 1);
	preload("bad-disk");
	describe_small(d, 1);
	described_reboot(d, SIGTERM);
	return d;
}

static void end(struct gpuwmd *d)
{
	preload(NULL);
	described_stop(d);
}

/* What a full or broken disk makes of a load and a pin: both are done, and everybody is told that they are not described. */
static void fails_and_heals(struct gpuwmd *d, size_t i)
{
	const char *checkpoint = checkpoint_write(d, "v2", SMALL(2));

	fault_set(d, disk_faults[i].call, disk_faults[i].error, disk_faults[i].after);
	load_version(d, checkpoint, "m@v2");
	OK(gpuwm_pin(d->admin, "m@v1", "night"));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, "descriptions can't be written into")), "%s",
		  disk_faults[i].call);
	cr_assert(tiers_error(d, strerror(disk_faults[i].error)));
	CTL_IS(0, "status");
	SAYS("NOT DESCRIBED");
	SAYS("described");
	attach_reads("m@v2", 2);
	/* With the disk as bad as before: what was described is there, and nothing of what was not. */
	described_reboot(d, SIGKILL);
	cr_assert(version_is(d, "m", "v1", "ready"), "%s", disk_faults[i].call);
	attach_reads("m@v1", 1);
	cr_assert_eq(unlink(fault_path(d)), 0);
	OK(gpuwm_reload(d->admin));
	load_version(d, checkpoint, "m@v3");
	OK(gpuwm_pin(d->admin, "m@v1", "day"));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, NULL) && is_described(d, "v3") && !tiers_pending(d)));
	described_reboot(d, SIGKILL);
	attach_reads("m@v1", 1);
	attach_reads("m@v3", 2);
	OK(gpuwm_unpin(d->admin, "m@v1", "day"));
	gpuwm_unpin(d->admin, "m@v1",
		    "night"); /* it is there where its description was written before the fault */
	DROP(d, "m@v3");
	gpuwm_retire_by_force(d->admin, "m@v2", 0, SOON_MS); /* the same */
	cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(d)));
}

GPUWMD_TEST_IF(bad_disk, descriptions_survive_it_and_heal,
	       SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library"), begin(), end)
{
	for (size_t i = 0; i < sizeof disk_faults / sizeof disk_faults[0]; i++)
		fails_and_heals(d, i);
}
