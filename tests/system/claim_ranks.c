/* Claims of versions that several ranks make: one process of a group claims for all. */
#include "claimers.h"

SYSTEM_SUITE(claim_ranks);

static int part_begin(struct gpuwm_client *client, const char *device, uint32_t rank, const char *join,
		      struct gpuwm_publish **ret_publish)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	uint64_t shape = 1000;
	struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = &shape};

	options.name = NAME;
	options.device = device;
	options.rank = rank;
	options.world = 2;
	options.join = join;
	return gpuwm_publish_begin(client, &options, &spec, 1, ret_publish);
}

/* argv: device, the publish that rank 0 of its group began. Joins it ('v'), and commits on a word. */
static int second_rank(int argc, char **argv)
{
	struct gpuwm_publish *publish;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 2);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(part_begin(client, argv[0], 1, argv[1], &publish) == 0);
	child_say('v');
	child_hear();
	CHILD_ASSERT(gpuwm_publish_commit(publish, NULL) == 0);
	gpuwm_close(client);
	return 0;
}

struct group {
	struct gpuwm_client *client;
	struct gpuwm_publish *publish;
	struct process second;
};

static struct group group_start_alone(struct gpuwmd *d)
{
	struct group group = {.client = client_new()};
	struct gpuwm_mapping *mapping;

	cr_assert_eq(OK(gpuwm_claim(group.client, NAME, NULL, &mapping)), 1);
	OK(part_begin(group.client, d->device, 0, NULL, &group.publish));
	return group;
}

static struct group group_start(struct gpuwmd *d)
{
	struct group group = group_start_alone(d);

	group.second = process_start(second_rank, d->device, gpuwm_publish_id(group.publish), NULL);
	process_expect(&group.second, 'v');
	return group;
}

/* argv: none. Claims, wants rank 1, and gets it. */
static int wants_rank_1(int argc, char **argv)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;

	(void)argc;
	(void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	options.rank = 1;
	options.wait_ms = -1;
	CHILD_ASSERT(gpuwm_claim(client, NAME, &options, &mapping) == 0);
	CHILD_ASSERT(gpuwm_mapping_version(mapping)->rank == 1);
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST(claim_ranks, all_of_a_group_build_and_others_get_their_rank)
{
	struct group group = group_start(d);
	struct process other = process_start(wants_rank_1, NULL);

	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1));
	process_tell(&group.second, 'c');
	OK(gpuwm_publish_commit(group.publish, NULL));
	process_finish(&group.second);
	process_finish(&other);
	cr_assert_eq(status_of(d, "claims"), 0);
	gpuwm_close(group.client);
	DROP(d, "m@v1");
}

/* Its second rank never came so far: nobody else would ever end what it began. */
GPUWMD_TEST(claim_ranks, a_group_that_ends_before_all_ranks_were_begun_has_a_successor)
{
	struct group group = group_start_alone(d);
	struct process next = claimer_start(d, NAME);

	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1));
	OK(gpuwm_publish_commit(group.publish, NULL));
	gpuwm_close(group.client);
	process_expect(&next, 'b');
	claimer_publish(&next);
	DROP(d, "m@v1");
}

GPUWMD_TEST(claim_ranks, a_rank_may_begin_when_the_others_have_committed)
{
	struct group group = group_start_alone(d);
	char id[33];

	snprintf(id, sizeof id, "%s", gpuwm_publish_id(group.publish));
	OK(gpuwm_publish_commit(group.publish, NULL));
	group.second = process_start(second_rank, d->device, id, NULL);
	process_expect(&group.second, 'v');
	/* Now it is the second one's alone. */
	gpuwm_close(group.client);
	process_tell(&group.second, 'c');
	process_finish(&group.second);
	cr_assert(version_is(d, "m", "v1", "ready"));
	DROP(d, "m@v1");
}

GPUWMD_TEST(claim_ranks, one_that_dies_ends_the_claim_of_its_group)
{
	struct group group = group_start(d);
	struct process next = claimer_start(d, NAME);

	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1));
	process_kill(&group.second, SIGKILL);
	process_expect(&next, 'b');
	FAILS(ECANCELED, gpuwm_publish_commit(group.publish, NULL));
	claimer_publish(&next);
	gpuwm_close(group.client);
	DROP(d, "m@v1");
}
