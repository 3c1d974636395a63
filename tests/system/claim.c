/* Who builds a version that is not there: one of all who claim it. */
#include "claimers.h"

#include "../../base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(claim);

/* ---- one builds -------------------------------------------------------- */

static uint64_t publishes_of(struct gpuwmd *d)
{
	json_t *jobs = query(d->admin, "jobs", NULL);
	size_t count = json_array_size(json_object_get(jobs, "jobs"));

	json_decref(jobs);
	return count;
}

GPUWMD_TEST(claim, of_sixteen_one_builds_and_fifteen_attach)
{
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
	DROP(d, "m@v1");
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

GPUWMD_TEST(claim, names_are_independent)
{
	struct process one = claimer_start(d, "m@v1"), other = claimer_start(d, "m@v2");

	process_expect(&one, 'b');
	process_expect(&other, 'b');
	process_kill(&other, SIGKILL);
	claimer_publish(&one);
	DROP(d, "m@v1");
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

GPUWMD_TEST(claim, a_version_that_is_ready_is_attached_to)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), NAME);
	cr_assert_eq(OK(claim_now(client, NAME, &mapping)), 0);
	cr_assert(mapping_holds(mapping, 1));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(claim, who_builds_without_a_claim_is_waited_for_and_has_a_successor)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct process p;

	OK(publish_begin(client, d->device, NAME, SMALL(1), &publish));
	p = claimer_start(d, NAME);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1));
	cr_assert_eq(status_of(d, "claims"), 0);
	OK(gpuwm_publish_abort(publish, NULL));
	process_expect(&p, 'b');
	claimer_publish(&p);
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(claim, a_retiring_version_gives_its_error_and_an_alias_is_no_tag)
{
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
}

GPUWMD_TEST(claim, a_place_that_cant_be_is_refused_at_once)
{
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
}

/* ---- beside a claim ----------------------------------------------------- */

static bool says(const char *words)
{
	return strstr(gpuwm_error()->message, words) != NULL;
}

GPUWMD_TEST(claim, who_waits_in_vain_is_told_who_builds)
{
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
	cr_assert(says("time ran out") && says(who), "%s", gpuwm_error()->message);
	FAILS(EBUSY, claim_now(client, NAME, &mapping));
	OK(gpuwm_claim_give_up(client, NAME));
	FAILS(ENOENT, gpuwm_claim_give_up(client, NAME));
	cr_assert_eq(OK(claim_now(other, NAME, &mapping)), 1);
	gpuwm_close(other);
	gpuwm_close(client);
}

GPUWMD_TEST(claim, nobody_else_publishes_what_is_claimed)
{
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
	DROP(d, "m@v1");
}

GPUWMD_TEST(claim, an_operators_load_goes_before_a_claim)
{
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
	DROP(d, "m@v1");
}

/* A client that is closed, while what was made from it keeps the connection. */
GPUWMD_TEST(claim, it_ends_with_the_client)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping, *unset;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), NAME);
	OK(gpuwm_attach(client, NAME, NULL, &mapping));
	cr_assert_eq(OK(claim_now(client, "m@v2", &unset)), 1);
	cr_assert_eq(status_of(d, "claims"), 1);
	gpuwm_close(client);
	cr_assert_eq(status_of(d, "claims"), 0);
	OK(gpuwm_detach(mapping));
	DROP(d, "m@v1");
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

GPUWMD_TEST(claim, a_forked_child_leaves_it_alone)
{
	struct process p = process_start(forks, NULL);
	char first = process_hear(&p), second = process_hear(&p);

	cr_assert_eq(first + second, 'f' + 'v');
	cr_assert_eq(status_of(d, "claims"), 1);
	process_tell(&p, 'x');
	process_finish(&p);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
}

/* ---- what people see ----------------------------------------------------- */

GPUWMD_TEST(claim, who_has_one_is_told)
{
	struct process p = claimer_start(d, NAME);
	const json_t *claim;
	json_t *answer;
	char model[] = "m";

	process_expect(&p, 'b');
	answer = query(d->admin, "list", model);
	claim = json_array_get(json_object_get(answer, "claims"), 0);
	cr_assert_eq(json_integer_value(json_object_get(claim, "pid")), p.pid);
	cr_assert_str_eq(json_string_value(json_object_get(claim, "tag")), "v1");
	cr_assert(json_is_false(json_object_get(claim, "begun")));
	json_decref(answer);
	answer = query(d->admin, "list", "another");
	cr_assert_eq(json_array_size(json_object_get(answer, "claims")), 0);
	json_decref(answer);
	process_tell(&p, 'o');
	process_expect(&p, 'o');
	answer = query(d->admin, "list", NULL);
	claim = json_array_get(json_object_get(answer, "claims"), 0);
	cr_assert(json_is_true(json_object_get(claim, "begun")));
	cr_assert_null(json_object_get(claim, "publish"), "its id is its owner's secret");
	json_decref(answer);
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
}
