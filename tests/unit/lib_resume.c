/* Leases of a client whose gpuwmd is started anew. */
#include "tests/support/lib/restart.h"

#include "client/lib/lease.h"
#include "tests/support/fail_alloc.h"
#include "client/lib/clock.h"

#include <errno.h>

TestSuite(resume, .init = restart_setup, .fini = client_teardown);

#define MANY 600 /* more than two requests of RESUME_LEASES_MAX */

Test(resume, is_not_seen_by_whoever_is_attached)
{
	struct gpuwm_mapping *first = attach_to("m"), *second = attach_to("m");

	fake_restart();
	leases_are(2);
	cr_expect(eq(uint, fake->resumes, 1));
	cr_expect(holds_sevens(first));
	cr_expect(eq(int, gpuwm_mapping_check(first), 0));
	cr_assert(eq(int, gpuwm_detach(first), 0));
	cr_expect(eq(uint, fake->leases, 1));
	cr_assert(eq(int, gpuwm_detach(second), 0));
	cr_expect(eq(uint, fake->leases, 0));
	cr_expect(eq(uint, fake->releases, 2));
}

Test(resume, waits_for_a_gpuwmd_that_stays_away)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	fake_kill(fake);
	fails_to_connect(4);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, works_again_and_again)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	for (unsigned i = 1; i <= 5; i++) {
		fake_restart();
		UNTIL(fake->resumed == i);
	}
	cr_expect(holds_sevens(mapping));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, takes_raw_handles_again)
{
	struct gpuwm_handles *handles;

	cr_assert(eq(int, gpuwm_get_handles(client, "m", NULL, &handles), 0));
	fake_restart();
	leases_are(1);
	cr_expect(eq(int, gpuwm_handles_check(handles), 0));
	cr_assert(eq(int, gpuwm_handles_release(handles), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

Test(resume, goes_in_batches)
{
	static struct gpuwm_mapping *mappings[MANY];

	for (int i = 0; i < MANY; i++)
		mappings[i] = attach_to("m");
	fake_restart();
	leases_are(MANY);
	cr_expect(eq(uint, fake->resumes, 3));
	cr_expect(eq(uint, fake->batch, RESUME_LEASES_MAX));
	for (int i = 0; i < MANY; i++)
		cr_assert(eq(int, gpuwm_detach(mappings[i]), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

/* ---- what is lost ------------------------------------------------------ */

struct told {
	_Atomic unsigned count;
	int code;
	char text[256];
	struct gpuwm_mapping *detach;
	bool close, wait, fork;
	int status; /* of a child made then */
	sem_t waits, go;
};

/* A sanitizer would look for leaks without the stacks of the threads that the child has not. */
static void leave_at_once(void)
{
	_exit(0);
}

static void note(const struct gpuwm_lost *lost, void *user_data)
{
	struct told *told = user_data;

	told->code = lost->error.code;
	snprintf(told->text, sizeof(told->text), "%s@%s %s %s %u: %s", lost->model, lost->tag, lost->version,
		 lost->device, lost->rank, lost->error.message);
	if (told->wait) {
		sem_post(&told->waits);
		sem_wait(&told->go);
	}
	if (told->fork) {
		pid_t child = fork();

		if (child == 0) {
			atexit(leave_at_once);
			return;
		}
		waitpid(child, &told->status, 0);
	}
	if (told->detach)
		told->code = gpuwm_detach(told->detach);
	if (told->close)
		gpuwm_close(client);
	told->count++;
}

/* The test's client is one that tells `told`. */
static void tell(struct told *told)
{
	struct gpuwm_connect_options options = to_fake();

	sem_init(&told->waits, 0, 0);
	sem_init(&told->go, 0, 0);
	options.lost = note;
	options.lost_data = told;
	gpuwm_close(client);
	client = client_with(&options);
}

static void loses(unsigned count, int code, const char *message)
{
	error_set(&fake->loss, code, "the detail", "%s", message);
	fake->lose = count;
}

Test(resume, tells_what_is_lost_and_keeps_the_rest)
{
	struct gpuwm_mapping *mappings[5];
	static struct told told;
	int lost = 0;

	tell(&told);
	for (int i = 0; i < 5; i++)
		mappings[i] = attach_to("m");
	loses(2, -ESTALE, "a descriptor was missing");
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
	for (int i = 0; i < 5; i++) {
		cr_expect(holds_sevens(mappings[i]));
		cr_expect(eq(int, gpuwm_detach(mappings[i]), 0));
	}
	cr_expect(eq(uint, fake->leases, 0));
	cr_expect(eq(uint, told.count, 2));
}

Test(resume, finds_a_gpuwmd_that_came_back_empty)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	loses(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ENOENT);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->releases, 0));
}

Test(resume, says_that_an_older_gpuwmd_cant)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	refuses("resume", -ENOSYS, "there is no method resume");
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ENOSYS);
	cr_expect(strstr(gpuwm_error()->message, "older") != NULL);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, stops_where_there_is_no_common_protocol)
{
	struct gpuwm_mapping *mapping;
	static struct told told;
	unsigned hellos;

	tell(&told);
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

Test(resume, keeps_leases_open_that_gpuwmd_cant_judge)
{
	struct gpuwm_mapping *mapping = attach_to("m"), *other = attach_to("m");
	const unsigned before = fake->requests;

	refuses("resume", -EUCLEAN, "the state can't be read");
	fake_restart();
	UNTIL(fake->requests >= before + 2);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_expect(eq(int, gpuwm_detach(other), 0));
	cr_expect(eq(uint, fake->releases, 0));
	fake_kill(fake);
	fake->refuse[0] = 0;
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->releases, 1));
}

Test(resume, tries_again_when_gpuwmd_is_short_of_something)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	const unsigned before = fake->hellos;

	refuses("resume", -ENOMEM, "out of memory");
	fake_restart();
	UNTIL(fake->hellos >= before + 3);
	fake->refuse[0] = 0;
	leases_are(1);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, asks_again_for_a_lease_for_which_gpuwmd_had_no_memory)
{
	struct gpuwm_mapping *mappings[3];
	static struct told told;

	tell(&told);
	for (int i = 0; i < 3; i++)
		mappings[i] = attach_to("m");
	loses(1, -ENOMEM, "gpuwmd is out of memory");
	fake_restart();
	leases_are(3);
	for (int i = 0; i < 3; i++) {
		cr_expect(eq(int, gpuwm_mapping_check(mappings[i]), 0));
		cr_expect(eq(int, gpuwm_detach(mappings[i]), 0));
	}
	cr_expect(eq(uint, told.count, 0));
}

Test(resume, tries_again_after_an_answer_that_is_none)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	const char *const methods[] = {"hello", "resume", ""};

	for (int i = 0; i < 3; i++) {
		unsigned before;

		pause_forget();
		fake_kill(fake);
		before = fake->requests;
		strcpy(fake->empty, methods[i]);
		fake->hollow = i == 2;
		fake_run_again(fake);
		UNTIL(fake->requests >= before + 3);
		fake->empty[0] = 0;
		fake->hollow = false;
		leases_are(1);
		cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	}
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, survives_gpuwmds_that_die_at_it)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	dies_at("resume", 4);
	fake_restart();
	leases_are(1);
	dies_at("hello", 4);
	fake_restart();
	leases_are(1);
	fake->answers_first = true;
	dies_at("resume", 4);
	fake_restart();
	UNTIL(fake->deaths == 0);
	leases_are(1);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

/* Whether the end of the connection is seen before or after the answer. */
Test(resume, keeps_no_lease_of_a_connection_that_ended_behind_the_answer)
{
	struct gpuwm_mapping *mappings[50];
	struct lease *lease = calloc(1, sizeof(*lease));

	cr_expect(not(lease_hold(client, lease, client->reviver.round + 1)));
	fake->answers_first = true;
	for (int i = 0; i < 50; i++) {
		pause_forget();
		dies_at("get_handles", 1);
		mappings[i] = attach_to("m");
	}
	leases_are(50);
	for (int i = 0; i < 50; i++)
		cr_expect(eq(int, gpuwm_detach(mappings[i]), 0));
	free(lease);
}

/* ---- what is called meanwhile ------------------------------------------ */

Test(resume, forgets_what_is_given_back_while_gpuwmd_is_away)
{
	struct gpuwm_mapping *mapping = attach_to("m"), *other = attach_to("m");
	int64_t before;

	fake_kill(fake);
	before = clock_ms();
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(lt(long, clock_ms() - before, RESTART_WAIT_MS / 2));
	fake_run_again(fake);
	UNTIL(fake->resumed > 0); /* counted after the request */
	cr_assert(eq(int, gpuwm_detach(other), 0));
	UNTIL(fake->leases == 0); /* the answer to resume may still be on its way */
	cr_expect(eq(uint, fake->resumes, 1));
	cr_expect(eq(uint, fake->resumed, 1));
}

Test(resume, gives_back_what_was_detached_during_it)
{
	struct gpuwm_mapping *mapping = attach_to("m"), *other = attach_to("m");

	strcpy(fake->pauses_at, "resume");
	fake_restart();
	sem_wait(&fake->paused);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	fake->pauses_at[0] = 0;
	sem_post(&fake->go);
	UNTIL(fake->releases == 1);
	cr_expect(eq(uint, fake->resumed, 2));
	cr_assert(eq(int, gpuwm_detach(other), 0));
	leases_are(0);
	cr_expect(eq(uint, fake->releases, 2));
}

Test(resume, does_not_keep_a_closed_client)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	int64_t before;

	cr_expect(eq(uint, threads_of_library(), 1));
	fake_kill(fake);
	before = clock_ms();
	client = gpuwm_close(client);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(lt(long, clock_ms() - before, RESTART_WAIT_MS / 2));
	fake_run_again(fake);
	cr_expect(eq(uint, threads_of_library(), 0));
}

Test(resume, does_not_keep_a_client_that_is_closed_in_the_middle)
{
	const char *const moments[] = {"hello", "resume"};

	for (int i = 0; i < 2; i++) {
		struct gpuwm_connect_options options = to_fake();
		struct gpuwm_mapping *mapping;
		int64_t before;

		strcpy(fake->pauses_at, "");
		gpuwm_close(client);
		client = client_with(&options);
		mapping = attach_to("m");
		fake_kill(fake);
		strcpy(fake->pauses_at, moments[i]);
		fake_run_again(fake);
		sem_wait(&fake->paused);
		before = clock_ms();
		client = gpuwm_close(client);
		cr_expect(eq(int, gpuwm_detach(mapping), 0));
		cr_expect(lt(long, clock_ms() - before, RESTART_WAIT_MS / 2));
		cr_expect(eq(uint, threads_of_library(), 0));
		sem_post(&fake->go);
		UNTIL(fake->leases == 0);
	}
}

Test(resume, lets_the_program_do_anything_when_it_is_told)
{
	static struct told told;

	tell(&told);
	told.detach = attach_to("m");
	loses(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(told.count == 1);
	cr_expect(eq(int, told.code, 0));
	told.detach = attach_to("m");
	told.close = true;
	loses(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(told.count == 2);
	/* The library's thread was the last to use the client. */
	client = NULL;
	UNTIL(threads_of_library() == 0);
}

/* Where it returns to is the library's thread, which has nothing to do in a child. */
Test(resume, ends_a_child_that_comes_back_from_being_told)
{
	static struct told told = {.fork = true, .status = -1};
	struct gpuwm_mapping *mapping;

	tell(&told);
	mapping = attach_to("m");
	loses(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(told.count == 1);
	cr_expect(eq(int, told.status, 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, goes_on_while_the_program_is_told)
{
	struct gpuwm_mapping *mapping, *other;
	static struct told told = {.wait = true};

	tell(&told);
	mapping = attach_to("m");
	loses(1, -ENOENT, "no such version");
	fake_restart();
	sem_wait(&told.waits);
	other = attach_to("m");
	fake_restart();
	/* The watcher is busy: the call does its work. */
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, fake->leases, 1));
	sem_post(&told.go);
	UNTIL(told.count == 1);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(int, gpuwm_detach(other), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

/* The call does the watcher's work, so that this thread makes the allocations. */
Test(resume, survives_a_lack_of_memory)
{
	struct gpuwm_mapping *mapping, *others[3];
	static struct told told = {.wait = true};
	unsigned n = 0;
	bool failed;

	tell(&told);
	mapping = attach_to("m");
	loses(1, -ENOENT, "no such version");
	fake_restart();
	sem_wait(&told.waits);
	for (int i = 0; i < 3; i++)
		others[i] = attach_to("m");
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
	sem_post(&told.go);
	UNTIL(told.count == 1);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	for (int i = 0; i < 3; i++)
		cr_expect(eq(int, gpuwm_detach(others[i]), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

Test(resume, knows_what_is_lost_without_memory_for_the_words)
{
	struct gpuwm_mapping *mapping, *other;
	static struct told told = {.wait = true};
	bool bare = false;

	tell(&told);
	mapping = attach_to("m");
	loses(1, -ENOENT, "no such version");
	fake_restart();
	sem_wait(&told.waits);
	for (unsigned n = 1; !bare; n++) {
		cr_assert(lt(uint, n, 100));
		fake->lose = 0;
		other = attach_to("m");
		loses(UINT32_MAX, -ESTALE, "a descriptor was missing");
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
	sem_post(&told.go);
	UNTIL(told.count == 1);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}
