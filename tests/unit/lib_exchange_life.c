/* Exchanging, while gpuwmd comes and goes, in children and in several threads. */
#include "tests/support/lib/exchange.h"

#include <errno.h>
#include <fcntl.h>

TestSuite(exchange_life, .init = exchange_setup, .fini = exchange_teardown);

static void exchanges(void)
{
	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), 0), "%s", gpuwm_error()->message);
}

/* ---- gpuwmd ------------------------------------------------------------ */

Test(exchange_life, asks_gpuwmd_nothing)
{
	unsigned requests = fake->requests;

	exchanges();
	cr_assert(eq(uint, fake->requests, requests));
	are_at(other, mapping);
}

Test(exchange_life, needs_no_gpuwmd)
{
	fake_kill(fake);
	exchanges();
	is_version(mapping, v2, 2);
	is_version(other, v1, 1);
	exchanges();
	exchanges();
	fake_run_again(fake);
	leases_are(2);
	are_at(other, mapping);
	cr_assert(eq(uint, fake->resumed, 2));
	detach_gives_back(&other);
	has_its_lease(mapping);
}

Test(exchange_life, both_leases_are_taken_again_after_a_restart)
{
	exchanges();
	for (unsigned i = 1; i <= 2; i++) {
		pause_forget();
		fake_restart();
		leases_are(2);
		cr_assert(eq(uint, fake->resumed, 2 * i));
		are_at(other, mapping);
		cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
		cr_assert(eq(int, gpuwm_mapping_check(other), 0));
	}
	detach_gives_back(&mapping);
	detach_gives_back(&other);
}

Test(exchange_life, a_detach_while_gpuwmd_is_away_ends_the_lease_of_its_version)
{
	exchanges();
	fake_kill(fake);
	cr_assert(eq(int, gpuwm_detach(other), 0));
	other = NULL;
	fake_run_again(fake);
	leases_are(1);
	is_version(mapping, v2, 2);
	holds_one_lease(mapping);
}

Test(exchange_life, a_revoked_lease_goes_with_its_version)
{
	fake_revoke(fake, mapping->lease->id);
	UNTIL(gpuwm_mapping_check(mapping) == -ESTALE);
	exchanges();
	cr_assert(gpuwm_mapping_revoked(other) && !gpuwm_mapping_revoked(mapping));
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_mapping_check(other), -ESTALE));
	cr_assert(strstr(gpuwm_error()->message, "the lease on m@v1 was revoked") != NULL);
	detach_gives_back(&other);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
}

Test(exchange_life, a_lease_stays_with_the_client_that_holds_it)
{
	struct gpuwm_connect_options options = to_fake();
	struct gpuwm_client *second = client_with(&options);

	gpuwm_detach(other);
	cr_assert(eq(int, gpuwm_attach(second, "m@v2", NULL, &other), 0));
	gpuwm_close(second);
	exchanges();
	are_at(other, mapping);
	cr_assert(other->client == client && mapping->client == second);
	fake_restart();
	leases_are(2);
	/* gpuwmd has both leases again; this client has heard of its one, too. A lease that is given back earlier is released later. */
	cr_assert(eq(int, gpuwm_ping(second, NULL), 0), "%s", gpuwm_error()->message);
	are_at(other, mapping);
	/* The last use of the second client. */
	detach_gives_back(&mapping);
	has_its_lease(other);
}

/* ---- children ---------------------------------------------------------- */

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

Test(exchange_life, is_refused_in_a_child)
{
	struct gpuwm_connect_options options = to_fake();
	pid_t child = fork();

	if (child == 0) {
		struct gpuwm_mapping *own = NULL;
		struct gpuwm_client *again;

		if (gpuwm_connect(&options, &again) < 0 || gpuwm_attach(again, "m@v2", NULL, &own) < 0)
			_exit(1);
		if (gpuwm_exchange(mapping, other, NULL) != -ECHILD)
			_exit(2);
		/* One of the two is its own. */
		if (gpuwm_exchange(mapping, own, NULL) != -ECHILD ||
		    gpuwm_exchange(own, mapping, NULL) != -ECHILD)
			_exit(3);
		_exit(0);
	}
	cr_assert(eq(int, status_of(child), 0));
	are_at(mapping, other);
	UNTIL(fake->leases == 2);
}

/* What a child finds: the bytes, and no descriptor besides the fake's own: two versions' segments, and those of what
 * was handed in. */
static int child_finds(const struct gpuwm_tensor *here, const struct gpuwm_tensor *there, int fill)
{
	if (fake_segments_held() != 5)
		return 1;
	return *(const uint8_t *)here->data == fill && *(const uint8_t *)there->data == 3 - fill ? 0 : 2;
}

Test(exchange_life, leaves_a_child_what_it_inherited_and_no_descriptor)
{
	struct gpuwm_tensor here, there;
	int ends[2];
	char go;
	pid_t before, after;

	gpuwm_tensor_at(mapping, 2, &here);
	gpuwm_tensor_at(other, 2, &there);
	cr_assert(eq(int, pipe2(ends, O_CLOEXEC), 0));
	before = fork();
	if (before == 0) {
		close(ends[1]);
		_exit(read(ends[0], &go, 1) == 0 ? child_finds(&here, &there, 1) : 3);
	}
	exchanges();
	close(ends[0]);
	close(ends[1]);
	after = fork();
	if (after == 0)
		_exit(child_finds(&here, &there, 2));
	cr_assert(eq(int, status_of(before), 0));
	cr_assert(eq(int, status_of(after), 0));
	are_at(other, mapping);
}

static void *exchange_often(void *data)
{
	const _Atomic bool *stop = data;
	int r = 0;

	while (!*stop && r == 0)
		r = gpuwm_exchange(mapping, other, NULL);
	return (void *)(intptr_t)r;
}

Test(exchange_life, a_child_of_another_thread_keeps_no_descriptor)
{
	_Atomic bool stop = false;
	int fds = settled_fds();
	pthread_t thread;
	void *r;

	pthread_create(&thread, NULL, exchange_often, (void *)&stop);
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(fake_segments_held() == 5 ? 0 : 1);
		cr_assert(eq(int, status_of(child), 0));
	}
	stop = true;
	pthread_join(thread, &r);
	cr_assert(eq(int, (int)(intptr_t)r, 0));
	cr_assert(eq(int, settled_fds(), fds));
}

/* ---- threads ----------------------------------------------------------- */

/* By chance it shares one of the two: then that thread is refused. */
static void *attach_often(void *data)
{
	const _Atomic bool *stop = data;

	for (int i = 0; !*stop; i++) {
		struct gpuwm_mapping *mine = attach_to(i % 2 ? "m@v1" : "m@v2");

		if (filled_with(mine) != (i % 2 ? 1 : 2))
			return (void *)(intptr_t)-EBADMSG;
		gpuwm_detach(mine);
	}
	return NULL;
}

Test(exchange_life, goes_on_while_others_attach)
{
	_Atomic bool stop = false;
	int exchanged = 0, refused = 0;
	pthread_t thread;
	void *r;

	pthread_create(&thread, NULL, attach_often, (void *)&stop);
	while (exchanged < 100 || refused == 0) {
		int result = gpuwm_exchange(mapping, other, NULL);

		cr_assert(result == 0 || result == -EBUSY, "%s", gpuwm_error()->message);
		exchanged += result == 0;
		refused += result < 0;
		are_at(exchanged % 2 ? other : mapping, exchanged % 2 ? mapping : other);
	}
	stop = true;
	pthread_join(thread, &r);
	cr_assert(r == NULL);
}
