/* Threads and processes that gpuwmd can't have. */
#include "starting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(threads);

/* A user of this test process alone, so that gpuwmd's processes are counted alone. */
static uid_t somebody(void)
{
	return 100000 + (uid_t)getpid();
}

#define GIVE_UP_MS 60000

/* A load works, or its error tells why not; gpuwmd goes on and stops as it should. */
static void is_of_use(struct starting *s, const char *limit)
{
	const char *source = checkpoint_write(s->d, "m", SMALL(1));
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	int r;

	options.wait_ms = GIVE_UP_MS;
	options.flags = GPUWM_CONNECT_ADMIN;
	OK(gpuwm_connect(&options, &s->d->admin));
	strcpy(s->d->device, "host");
	r = load_try(s->d, source, "m@v1");
	cr_assert(r == 0 || strstr(gpuwm_error()->detail, limit) || strstr(gpuwm_error()->message, limit) ||
			  log_says(s->d, limit),
		  "%s: %s (%s)", limit, gpuwm_error()->message, gpuwm_error()->detail);
	OK(gpuwm_ping(s->d->admin, NULL));
	gpuwm_close(s->d->admin);
	starting_stop(s);
}

static void give_folder(const struct starting *s)
{
	cr_assert(chown(s->d->dir, somebody(), (gid_t)somebody()) == 0);
}

Test(threads, without_them_gpuwmd_does_not_start_and_names_the_limit_of_processes, .timeout = 200)
{
	/* gpuwmd alone, with some threads, with all; with a loader that has no threads; enough. */
	static const char *const most[] = {"1", "3", "5", "6", "64"};
	char limit[64], user[32], group[32], expected[64];
	const char *const words[] = {"/usr/bin/prlimit", limit, "/usr/bin/setpriv", user, group,
				     "--clear-groups",   NULL};
	unsigned refused = 0;
	struct starting s;

	NEEDS_ROOT();
	SKIP_UNLESS(build_is_open_to(somebody()), "another user can't reach the programs here");
	SKIP_UNLESS(!SANITIZED, "the sanitizer starts threads of its own");
	SKIP_UNLESS(backend() == BACKEND_HOST, "one backend is enough");
	starting_prepare(&s);
	give_folder(&s);
	snprintf(user, sizeof user, "--reuid=%u", (unsigned)somebody());
	snprintf(group, sizeof group, "--regid=%u", (unsigned)somebody());
	for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
		snprintf(limit, sizeof limit, "--nproc=%s", most[i]);
		snprintf(expected, sizeof expected, "RLIMIT_NPROC is %s processes", most[i]);
		starting_run(&s, words);
		refused += s.ended;
		if (s.ended)
			starting_refused(&s, expected);
		else
			is_of_use(&s, "RLIMIT_NPROC");
	}
	cr_assert_eq(refused, 2);
	s.d->stopped = true;
	close(s.manager);
}

Test(threads, without_address_space_gpuwmd_does_not_start_and_names_the_limit, .timeout = 200)
{
	char limit[64];
	const char *const words[] = {"/usr/bin/prlimit", limit, NULL};
	bool named = false, served = false;
	struct starting s;

	SKIP_UNLESS(!SANITIZED, "the sanitizer needs terabytes of address space");
	SKIP_UNLESS(backend() == BACKEND_HOST, "one backend is enough");
	starting_prepare(&s);
	for (uint64_t bytes = MB(8); bytes <= MB(128); bytes += MB(8)) {
		snprintf(limit, sizeof limit, "--as=%ju", (uintmax_t)bytes);
		starting_run(&s, words);
		served |= s.ready;
		named |= s.ended && log_says(s.d, "RLIMIT_AS is ");
		if (s.ended)
			starting_refused(&s, "rror"); /* below some size the dynamic linker refuses */
		else
			starting_stop(&s);
	}
	cr_assert(named && served);
	s.d->stopped = true;
	close(s.manager);
}
