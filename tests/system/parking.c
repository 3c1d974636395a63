/* Mappings that give their memory back for a while. On fakecuda the device is a GPU, which versions leave for host memory; on host they
 * leave for files only. */
#include "described.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(parking);

#define LOWER (backend() == BACKEND_HOST ? "files" : "host")

/* ---- a worker ------------------------------------------------------------ */

struct worker {
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	const void *address;
};

static struct worker attached(const char *ref)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct worker w = {.client = client_new()};

	options.wait_ms = SOON_MS;
	OK(gpuwm_attach(w.client, ref, &options, &w.mapping));
	w.address = gpuwm_mapping_address(w.mapping, NULL);
	return w;
}

static void holds(const struct worker *w, uint64_t seed)
{
	cr_assert(mapping_holds(w->mapping, seed));
	cr_assert_eq(gpuwm_mapping_address(w->mapping, NULL), w->address);
}

static void leave(struct worker *w)
{
	OK(gpuwm_detach(w->mapping));
	gpuwm_close(w->client);
}

#define PARKING_TEST(name) GPUWMD_TEST_BY(parking, name, tiers_begin(), tiers_end)
#define RETIRING_TEST(name) GPUWMD_TEST_BY(parking, name, tiers_begin(), gpuwmd_stop_empty)

/* ---- there and back ------------------------------------------------------ */

PARKING_TEST(what_stays_is_there_at_once)
{
	struct worker w = attached("m@v1");

	for (int round = 0; round < 20; round++) {
		OK(gpuwm_park(w.mapping, 0));
		OK(gpuwm_park(w.mapping, 0));
		cr_assert(gpuwm_mapping_parked(w.mapping));
		OK(gpuwm_mapping_check(w.mapping));
		OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, 0));
		OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, 0));
		cr_assert_not(gpuwm_mapping_parked(w.mapping));
	}
	holds(&w, 1);
	leave(&w);
}

PARKING_TEST(a_parked_version_may_leave_and_comes_back)
{
	const uint64_t used = device_used(d);
	struct worker w = attached("m@v1");

	for (int round = 0; round < 3; round++) {
		CTL_IS(5, "demote", "m@v1", "--to", LOWER);
		SAYS("m@v1 has 1 lease");
		OK(gpuwm_park(w.mapping, 0));
		demote(d, "m@v1", LOWER);
		if (backend() == BACKEND_FAKECUDA)
			cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0), "its memory is still charged");
		FAILS(ETIMEDOUT, gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, 0));
		cr_assert(gpuwm_mapping_parked(w.mapping));
		OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
		holds(&w, 1);
		cr_assert_eq(device_used(d), used);
	}
	leave(&w);
}

PARKING_TEST(who_is_awake_keeps_it_there)
{
	struct worker w = attached("m@v1"), awake = attached("m@v1");

	OK(gpuwm_park(w.mapping, 0));
	CTL_IS(0, "ps");
	SAYS("parked");
	SAYS("held");
	CTL_IS(5, "demote", "m@v1", "--to", LOWER);
	SAYS("m@v1 has 1 lease");
	leave(&awake);
	demote(d, "m@v1", LOWER);
	leave(&w);
}

PARKING_TEST(status_says_what_would_leave_next)
{
	struct worker first = attached("m@v1"), second;

	CTL_IS(0, "status");
	cr_assert_not(strstr(output, "next:"), "%s", output);
	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
	second = attached("m@v2");
	OK(gpuwm_park(second.mapping, 0));
	CTL_IS(0, "status");
	SAYS("next: m@v2, 6"); /* MiB, in a GPU's granularity */
	OK(gpuwm_park(first.mapping, 0));
	CTL_IS(0, "status");
	SAYS("next: m@v2");
	OK(gpuwm_unpark(second.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	CTL_IS(0, "status");
	SAYS("next: m@v1");
	OK(gpuwm_park(second.mapping, 0));
	CTL_IS(0, "status");
	SAYS("next: m@v1"); /* it was parked longest ago */
	leave(&first);
	leave(&second);
	DROP(d, "m@v2");
}

/* A lease that is parked keeps the version from being freed. */
RETIRING_TEST(what_is_parked_is_not_freed)
{
	struct worker w = attached("m@v1");

	OK(gpuwm_park(w.mapping, 0));
	CTL_IS(0, "retire", "m@v1", "--aliases");
	OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, 0));
	holds(&w, 1);
	OK(gpuwm_park(w.mapping, 0));
	leave(&w);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
}

RETIRING_TEST(what_was_retired_below_does_not_come_back)
{
	struct worker w = attached("m@v1");

	OK(gpuwm_park(w.mapping, 0));
	demote(d, "m@v1", LOWER);
	CTL_IS(0, "retire", "m@v1", "--aliases");
	FAILS(ENOENT, gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	cr_assert(strstr(gpuwm_error()->message, "m@v1 is retiring"), "%s", gpuwm_error()->message);
	leave(&w);
}

RETIRING_TEST(a_kicked_one_stays_away)
{
	struct worker w = attached("m@v1");

	OK(gpuwm_park(w.mapping, 0));
	CTL_IS(0, "retire", "m@v1", "--aliases", "--force");
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0), "nobody maps it");
	FAILS(ESTALE, gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	leave(&w);
}

/* ---- several in one process ------------------------------------------------ */

PARKING_TEST(the_last_one_that_parks_takes_the_memory_out)
{
	struct worker w = attached("m@v1");
	struct gpuwm_mapping *second;

	OK(gpuwm_attach(w.client, "m@v1", NULL, &second));
	OK(gpuwm_park(w.mapping, 0));
	cr_assert(mapping_holds(second, 1));
	CTL_IS(5, "demote", "m@v1", "--to", LOWER);
	OK(gpuwm_park(second, 0));
	demote(d, "m@v1", LOWER);
	OK(gpuwm_unpark(second, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	cr_assert(mapping_holds(second, 1));
	OK(gpuwm_detach(second));
	demote(d, "m@v1", LOWER); /* the first has not been awake since */
	OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	holds(&w, 1);
	OK(gpuwm_park(w.mapping, 0));
	OK(gpuwm_attach(w.client, "m@v1", NULL, &second)); /* where the first was */
	cr_assert_eq(gpuwm_mapping_address(second, NULL), w.address);
	cr_assert(mapping_holds(second, 1));
	OK(gpuwm_detach(second));
	leave(&w);
}

/* ---- what is refused --------------------------------------------------------- */

PARKING_TEST(what_is_parked_is_not_for_use)
{
	struct worker w = attached("m@v1"), other = attached("m@v1");
	struct gpuwm_tensor tensor;

	OK(gpuwm_detach(other.mapping));
	OK(gpuwm_park(w.mapping, 0));
	FAILS(ENODATA, gpuwm_tensor_at(w.mapping, 0, &tensor));
	FAILS(ENODATA, gpuwm_switch(w.mapping, "m@v1", NULL));
	FAILS(ENODATA, gpuwm_tensors_verify(w.mapping, NULL, 0));
	cr_assert(strstr(gpuwm_error()->detail, "unpark it first"));
	OK(gpuwm_attach(other.client, "m@v1", NULL, &other.mapping));
	leave(&other);
	leave(&w);
}

GPUWMD_TEST_IF(parking, private_writes_are_not_lost,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "a GPU has no private writes"), tiers_begin(), tiers_end)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	(void)d;
	options.private_writes = true;
	OK(gpuwm_attach(client, "m@v1", &options, &mapping));
	FAILS(ENOTSUP, gpuwm_park(mapping, 0));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

PARKING_TEST(others_leases_are_not_theirs)
{
	struct raw_lease lease;
	int sock = raw_client(d->socket), other = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	cr_assert_eq(RAW_ASK(other, "park", NUMBER("lease", lease.lease)), -ENOENT);
	cr_assert_eq(RAW_ASK(other, "unpark", NUMBER("lease", lease.lease)), -ENOENT);
	cr_assert_eq(RAW_ASK(sock, "park", NUMBER("lease", lease.lease)), 0);
	close(sock);
	close(other);
}

/* ---- in turn ----------------------------------------------------------------- */

/* Room for one version of 64 MiB beside a context. */
#define IN_TURN_TEST(name, ...)                                                                                \
	FAKECUDA_TEST(parking, name,                                                                           \
		      described_start("--set", "budget.*=680M" __VA_OPT__(, "--set", ) __VA_ARGS__, NULL),     \
		      described_stop)

/* No rule is needed, and no time: whoever parks consents. */
IN_TURN_TEST(two_workers_take_turns)
{
	struct worker w[2];
	char *second = strdup(checkpoint_write(d, "v2", LARGE(2)));

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	w[0] = attached("m@v1");
	FAILS(ENOSPC, load_try(d, second, "m@v2"));
	cr_assert(strstr(gpuwm_error()->detail, "leased"), "%s", gpuwm_error()->detail);
	OK(gpuwm_park(w[0].mapping, 0));
	load_version(d, second, "m@v2");
	cr_assert(lies_on(d, "v1", "host") && lies_on(d, "v2", "device"));
	w[1] = attached("m@v2");
	for (unsigned turn = 0; turn < 6; turn++) {
		FAILS(ENOSPC, gpuwm_unpark(w[turn % 2].mapping, GPUWM_ROOM_AS_BEFORE, 0));
		FAILS(ETIMEDOUT, gpuwm_unpark(w[turn % 2].mapping, GPUWM_ROOM_AS_BEFORE, 10));
		cr_assert(strstr(gpuwm_error()->detail, "wait until one of these parks"), "%s",
			  gpuwm_error()->detail);
		OK(gpuwm_park(w[1 - turn % 2].mapping, 0));
		OK(gpuwm_unpark(w[turn % 2].mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
		holds(&w[turn % 2], turn % 2 + 1);
	}
	leave(&w[0]);
	leave(&w[1]);
	free(second);
}

IN_TURN_TEST(a_rule_says_where_it_goes, "model.1.match=*", "--set", "model.1.evict=files", "--set",
	     "tiers.min_resident=0")
{
	char *second = strdup(checkpoint_write(d, "v2", LARGE(2)));
	struct worker w;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	w = attached("m@v1");
	OK(gpuwm_park(w.mapping, 0));
	load_version(d, second, "m@v2");
	cr_assert(lies_on(d, "v1", "files"));
	OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	holds(&w, 1);
	leave(&w);
	free(second);
}

/* ---- gpuwmd ends ----------------------------------------------------------- */

KILL_AND_STOP_TEST(parking, what_was_parked_is_parked_after)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(const struct kept){0});
	struct worker w;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	w = attached("m@v1");
	OK(gpuwm_park(w.mapping, 0));
	kept_kill(d, signal_number);
	cr_assert(EVENTUALLY(SOON_MS, CTL("demote", "m@v1", "--to", LOWER, "--wait") == 0), "%s", output);
	OK(gpuwm_unpark(w.mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	holds(&w, 1);
	kept_kill(d, signal_number);
	OK(gpuwm_mapping_check(w.mapping));
	holds(&w, 1);
	leave(&w);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* ---- whenever gpuwmd ends ---------------------------------------------------- */

#define STORM_STEPS 60
#define KILL_WITHIN_US 20000
#define SLOW_MS 60000

/* Kills gpuwmd in the middle of what comes next. */
static pid_t kill_soon(pid_t gpuwmd, unsigned us)
{
	pid_t pid = fork();

	if (pid == 0) {
		usleep(us);
		kill(gpuwmd, SIGKILL);
		_exit(0);
	}
	return pid;
}

/* One step of a worker. Awake, it has every byte, wherever the version was meanwhile. */
static void storm_step(struct worker *w, unsigned choice)
{
	if (choice % 2)
		OK(gpuwm_park(w->mapping, 0));
	else
		OK(gpuwm_unpark(w->mapping, GPUWM_ROOM_AS_BEFORE, SLOW_MS));
	if (!gpuwm_mapping_parked(w->mapping))
		holds(w, 1);
}

/* No lease is lost, and none is awake on memory that the version has left. */
Test(parking, a_storm_of_kills_loses_no_lease)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT});
	unsigned seed = (unsigned)number_wanted("GPUWM_STORM_SEED", (uint64_t)clock_ms()), left = 0;
	struct worker w[2];

	printf("parking: GPUWM_STORM_SEED=%u\n", seed);
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	for (int i = 0; i < 2; i++)
		w[i] = attached("m@v1");
	for (unsigned step = 0; step < kills_wanted(STORM_STEPS); step++) {
		const unsigned choice = (unsigned)rand_r(&seed);
		pid_t killer = 0;

		if (choice % 8 == 0)
			killer = kill_soon(d->pid, (unsigned)rand_r(&seed) % KILL_WITHIN_US);
		if (choice / 8 % 3 == 0)
			left += CTL("demote", "m@v1", "--to", LOWER) == 0;
		storm_step(&w[choice / 32 % 2], choice / 64);
		if (killer) {
			waitpid(killer, NULL, 0);
			kept_wait(d);
		}
	}
	for (int i = 0; i < 2; i++) {
		OK(gpuwm_unpark(w[i].mapping, GPUWM_ROOM_AS_BEFORE, SLOW_MS));
		holds(&w[i], 1);
		OK(gpuwm_mapping_check(w[i].mapping));
		leave(&w[i]);
	}
	printf("parking: %u demotions\n", left);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}
