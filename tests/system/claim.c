/* Who builds a version that is not there: one of all who claim it. */
#include "harness.h"

#include "../../proto/limits.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(claim);

#define CROWD 16
/* What sixteen processes take to do something, on a machine that does much else. */
#define SLOW_MS 20000
#define NAME "m@v1"

/* ---- processes that claim --------------------------------------------- */

/* argv: device, name, seed. Claims: 'b' it is to build, 'a' it is attached, and has read all. Who builds hears 'p'
 * (publishes, and says 'p'), 'o' (begins a publish, and says 'o'), 'x' (aborts what it began, says 'x' and claims again), 'g'
 * (gives up, says 'g', claims again); everybody 'd': gives back, and ends. */
static int claimer(int argc, char **argv)
{
	const struct checkpoint *c = SMALL(strtoull(argv[2], NULL, 10));
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_publish *publish = NULL;
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_client *client;
	bool again = true;
	char word;

	CHILD_ASSERT(argc == 3);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	options.wait_ms = -1;
	while (again) {
		int r = gpuwm_claim(client, argv[1], &options, &mapping);

		if (r < 0)
			fprintf(stderr, "claim: %s\n", gpuwm_error()->message);
		CHILD_ASSERT(r >= 0);
		CHILD_ASSERT(r == 1 || mapping_holds(mapping, c->seed));
		child_say(r == 1 ? 'b' : 'a');
		for (again = false; !again && (word = child_hear()) && word != 'd';) {
			if (word == 'o')
				CHILD_ASSERT(publish_begin(client, argv[0], argv[1], c, &publish) == 0);
			if (word == 'p')
				CHILD_ASSERT(publish_version(client, argv[0], argv[1], c) == 0);
			if (word == 'x')
				CHILD_ASSERT(gpuwm_publish_abort(publish, "the test wants it") == 0);
			if (word == 'g')
				CHILD_ASSERT(gpuwm_claim_give_up(client, argv[1]) == 0);
			child_say(word);
			again = word == 'x' || word == 'g';
		}
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

struct crowd {
	struct gpuwmd *d;
	struct process p[CROWD];
	bool gone[CROWD];
	int count;
};

static struct process claimer_start(struct gpuwmd *d, const char *name)
{
	return process_start(claimer, d->device, name, "1", NULL);
}

/* All of them claim, and wait but for one: which is told. */
static int crowd_start(struct crowd *c, struct gpuwmd *d, int count);

/* Who speaks first, and which word. */
static int crowd_hear(struct crowd *c, char *ret_word)
{
	struct pollfd polls[CROWD];

	for (int i = 0; i < c->count; i++)
		polls[i] = (struct pollfd){.fd = c->gone[i] ? -1 : c->p[i].from, .events = POLLIN};
	cr_assert(poll(polls, (nfds_t)c->count, SLOW_MS) > 0, "nobody says a word");
	for (int i = 0; i < c->count; i++) {
		if (polls[i].revents) {
			*ret_word = process_hear(&c->p[i]);
			return i;
		}
	}
	cr_assert_fail("nobody");
	return -1;
}

/* The one who is to build; nobody else says a word. */
static int crowd_elect(struct crowd *c)
{
	char word;
	int builder = crowd_hear(c, &word);

	cr_assert_eq(word, 'b');
	return builder;
}

static bool crowd_is_silent(struct crowd *c)
{
	struct pollfd polls[CROWD];

	for (int i = 0; i < c->count; i++)
		polls[i] = (struct pollfd){.fd = c->gone[i] ? -1 : c->p[i].from, .events = POLLIN};
	return poll(polls, (nfds_t)c->count, 0) == 0;
}

static int crowd_start(struct crowd *c, struct gpuwmd *d, int count)
{
	int builder;

	*c = (struct crowd){.d = d, .count = count};
	for (int i = 0; i < count; i++)
		c->p[i] = claimer_start(d, NAME);
	builder = crowd_elect(c);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == (uint64_t)count - 1));
	cr_assert(crowd_is_silent(c));
	cr_assert_eq(status_of(d, "claims"), 1);
	return builder;
}

static void crowd_tell(struct crowd *c, int which, char word)
{
	process_tell(&c->p[which], word);
	process_expect(&c->p[which], word);
}

static void crowd_kill(struct crowd *c, int which)
{
	process_kill(&c->p[which], SIGKILL);
	c->gone[which] = true;
}

/* The builder publishes, the others attach, and all end. */
static void crowd_end(struct crowd *c, int builder)
{
	process_tell(&c->p[builder], 'p');
	process_expect(&c->p[builder], 'p');
	for (int i = 0; i < c->count; i++) {
		if (i != builder && !c->gone[i])
			process_expect(&c->p[i], 'a');
	}
	cr_assert_eq(status_of(c->d, "claims"), 0);
	for (int i = 0; i < c->count; i++) {
		if (c->gone[i])
			continue;
		process_tell(&c->p[i], 'd');
		process_finish(&c->p[i]);
	}
	version_drop(c->d, "m", "v1");
	gpuwmd_stop_empty(c->d);
}

/* ---- one builds -------------------------------------------------------- */

static uint64_t publishes_of(struct gpuwmd *d)
{
	json_t *jobs = query(d->admin, "jobs", NULL);
	size_t count = json_array_size(json_object_get(jobs, "jobs"));

	json_decref(jobs);
	return count;
}

Test(claim, of_sixteen_one_builds_and_fifteen_attach)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct crowd c;
	int builder = crowd_start(&c, d, CROWD);

	crowd_tell(&c, builder, 'p');
	for (int i = 0; i < CROWD; i++) {
		if (i != builder)
			process_expect(&c.p[i], 'a');
	}
	cr_assert_eq(publishes_of(d), 1, "each publish has a job that checks it");
	cr_assert_eq(status_of(d, "leases"), CROWD - 1);
	for (int i = 0; i < CROWD; i++) {
		process_tell(&c.p[i], 'd');
		process_finish(&c.p[i]);
	}
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(claim, a_builder_that_is_killed_has_one_successor)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct crowd c;
	int builder = crowd_start(&c, d, CROWD), next;

	/* Before it begins, then while it builds. */
	crowd_kill(&c, builder);
	next = crowd_elect(&c);
	cr_assert_neq(next, builder);
	crowd_tell(&c, next, 'o');
	crowd_kill(&c, next);
	builder = crowd_elect(&c);
	cr_assert_eq(status_of(d, "claims"), 1);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == CROWD - 3));
	cr_assert(crowd_is_silent(&c));
	crowd_end(&c, builder);
}

Test(claim, a_builder_that_aborts_or_gives_up_is_the_last_in_the_queue)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct crowd c;
	int first = crowd_start(&c, d, 3), second, third;

	crowd_tell(&c, first, 'o');
	crowd_tell(&c, first, 'x');
	second = crowd_elect(&c);
	cr_assert_neq(second, first);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 2));
	crowd_tell(&c, second, 'g');
	third = crowd_elect(&c);
	cr_assert(third != first && third != second);
	crowd_end(&c, third);
}

Test(claim, names_are_independent)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct process one = claimer_start(d, "m@v1"), other = claimer_start(d, "m@v2");

	process_expect(&one, 'b');
	process_expect(&other, 'b');
	process_kill(&other, SIGKILL);
	process_tell(&one, 'p');
	process_expect(&one, 'p');
	process_tell(&one, 'd');
	process_finish(&one);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

/* The memory of the one that was killed comes back when it is gone from the kernel, not before. */
Test(claim, a_successor_has_room_where_only_one_fits)
{
	/* On a GPU beside the context of who checks it. */
	const char *budget = backend() == BACKEND_HOST ? "host=600K" : "*=579M";
	struct gpuwmd *d;
	struct crowd c;
	int builder;

	d = gpuwmd_start("--budget", budget, NULL);
	builder = crowd_start(&c, d, 5);
	for (int i = 0; i < 3; i++) {
		crowd_tell(&c, builder, 'o');
		crowd_kill(&c, builder);
		builder = crowd_elect(&c);
	}
	crowd_end(&c, builder);
}

/* ---- what is there already --------------------------------------------- */

static int claim_now(struct gpuwm_client *client, const char *name, struct gpuwm_mapping **ret_mapping)
{
	return gpuwm_claim(client, name, NULL, ret_mapping);
}

Test(claim, a_version_that_is_ready_is_attached_to)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), NAME);
	cr_assert_eq(OK(claim_now(client, NAME, &mapping)), 0);
	cr_assert(mapping_holds(mapping, 1));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(claim, who_builds_without_a_claim_is_waited_for_and_has_a_successor)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct process p;

	OK(publish_begin(client, d->device, NAME, SMALL(1), &publish));
	p = claimer_start(d, NAME);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1));
	cr_assert_eq(status_of(d, "claims"), 0);
	OK(gpuwm_publish_abort(publish, NULL));
	process_expect(&p, 'b');
	process_tell(&p, 'p');
	process_expect(&p, 'p');
	process_tell(&p, 'd');
	process_finish(&p);
	gpuwm_close(client);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(claim, a_retiring_version_gives_its_error_and_an_alias_is_no_tag)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping, *other;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), NAME);
	OK(gpuwm_attach(client, NAME, NULL, &mapping));
	FAILS(EINVAL, claim_now(client, "m@current", &other));
	FAILS(EINVAL, claim_now(client, "m", &other));
	FAILS(EINVAL, claim_now(client, NULL, &other));
	OK(gpuwm_swap(
		d->admin,
		&(struct gpuwm_swap_options){
			.size = sizeof(struct gpuwm_swap_options), .model = "m", .alias = "prod", .to = "v1"},
		NULL));
	FAILS(EEXIST, claim_now(client, "m@prod", &other));
	OK(gpuwm_swap(d->admin,
		      &(struct gpuwm_swap_options){
			      .size = sizeof(struct gpuwm_swap_options), .model = "m", .alias = "prod"},
		      NULL));
	OK(swap_to(d, "m", NULL, true));
	FAILS(ENOENT, claim_now(client, NAME, &other));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	gpuwmd_stop_empty(d);
}

Test(claim, a_place_that_cant_be_is_refused_at_once)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	options.device = "GPU-00000000-0000-0000-0000-000000000000";
	FAILS(ENODEV, gpuwm_claim(client, NAME, &options, &mapping));
	options.device = NULL;
	options.rank = PARTS_PER_VERSION_MAX;
	FAILS(EINVAL, gpuwm_claim(client, NAME, &options, &mapping));
	cr_assert_eq(status_of(d, "claims"), 0);
	gpuwm_close(client);
	gpuwmd_stop_empty(d);
}

/* ---- beside a claim ----------------------------------------------------- */

static bool says(const char *words)
{
	return strstr(gpuwm_error()->message, words) != NULL;
}

Test(claim, who_waits_in_vain_is_told_who_builds)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new(), *other = client_new();
	struct gpuwm_mapping *mapping;
	char who[32];

	snprintf(who, sizeof who, "pid %d", (int)getpid());
	cr_assert_eq(OK(claim_now(client, NAME, &mapping)), 1);
	FAILS(ETIMEDOUT, claim_now(other, NAME, &mapping));
	cr_assert(says(who) && says("has not begun"), "%s", gpuwm_error()->message);
	options.wait_ms = 20;
	FAILS(ETIMEDOUT, gpuwm_claim(other, NAME, &options, &mapping));
	cr_assert(says("wait_ms ran out") && says(who), "%s", gpuwm_error()->message);
	FAILS(EBUSY, claim_now(client, NAME, &mapping));
	OK(gpuwm_claim_give_up(client, NAME));
	FAILS(ENOENT, gpuwm_claim_give_up(client, NAME));
	cr_assert_eq(OK(claim_now(other, NAME, &mapping)), 1);
	gpuwm_close(other);
	gpuwm_close(client);
	gpuwmd_stop_empty(d);
}

Test(claim, nobody_else_publishes_what_is_claimed)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_client *client = client_new(), *other = client_new();
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *publish;

	cr_assert_eq(OK(claim_now(client, NAME, &mapping)), 1);
	FAILS(EBUSY, publish_begin(other, d->device, NAME, SMALL(1), &publish));
	cr_assert(says("is claimed by"), "%s", gpuwm_error()->message);
	OK(publish_version(client, d->device, NAME, SMALL(1)));
	FAILS(ENOENT, gpuwm_claim_give_up(client, NAME));
	gpuwm_close(other);
	gpuwm_close(client);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(claim, an_operators_load_goes_before_a_claim)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct process p;

	cr_assert_eq(OK(claim_now(client, NAME, &mapping)), 1);
	p = claimer_start(d, NAME);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1));
	cr_assert_lt(load_try(d, file_write(d, "bad.safetensors", "12345678", 8), NAME), 0);
	cr_assert_eq(status_of(d, "claims"), 1, "a load that failed leaves it");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), NAME);
	process_expect(&p, 'a');
	cr_assert_eq(status_of(d, "claims"), 0);
	process_tell(&p, 'd');
	process_finish(&p);
	gpuwm_close(client);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

/* A client that is closed, while what was made from it keeps the connection. */
Test(claim, it_ends_with_the_client)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping, *unset;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), NAME);
	OK(gpuwm_attach(client, NAME, NULL, &mapping));
	cr_assert_eq(OK(claim_now(client, "m@v2", &unset)), 1);
	cr_assert_eq(status_of(d, "claims"), 1);
	gpuwm_close(client);
	cr_assert_eq(status_of(d, "claims"), 0);
	OK(gpuwm_detach(mapping));
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

/* argv: none. Claims, and a child of it can do nothing with that, nor end it. */
static int forks(int argc, char **argv)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;

	(void)argc;
	(void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_claim(client, NAME, NULL, &mapping) == 1);
	if (fork() == 0) {
		CHILD_ASSERT(gpuwm_claim(client, NAME, NULL, &mapping) == -ECHILD);
		CHILD_ASSERT(gpuwm_claim_give_up(client, NAME) == -ECHILD);
		gpuwm_close(client);
		child_say('f');
		_exit(0);
	}
	child_say('v');
	child_hear();
	gpuwm_close(client);
	return 0;
}

Test(claim, a_forked_child_leaves_it_alone)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct process p = process_start(forks, NULL);
	char first = process_hear(&p), second = process_hear(&p);

	cr_assert_eq(first + second, 'f' + 'v');
	cr_assert_eq(status_of(d, "claims"), 1);
	process_tell(&p, 'x');
	process_finish(&p);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
	gpuwmd_stop_empty(d);
}

/* ---- what people see ----------------------------------------------------- */

Test(claim, who_has_one_is_told)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct process p = claimer_start(d, NAME);
	const json_t *claim;
	json_t *answer;
	char model[] = "m";

	process_expect(&p, 'b');
	answer = query(d->admin, "list", model);
	claim = json_array_get(json_object_get(answer, "claims"), 0);
	cr_assert_eq(json_integer_value(json_object_get(claim, "pid")), p.pid);
	cr_assert_str_eq(json_string_value(json_object_get(claim, "tag")), "v1");
	cr_assert_null(json_object_get(claim, "publish"));
	json_decref(answer);
	answer = query(d->admin, "list", "another");
	cr_assert_eq(json_array_size(json_object_get(answer, "claims")), 0);
	json_decref(answer);
	process_tell(&p, 'o');
	process_expect(&p, 'o');
	answer = query(d->admin, "list", NULL);
	claim = json_array_get(json_object_get(answer, "claims"), 0);
	cr_assert(json_is_string(json_object_get(claim, "publish")));
	json_decref(answer);
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
	gpuwmd_stop_empty(d);
}
