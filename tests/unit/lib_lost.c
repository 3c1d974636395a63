/* When the program hears that it lost a lease, and what goes on while it hears it. */
#include "tests/support/lib/restart.h"

#include "client/lib/request/lease.h"
#include "tests/support/fail_alloc.h"

#include <errno.h>

TestSuite(lost, .init = restart_setup, .fini = client_teardown);

#define MANY 600 /* more than two requests of RESUME_LEASES_MAX */

struct told {
	_Atomic unsigned count;
	int code;
	char text[256];
	struct gpuwm_mapping *detach;
	bool close, wait, fork;
	int status; /* of a child made then */
	sem_t waits, go;
};
/* Static: where a test fails, the library's thread may still be in the function. */
static struct told told;

/* A sanitizer would look for leaks without the stacks of the threads that the child has not. */
static void leave_at_once(void)
{
	_exit(0);
}

static void note(const struct gpuwm_lost *lost, void *user_data)
{
	(void)user_data;
	told.code = lost->error.code;
	snprintf(told.text, sizeof(told.text), "%s@%s %s %s %u: %s", lost->model, lost->tag, lost->version,
		 lost->device, lost->rank, lost->error.message);
	if (told.wait) {
		sem_post(&told.waits);
		sem_wait(&told.go);
	}
	if (told.fork) {
		pid_t child = fork();

		if (child == 0) {
			atexit(leave_at_once);
			return;
		}
		waitpid(child, &told.status, 0);
	}
	if (told.detach)
		told.code = gpuwm_detach(told.detach);
	if (told.close)
		gpuwm_close(client);
	told.count++;
}

/* The test's client is one that tells `told`. */
static void tell(void)
{
	struct gpuwm_connect_options options = to_fake();

	sem_init(&told.waits, 0, 0);
	sem_init(&told.go, 0, 0);
	options.lost = note;
	gpuwm_close(client);
	client = client_with(&options);
}

/* The client's program hears of lost leases by note(), which waits until the test posts `go`. */
static void with_program_that_waits(void)
{
	tell();
	told.wait = true;
}

/* Each gpuwmd answers for some leases, and ends before it has answered for all. */
Test(lost, lease_is_told_before_there_is_a_connection_again)
{
	static struct gpuwm_mapping *mappings[MANY];

	with_program_that_waits();
	sem_post(&told.go);
	attach_all(mappings, MANY);
	loses_leases(1, -ENOENT, "no such version");
	fake->answers_first = true;
	dies_at("resume", UINT32_MAX);
	fake_restart();
	UNTIL(told.count == 1);
	fake->deaths = 0;
	leases_are(MANY - 1);
	detach_all(mappings, MANY);
}

/* The call waits for the library's thread to connect again. That thread finds a lease to tell of first: one that was revoked before the
 * connection ended, or, if nobody has read of that in time, one that the next gpuwmd refuses. */
Test(lost, lease_that_is_told_keeps_no_call_from_connecting_again)
{
	struct gpuwm_mapping *mapping;

	with_program_that_waits();
	for (unsigned i = 1; i <= 100; i++) {
		mapping = attach_to("m");
		pause_forget();
		fake->revokes_dying = fake->grants;
		dies_at("ping", 1);
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%u: %s", i, gpuwm_error()->message);
		sem_post(&told.go);
		UNTIL(told.count == i);
		cr_assert(eq(int, gpuwm_detach(mapping), 0));
	}
}

/* What gpuwmd says, on the connection of that round, of the lease with this number. */
static void hears_revoked(uint64_t id, uint64_t round)
{
	struct message_writer w;
	struct message message = {0};
	const char *why;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "revoked");
	message_put_text(&w, "reason", "an operator revoked it");
	message_begin_array(&w, "leases");
	message_put_u64(&w, NULL, id);
	message_end(&w);
	message_end(&w);
	cr_assert(eq(int, message_finish(&w), 0));
	cr_assert(eq(int, message_read(w.buffer.data, w.buffer.size, &message, &why), 0));
	leases_on_notify(&message, NULL, client, round);
	message_clear(&message);
	message_writer_clear(&w);
}

/* A call may read the end of the old connection when the next gpuwmd has given the number to another lease. */
Test(lost, lease_is_not_revoked_by_its_number_on_another_connection)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	uint64_t number;

	fake_restart();
	leases_are(1);
	number = fake->grants;
	hears_revoked(number, client->reviver.round - 1);
	cr_expect(not(gpuwm_mapping_revoked(mapping)));
	hears_revoked(number, client->reviver.round);
	cr_expect(gpuwm_mapping_revoked(mapping));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- what it hears, and what it may do then ------------------------------ */

/* The program is told of a lost lease, and takes its time. Returns the lost mapping. */
static struct gpuwm_mapping *keep_watcher_busy(void)
{
	struct gpuwm_mapping *mapping;

	with_program_that_waits();
	mapping = attach_to("m");
	loses_leases(1, -ENOENT, "no such version");
	fake_restart();
	sem_wait(&told.waits);
	return mapping;
}

static void let_watcher_go(struct gpuwm_mapping *mapping)
{
	sem_post(&told.go);
	UNTIL(told.count == 1);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- what is lost ------------------------------------------------------ */

Test(lost, tells_what_is_lost_and_keeps_the_rest)
{
	struct gpuwm_mapping *mappings[5];
	int lost = 0;

	tell();
	attach_all(mappings, 5);
	loses_leases(2, -ESTALE, "a descriptor was missing");
	fake_restart();
	UNTIL(told.count == 2);
	cr_expect(eq(int, told.code, -ESTALE));
	cr_expect(eq(str, told.text, "m@v1 " FAKE_VERSION " host 0: a descriptor was missing"));
	cr_expect(eq(uint, fake->leases, 3));
	for (int i = 0; i < 5; i++) {
		if (gpuwm_mapping_check(mappings[i]) == 0)
			continue;
		lost++;
		cr_expect(eq(int, gpuwm_error()->code, -ESTALE));
		cr_expect(eq(str, (char *)gpuwm_error()->message, "a descriptor was missing"));
		cr_expect(eq(str, (char *)gpuwm_error()->detail, "the detail"));
	}
	cr_expect(eq(int, lost, 2));
	fake_restart();
	leases_are(3);
	for (int i = 0; i < 5; i++)
		cr_expect(holds_sevens(mappings[i]));
	detach_all(mappings, 5);
	cr_expect(eq(uint, fake->leases, 0));
	cr_expect(eq(uint, told.count, 2));
}

Test(lost, stops_where_there_is_no_common_protocol)
{
	struct gpuwm_mapping *mapping;
	unsigned hellos;

	tell();
	mapping = attach_to("m");
	refuses("hello", -EPROTONOSUPPORT, "you speak 1 to 1, gpuwmd speaks 2 to 3");
	fake_restart();
	UNTIL(told.count == 1);
	cr_expect(eq(int, told.code, -EPROTONOSUPPORT));
	cr_expect(strstr(told.text, "1 to 1, gpuwmd speaks 2 to 3") != NULL, "%s", told.text);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), -EPROTONOSUPPORT));
	hellos = fake->requests;
	cr_expect(eq(int, gpuwm_ping(client, NULL), -EPROTONOSUPPORT));
	cr_expect(strstr(gpuwm_error()->message, "2 to 3") != NULL);
	UNTIL(threads_of_library() == 0);
	cr_expect(eq(uint, fake->requests, hellos));
	cr_expect(holds_sevens(mapping));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(lost, asks_again_for_a_lease_for_which_gpuwmd_had_no_memory)
{
	struct gpuwm_mapping *mappings[3];

	tell();
	attach_all(mappings, 3);
	loses_leases(1, -ENOMEM, "gpuwmd is out of memory");
	fake_restart();
	leases_are(3);
	for (int i = 0; i < 3; i++)
		cr_expect(eq(int, gpuwm_mapping_check(mappings[i]), 0));
	detach_all(mappings, 3);
	cr_expect(eq(uint, told.count, 0));
}

Test(lost, lets_the_program_do_anything_when_it_is_told)
{

	tell();
	told.detach = attach_to("m");
	loses_leases(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(told.count == 1);
	cr_expect(eq(int, told.code, 0));
	told.detach = attach_to("m");
	told.close = true;
	loses_leases(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(told.count == 2);
	/* The library's thread was the last to use the client. */
	client = NULL;
	UNTIL(threads_of_library() == 0);
}

/* Where it returns to is the library's thread, which has nothing to do in a child. */
Test(lost, ends_a_child_that_comes_back_from_being_told)
{
	struct gpuwm_mapping *mapping;

	tell();
	told.fork = true;
	told.status = -1;
	mapping = attach_to("m");
	loses_leases(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(told.count == 1);
	cr_expect(eq(int, told.status, 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(lost, goes_on_while_the_program_is_told)
{
	struct gpuwm_mapping *mapping = keep_watcher_busy(), *other;

	other = attach_to("m");
	fake_restart();
	/* The watcher is busy: the call does its work. */
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, fake->leases, 1));
	let_watcher_go(mapping);
	cr_expect(eq(int, gpuwm_detach(other), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

/* The call does the watcher's work, so that this thread makes the allocations. */
Test(lost, survives_a_lack_of_memory)
{
	struct gpuwm_mapping *mapping = keep_watcher_busy(), *others[3];
	unsigned n = 0;
	bool failed;

	attach_all(others, 3);
	do {
		int r;

		pause_forget();
		fake_restart();
		fail_alloc_arm(++n);
		r = gpuwm_ping(client, NULL);
		failed = fail_alloc_disarm();
		cr_assert(r == 0 || r == -ENOMEM, "%d: %s", r, gpuwm_error()->message);
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
		cr_assert(eq(uint, fake->leases, 3));
	} while (failed);
	cr_expect(lt(uint, 10, n));
	let_watcher_go(mapping);
	detach_all(others, 3);
	cr_expect(eq(uint, fake->leases, 0));
}

Test(lost, knows_what_is_lost_without_memory_for_the_words)
{
	struct gpuwm_mapping *mapping = keep_watcher_busy(), *other;
	bool bare = false;

	for (unsigned n = 1; !bare; n++) {
		cr_assert(lt(uint, n, 100));
		fake->lose = 0;
		other = attach_to("m");
		loses_leases(UINT32_MAX, -ESTALE, "a descriptor was missing");
		pause_forget();
		fake_restart();
		fail_alloc_arm(n);
		gpuwm_ping(client, NULL);
		cr_assert(fail_alloc_disarm());
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
		cr_assert(eq(int, gpuwm_mapping_check(other), -ESTALE), "%u", n);
		bare = strcmp(gpuwm_error()->message, "m@v1 was lost with a restart of gpuwmd") == 0;
		cr_assert(eq(int, gpuwm_detach(other), 0));
	}
	let_watcher_go(mapping);
}
