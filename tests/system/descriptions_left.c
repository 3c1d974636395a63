/* Descriptions that a start can't read: each costs its own version, and never gives a model away. */
#include "described.h"
#include "user.h"

#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

SYSTEM_SUITE(descriptions_left);

/* Members of nogroup are publishers here. */
#define PUBLISHER "65534"
#define OPEN_TO_ALL "--set", "socket.mode=0666", "--set", "access.publish_group=nogroup"
#define LEFT_TEST(name)                                                                                        \
	GPUWMD_TEST_BY(descriptions_left, name, described_start(OPEN_TO_ALL, NULL), described_stop)

static struct process publisher_start(void)
{
	return process_start(user, "61001", PUBLISHER, NULL);
}

static bool described_as(struct gpuwmd *d, const char *model, const char *tag)
{
	json_t *entry = version_entry(d, model, tag);
	bool is = entry && json_is_true(json_object_get(entry, "described"));

	json_decref(entry);
	return is;
}

/* An operator loads v1 of models k1, k2, …; the second one is pinned and has an alias of its own. */
static void load_models(struct gpuwmd *d, unsigned count)
{
	for (unsigned i = 1; i <= count; i++) {
		char file[16], model[16], ref[32];

		snprintf(file, sizeof file, "k%u-v1", i);
		snprintf(model, sizeof model, "k%u", i);
		snprintf(ref, sizeof ref, "k%u@v1", i);
		load_version(d, checkpoint_write(d, file, SMALL(i)), ref);
		cr_assert(EVENTUALLY(SOON_MS, described_as(d, model, "v1")));
	}
	OK(gpuwm_pin(d->admin, "k2@v1", "night"));
	CTL_IS(0, "alias", "k2@v1", "prod");
	cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(d)));
}

/* The path of the version's file. */
static void file_of(struct gpuwmd *d, const char *model, char path[256])
{
	json_t *entry = version_entry(d, model, "v1");
	char name[64];

	cr_assert(entry);
	snprintf(name, sizeof name, "%s.version", json_string_value(json_object_get(entry, "version")));
	json_decref(entry);
	snprintf(path, 256, "%s", described_path(d, name));
}

/* A socket takes the file's place: nobody can open it, root neither. */
static void block(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char kept[300];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(kept, sizeof kept, "%s.kept", path);
	cr_assert_eq(rename(path, kept), 0);
	cr_assert(strlen(path) < sizeof address.sun_path);
	strcpy(address.sun_path, path);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	close(fd);
}

static void unblock(const char *path)
{
	char kept[300];

	snprintf(kept, sizeof kept, "%s.kept", path);
	cr_assert_eq(rename(kept, path), 0);
}

/* Changes the file's format, which its header has behind the magic. */
static void set_format(const char *path, uint32_t format)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && pwrite(fd, &format, sizeof format, 8) == sizeof format && close(fd) == 0, "%s",
		  path);
}

static void expect_all_back(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, NULL)));
	worker_waits(d, "k1", 1);
	worker_waits(d, "k2@prod", 2);
	worker_waits(d, "k3", 3);
}

LEFT_TEST(a_file_that_cant_be_opened_costs_its_own_version)
{
	char path[256];

	load_models(d, 3);
	file_of(d, "k2", path);
	block(path);
	described_reboot(d, SIGKILL);
	cr_assert_eq(tiers_number(d, "found"), 2);
	cr_assert(tiers_error(d, "that did not come back: 1;"));
	worker_waits(d, "k1", 1);
	worker_waits(d, "k3", 3);
	CTL_IS(4, "show", "k2");
	SAYS("model \"k2\" has no version: those that it had did not come back");
	load_version(d, checkpoint_write(d, "k4-v1", SMALL(4)), "k4@v1");
	cr_assert(EVENTUALLY(SOON_MS, described_as(d, "k4", "v1")), "new versions are described");
	/* The names were written meanwhile, and list it still. */
	described_reboot(d, SIGKILL);
	cr_assert_eq(tiers_number(d, "found"), 3);
	unblock(path);
	described_reboot(d, SIGKILL);
	expect_all_back(d);
	OK(gpuwm_unpin(d->admin, "k2@v1", "night"));
}

LEFT_TEST(no_publisher_gets_a_model_whose_versions_did_not_come_back)
{
	struct process alice;
	char path[256];

	NEEDS_ROOT();
	load_models(d, 3);
	file_of(d, "k2", path);
	block(path);
	described_reboot(d, SIGKILL);
	alice = publisher_start();
	REFUSED(EACCES, &alice, "publish k1@evil current");
	REFUSED(EACCES, &alice, "publish k2@evil current");
	cr_assert(strstr(said, "model \"k2\" belongs to operators"), "%s", said);
	REFUSED(EACCES, &alice, "claim k2@evil");
	REFUSED(EACCES, &alice, "publish k3@evil current");
	DOES(&alice, "publish hers@v1 current");
	user_end(&alice);
	/* An operator may, and the model stays the operators'. */
	load_version(d, checkpoint_write(d, "k2-v9", SMALL(9)), "k2@v9");
	cr_assert(EVENTUALLY(SOON_MS, described_as(d, "k2", "v9") && !tiers_pending(d)));
	unblock(path);
	described_reboot(d, SIGKILL);
	expect_all_back(d);
	cr_assert(version_is(d, "k2", "v9", "ready"));
	alice = publisher_start();
	REFUSED(EACCES, &alice, "publish k2@evil current");
	user_end(&alice);
}

LEFT_TEST(a_damaged_file_leaves_its_model_to_its_owner)
{
	struct process alice;
	char path[256];

	NEEDS_ROOT();
	load_models(d, 3);
	file_of(d, "k2", path);
	cr_assert_eq(truncate(path, 40), 0);
	for (unsigned start = 0; start < 2; start++) {
		described_reboot(d, SIGKILL);
		alice = publisher_start();
		REFUSED(EACCES, &alice, "publish k2@evil current");
		cr_assert(strstr(said, "model \"k2\" belongs to operators"), "%s", said);
		user_end(&alice);
	}
	load_version(d, checkpoint_write(d, "k2-v9", SMALL(9)), "k2@v9");
	worker_waits(d, "k2", 9);
}

/* After a downgrade nothing says which models there are. */
LEFT_TEST(a_folder_of_a_newer_gpuwmd_gives_no_model_away)
{
	char paths[4][256], model[16];
	struct process alice;

	NEEDS_ROOT();
	load_models(d, 3);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(model, sizeof model, "k%u", i + 1);
		file_of(d, model, paths[i]);
	}
	snprintf(paths[3], sizeof paths[3], "%s", described_path(d, "names"));
	described_end(d, SIGKILL);
	for (unsigned i = 0; i < 4; i++)
		set_format(paths[i], 99);
	for (unsigned start = 0; start < 2; start++) {
		described_spawn(d);
		gpuwmd_wait(d);
		cr_assert(tiers_error(d, "that did not come back: 3;"));
		cr_assert(tiers_error(d, "has format 99 of a newer gpuwmd"));
		alice = publisher_start();
		REFUSED(EACCES, &alice, "publish k1@evil current");
		cr_assert(strstr(said, "gpuwmd could not read all descriptions"), "%s", said);
		user_end(&alice);
		described_end(d, SIGKILL);
	}
	described_spawn(d);
	gpuwmd_wait(d);
	load_version(d, checkpoint_write(d, "k4-v1", SMALL(4)), "k4@v1");
	cr_assert(EVENTUALLY(SOON_MS, described_as(d, "k4", "v1")), "new versions are described");
	described_end(d, SIGKILL);
	for (unsigned i = 0; i < 3; i++)
		set_format(paths[i], 1);
	described_spawn(d);
	gpuwmd_wait(d);
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, NULL)));
	cr_assert_eq(tiers_number(d, "found"), 4);
	worker_waits(d, "k1@v1", 1);
	worker_waits(d, "k4", 4);
	alice = publisher_start();
	REFUSED(EACCES, &alice, "publish k1@evil current");
	DOES(&alice, "publish hers@v1 current");
	user_end(&alice);
}

LEFT_TEST(a_folder_that_is_refused_gives_no_model_away)
{
	struct process alice;
	char path[256];

	NEEDS_ROOT();
	load_models(d, 2);
	snprintf(path, sizeof path, "%s", described_path(d, ""));
	described_end(d, SIGKILL);
	cr_assert_eq(chmod(path, 0777), 0);
	described_spawn(d);
	gpuwmd_wait(d);
	alice = publisher_start();
	REFUSED(EACCES, &alice, "publish k1@evil current");
	user_end(&alice);
	cr_assert_eq(chmod(path, 0700), 0);
	described_reboot(d, SIGKILL);
	worker_waits(d, "k1", 1);
	alice = publisher_start();
	DOES(&alice, "publish hers@v1 current");
	user_end(&alice);
}

/* ---- with an fd store --------------------------------------------------- */

static char kept_text[128], kept_folder[64];

/* The state has what was described; what was left is tried again at each start, and is never removed. */
Test(descriptions_left, a_restart_with_the_memory_tries_again)
{
	struct kept how = {.limits = kept_text};
	struct gpuwmd *d;
	char path[256];

	snprintf(kept_folder, sizeof kept_folder, "%s/left", own_folder());
	snprintf(kept_text, sizeof kept_text, "grace_ms = 300\n[tiers]\nfolder = %s\n", kept_folder);
	d = gpuwmd_start_kept(&how);
	load_models(d, 3);
	file_of(d, "k2", path);
	snprintf(path, sizeof path, "%s/%s", kept_folder, strrchr(path, '/') + 1);
	block(path);
	keeper_restart(d, &how);
	kept_wait(d);
	cr_assert_eq(tiers_number(d, "found"), 2);
	kept_kill(d, SIGKILL);
	cr_assert(tiers_error(d, "that did not come back: 1;"));
	unblock(path);
	kept_kill(d, SIGKILL);
	expect_all_back(d);
	kept_kill(d, SIGKILL);
	expect_all_back(d);
	OK(gpuwm_unpin(d->admin, "k2@v1", "night"));
	DROP(d, "k1@v1", "k2@v1", "k3@v1");
	gpuwmd_stop_empty(d);
}
