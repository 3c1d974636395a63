/* Rules for models: several users, real processes. */
#include "kept.h"
#include "user.h"

#include "tests/support/any/own_folder.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(rules);

/* ---- a gpuwmd with rules ---- */

static char config[64];

static void rules_write(const char *text)
{
	FILE *file = fopen(config, "w");

	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static struct gpuwmd *start(const char *text)
{
	snprintf(config, sizeof config, "%s/rules.conf", own_folder());
	rules_write(text);
	return gpuwmd_start("--config", config, "--set", "socket.mode=0666", "--set",
			    "access.publish_group=", NULL);
}

static void reload(struct gpuwmd *d, const char *text, const char *words)
{
	rules_write(text);
	cr_assert_eq(kill(d->pid, SIGHUP), 0);
	cr_assert(EVENTUALLY(SOON_MS, log_says(d, words)), "the log does not say: %s", words);
}

#define RULES_TEST(name)                                                                                       \
	static void name##_body(void);                                                                         \
	Test(rules, name)                                                                                      \
	{                                                                                                      \
		NEEDS_ROOT();                                                                                  \
		SKIP_UNLESS(backend() == BACKEND_HOST, "rules know no memory kinds");                          \
		name##_body();                                                                                 \
	}                                                                                                      \
	static void name##_body(void)

#define SECRET                                                                                                 \
	"[model.1]\nmatch = secret/*\nattach = 61002\npublish = 61001\n"                                       \
	"[model.2]\nmatch = *\npublish = 61001, 61003\n"

RULES_TEST(what_a_user_may_not_attach_to_is_not_there)
{
	struct gpuwmd *d = start(SECRET);
	struct process alice = user_start(ALICE), bob = user_start(BOB), carol = user_start(CAROL);
	json_t *entry;
	char id[33];

	DOES(&bob, "subscribe");
	DOES(&carol, "subscribe");
	DOES(&alice, "publish secret/m@v1");
	DOES(&alice, "publish end@v1");
	DOES(&alice, "attach secret/m");
	DOES(&bob, "attach secret/m");
	cr_assert_eq(does(&bob, "list secret/m"), 1);
	cr_assert_gt(does(&bob, "events secret"), 0);
	entry = version_entry(d, "secret/m", "v1");
	snprintf(id, sizeof id, "%s", json_string_value(json_object_get(entry, "version")));
	json_decref(entry);
	REFUSED(ENOENT, &carol, "attach secret/m");
	cr_assert(strstr(said, "no model \"secret/m\"") && strstr(said, "there is end"), "%s", said);
	REFUSED(ENOENT, &carol, "attach %s", id);
	REFUSED(ENOENT, &carol, "swap secret/m v1");
	REFUSED(ENOENT, &carol, "retire secret/m");
	cr_assert_eq(does(&carol, "list secret/m"), 0);
	cr_assert_eq(does(&carol, "events secret"), 0, "events of a hidden model, or: %s", said);
	user_end(&alice);
	user_end(&bob);
	user_end(&carol);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "secret/m@v1", "end@v1");
	gpuwmd_stop(d);
}

/* Members of nogroup are publishers, members of games observers. */
#define PUBLISHER "65534"
static struct gpuwmd *start_with_groups(const char *text)
{
	snprintf(config, sizeof config, "%s/rules.conf", own_folder());
	rules_write(text);
	return gpuwmd_start("--config", config, "--set", "socket.mode=0666", "--set",
			    "access.publish_group=nogroup", "--set", "access.observe_group=games", NULL);
}

RULES_TEST(other_publishers_keep_off_what_is_somebodys)
{
	struct gpuwmd *d = start_with_groups("");
	struct process alice = process_start(user, "61001", PUBLISHER, NULL);
	struct process bob = process_start(user, "61002", PUBLISHER, NULL);

	DOES(&alice, "publish m@v1");
	DOES(&alice, "publish m@v2 prod");
	REFUSED(EACCES, &bob, "publish m@b current");
	cr_assert(strstr(said, "model \"m\" belongs to uid 61001"), "%s", said);
	REFUSED(EACCES, &bob, "claim m@b");
	REFUSED(EACCES, &bob, "swap m v2");
	REFUSED(EACCES, &bob, "retire m@v2");
	REFUSED(EACCES, &alice, "pin m@v2");
	DOES(&bob, "publish n@v1");
	DOES(&alice, "swap m v2");
	DOES(&alice, "retire m@v1 10000");
	OK(publish_version(d->admin, d->device, "n@o", SMALL(1)));
	DOES(&bob, "retire n@o 10000");
	user_end(&alice);
	user_end(&bob);
	DROP(d, "m@v2", "n@v1");
	gpuwmd_stop(d);
}

RULES_TEST(the_named_publish_and_operate_without_the_group)
{
	struct gpuwmd *d = start("[model.3]\nmatch = m\npublish = 61001\noperate = @61002\n");
	struct process alice = user_start(ALICE), bob = user_start(BOB), carol = user_start(CAROL);

	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	DOES(&alice, "publish m@v2 current");
	DOES(&bob, "publish m@v3");
	DOES(&bob, "swap m v3");
	DOES(&bob, "pin m@v2");
	DOES(&bob, "verify m@v2");
	DOES(&bob, "unpin m@v2");
	REFUSED(EACCES, &alice, "pin m@v2");
	REFUSED(EACCES, &alice, "verify m@v2");
	REFUSED(EACCES, &alice, "publish x@v1");
	REFUSED(EACCES, &carol, "publish m@c");
	REFUSED(EACCES, &carol, "swap m v1");
	DOES(&alice, "retire m@v1 10000");
	user_end(&alice);
	user_end(&bob);
	user_end(&carol);
	DROP(d, "m@v2", "m@v3");
	gpuwmd_stop(d);
}

/* argv: what gpuwmctl is to do, as an observer. */
static int observer_ctl(int argc, char **argv)
{
	gid_t group = (gid_t)atoi(argv[0]);
	char text[4096];
	int code;

	CHILD_ASSERT(argc == 3 && setgroups(1, &group) == 0 && setgid(CAROL) == 0 && setuid(CAROL) == 0);
	code = ctl(text, sizeof text, argv[1], NULL);
	CHILD_ASSERT(code == 0);
	CHILD_ASSERT(strstr(text, argv[2]));
	return 0;
}

/* Whether users that have no right to this path but everybody's reach it. */
static bool is_open_to_others(const char *path)
{
	char folder[PATH_MAX];
	struct stat status;
	bool open = realpath(path, folder);

	while (open && folder[0]) {
		open = stat(folder, &status) == 0 && status.st_mode & S_IXOTH;
		*strrchr(folder, '/') = '\0';
	}
	return open;
}

RULES_TEST(an_observer_reads_everything_and_changes_nothing)
{
	const struct group *games = getgrnam("games");
	struct process alice, observer, tool;
	struct gpuwmd *d;
	char group[16];

	SKIP_UNLESS(games, "there is no group games here");
	SKIP_UNLESS(is_open_to_others(build_path()), "other users can't run the gpuwmctl of this build folder");
	snprintf(group, sizeof group, "%u", games->gr_gid);
	d = start_with_groups(SECRET);
	alice = user_start(ALICE);
	observer = process_start(user, "61003", group, NULL);
	DOES(&observer, "subscribe");
	DOES(&alice, "publish secret/m@v1");
	DOES(&alice, "attach secret/m");
	DOES(&alice, "publish end@v1");
	cr_assert_gt(does(&observer, "events secret"), 0);
	cr_assert_eq(does(&observer, "list secret/m"), 1);
	DOES(&observer, "query clients");
	DOES(&observer, "query jobs");
	DOES(&observer, "query status");
	REFUSED(EACCES, &observer, "attach secret/m");
	cr_assert(strstr(said, "[model.1]"), "%s", said);
	REFUSED(EACCES, &observer, "query drain");
	REFUSED(EACCES, &observer, "retire secret/m@v1");
	REFUSED(EACCES, &observer, "swap secret/m v1");
	REFUSED(EACCES, &observer, "publish secret/m@v2");
	tool = process_start(observer_ctl, group, "ps", "secret/m@v1", NULL);
	process_finish(&tool);
	tool = process_start(observer_ctl, group, "ls", "61001", NULL);
	process_finish(&tool);
	user_end(&observer);
	user_end(&alice);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "secret/m@v1", "end@v1");
	gpuwmd_stop(d);
}

RULES_TEST(a_reload_changes_rights_and_leaves_leases)
{
	struct gpuwmd *d = start("");
	struct process bob = user_start(BOB), carol = user_start(CAROL);

	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	DOES(&carol, "attach m");
	reload(d, "[model.1]\nmatch = m\nattach = 61002\n", "the configuration was read again");
	DOES(&bob, "attach m");
	REFUSED(ENOENT, &carol, "attach m");
	DOES(&carol, "check");
	cr_assert_eq(status_of(d, "leases"), 2);
	reload(d, "[model.1]\nmatch = m\nattach = nobody-is-called-so\n", "the old configuration stays");
	cr_assert(log_says(d, "[model.1] attach: there is no user \"nobody-is-called-so\" here"));
	REFUSED(ENOENT, &carol, "attach m");
	DOES(&bob, "attach m");
	cr_assert(dprintf(carol.to, "wait m\n") > 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	rules_write("[model.1]\nmatch = m\nattach = 61002, 61003\n");
	cr_assert_eq(kill(d->pid, SIGHUP), 0);
	cr_assert_eq(answer_of(&carol), 0, "%s", said);
	user_end(&bob);
	user_end(&carol);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
	gpuwmd_stop(d);
}

/* ---- whose version is wished for ---- */

RULES_TEST(an_owner_who_is_wished_for_is_who_serves)
{
	struct gpuwmd *d = start(SECRET);
	struct process alice = user_start(ALICE), carol = user_start(CAROL), late;

	DOES(&carol, "publish m@v1");
	DOES(&alice, "attach m@v1 61003");
	DOES(&alice, "detach");
	REFUSED(EACCES, &alice, "attach m@v1 operator");
	cr_assert(strstr(said, "m@v1 was made by uid 61003; the request accepts only versions of an operator"),
		  "%s", said);
	REFUSED(EACCES, &alice, "attach m@v1 61001");
	OK(publish_version(d->admin, d->device, "m@o", SMALL(1)));
	DOES(&alice, "attach m@o operator");
	REFUSED(EACCES, &alice, "switch m@v1");
	DOES(&alice, "check");
	DOES(&alice, "detach");
	/* A call that waits, for whatever version gets the name. */
	late = user_start(BOB);
	cr_assert(dprintf(late.to, "wait m@late 61001\n") > 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	DOES(&carol, "publish m@late");
	cr_assert_eq(answer_of(&late), -EACCES, "%s", said);
	user_end(&alice);
	user_end(&carol);
	user_end(&late);
	DROP(d, "m@v1", "m@o", "m@late");
	gpuwmd_stop(d);
}

/* ---- restarts ---- */

#define KEPT_RULES LIMITS_SHORT "[socket]\nmode = 0666\n[access]\npublish_group = nogroup\n"

RULES_TEST(an_owner_survives_a_restart_and_ends_with_the_model)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(const struct kept){.limits = KEPT_RULES});
	struct process alice = process_start(user, "61001", PUBLISHER, NULL);
	struct process bob = process_start(user, "61002", PUBLISHER, NULL);

	DOES(&alice, "publish m@v1");
	OK(publish_version(d->admin, d->device, "m@o", SMALL(1)));
	DOES(&alice, "swap m o");
	DOES(&alice, "retire m@v1 10000");
	kept_kill(d, SIGKILL);
	REFUSED(EACCES, &bob, "publish m@b");
	cr_assert(strstr(said, "belongs to uid 61001"), "%s", said);
	DOES(&alice, "publish m@v2");
	DROP(d, "m@v2", "m@o");
	DOES(&bob, "publish m@b");
	REFUSED(EACCES, &alice, "publish m@v3");
	user_end(&alice);
	user_end(&bob);
	DROP(d, "m@b");
	gpuwmd_stop_empty(d);
}

RULES_TEST(a_lease_is_resumed_by_those_who_may_attach)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(const struct kept){.limits = KEPT_RULES});
	struct process bob = user_start(BOB), carol = user_start(CAROL);

	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	DOES(&bob, "attach m");
	DOES(&carol, "attach m");
	kept_configure(d, &(const struct kept){.limits = KEPT_RULES "[model.1]\nmatch = m\nattach = 61002\n"});
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, does(&carol, "check") == -ENOENT), "%s", said);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1));
	DOES(&bob, "check");
	user_end(&bob);
	user_end(&carol);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}
