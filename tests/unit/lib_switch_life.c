/* Switching, while gpuwmd comes and goes, in children and in several threads. */
#include "tests/support/lib/switch.h"
#include "tests/support/any/child.h"

#include <errno.h>
#include <fcntl.h>

TestSuite(switch_life, .init = switch_setup, .fini = client_teardown);

Test(switch_life, is_refused_in_a_child)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_assert(eq(int, IN_CHILD(gpuwm_switch(mapping, "m@v2", NULL) == -ECHILD ? 0 : 1), 0));
	is_version(mapping, v1, 1);
	gpuwm_detach(mapping);
}

Test(switch_life, leaves_a_child_what_it_inherited_and_no_descriptor)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor tensor;
	int status, ends[2];
	char go;
	pid_t child;

	gpuwm_tensor_at(mapping, 2, &tensor);
	cr_assert(eq(int, pipe2(ends, O_CLOEXEC), 0));
	child = fork();
	if (child == 0) {
		close(ends[1]);
		/* The fake's own are two versions' segments, and those of what was handed in. */
		if (fake_segments_held() != 5 || read(ends[0], &go, 1) != 0)
			_exit(1);
		_exit(*(const uint8_t *)tensor.data == 1 ? 0 : 2);
	}
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	close(ends[0]);
	close(ends[1]);
	waitpid(child, &status, 0);
	cr_assert(eq(int, status, 0));
	is_version(mapping, v2, 2);
	gpuwm_detach(mapping);
}

/* ---- restarts ---------------------------------------------------------- */

Test(switch_life, outlives_a_gpuwmd_that_dies_at_any_of_its_requests)
{
	const char *const methods[] = {"get_handles", "release"};
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int fill = 1;

	for (int i = 0; i < 4; i++) {
		fake->answers_first = i >= 2;
		pause_forget();
		dies_at(methods[i % 2], 1);
		fill = 3 - fill;
		cr_assert(eq(int, gpuwm_switch(mapping, fill == 2 ? "m@v2" : "m@v1", NULL), 0), "%s",
			  gpuwm_error()->message);
		UNTIL(fake->deaths == 0); /* it may answer first */
		leases_are(1);
		holds_one_lease(mapping);
		is_version(mapping, fill == 2 ? v2 : v1, fill);
		cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	}
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(switch_life, waits_for_a_gpuwmd_that_is_away_and_gives_up_in_time)
{
	struct gpuwm_mapping *mapping;

	with_restart_ms(50);
	mapping = attach_to("m@v1");
	fake_kill(fake);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ECONNREFUSED));
	is_version(mapping, v1, 1);
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v2, 2);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switch_life, goes_away_from_a_lost_lease)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	error_set(&fake->loss, -ESTALE, NULL, "m@v1 was lost");
	fake->lose = 1;
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ESTALE);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	is_version(mapping, v2, 2);
	holds_one_lease(mapping);
	cr_assert(eq(uint, fake->releases, 0));
	gpuwm_detach(mapping);
}

static _Atomic unsigned switches;
static _Atomic bool over;

/* One gpuwmd after each switch, and one while the next switch is under way. */
static void *restart_often(void *unused)
{
	while (!over) {
		const unsigned before = switches;

		fake_restart();
		fake_restart();
		while (switches == before && !over)
			poll(NULL, 0, 1);
	}
	return unused;
}

Test(switch_life, goes_on_while_gpuwmd_comes_and_goes)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	pthread_t thread;
	int fds = settled_fds();

	pthread_create(&thread, NULL, restart_often, NULL);
	for (int i = 0; i < 60; i++) {
		pause_forget();
		cr_assert(eq(int, gpuwm_switch(mapping, i % 2 ? "m@v1" : "m@v2", NULL), 0), "%s",
			  gpuwm_error()->message);
		cr_assert(eq(int, filled_with(mapping), i % 2 ? 1 : 2));
		switches++;
	}
	over = true;
	pthread_join(thread, NULL);
	leases_are(1);
	holds_one_lease(mapping);
	UNTIL(settled_fds() == fds);
	gpuwm_detach(mapping);
}

/* ---- threads ----------------------------------------------------------- */

static void *switch_often(void *unused)
{
	struct gpuwm_mapping *mapping = NULL;
	int r = gpuwm_attach(client, "m@v1", NULL, &mapping);

	/* Whoever shares the mapping by chance is refused, and finds it as it was. */
	for (int i = 0; i < 50 && r == 0; i++) {
		const char *other = strcmp(gpuwm_mapping_version(mapping)->tag, "v1") == 0 ? "m@v2" : "m@v1";

		r = gpuwm_switch(mapping, other, NULL);
		r = r == -EBUSY ? 0 : r;
		if (filled_with(mapping) != gpuwm_mapping_version(mapping)->tag[1] - '0')
			r = -EBADMSG;
	}
	(void)unused;
	return (void *)(intptr_t)(r < 0 ? r : gpuwm_detach(mapping));
}

Test(switch_life, is_done_by_several_threads_with_their_own_mappings)
{
	pthread_t threads_[4];
	void *r;

	for (int i = 0; i < 4; i++)
		pthread_create(&threads_[i], NULL, switch_often, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads_[i], &r);
		cr_assert(eq(int, (int)(intptr_t)r, 0));
	}
	cr_assert(eq(uint, fake->leases, 0));
}
