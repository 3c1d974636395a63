/* Cached versions: their names are keys, and gpuwmd retires them. */
#include "kept.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(cached);

/* Longer than a test takes. */
#define LONG_MS 600000
#define SHORT_MS 2500 /* a GPU that many tests use takes over half a second until a new version is attached */

static int make(struct gpuwm_client *client, struct gpuwmd *d, const char *name, uint64_t ttl_ms,
		uint32_t keep_last)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish;
	int r;

	options.name = name;
	options.device = d->device;
	options.cached = true;
	options.ttl_ms = ttl_ms;
	options.keep_last = keep_last;
	r = publish_begin_with(client, &options, SMALL(1), &publish);

	if (r == 0)
		r = publish_fill(publish, SMALL(1));
	return r < 0 ? r : gpuwm_publish_commit(publish, NULL);
}

static void drop(struct gpuwmd *d, const char *name)
{
	OK(gpuwm_retire(d->admin, name, SOON_MS));
}

/* "best" is an alias of it, or of nothing. */
static void name_best(struct gpuwm_client *client, const char *tag)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = "m";
	options.alias = "best";
	options.to = tag;
	OK(gpuwm_swap(client, &options, NULL));
}

static bool is_there(struct gpuwm_client *client, const char *name)
{
	struct gpuwm_mapping *mapping;
	int r = gpuwm_attach(client, name, NULL, &mapping);

	if (r == 0)
		OK(gpuwm_detach(mapping));
	else
		cr_assert_eq(r, -ENOENT, "%s", gpuwm_error()->message);
	return r == 0;
}

GPUWMD_TEST(cached, its_time_ends_it)
{
	struct gpuwm_client *client = client_new();

	OK(make(client, d, "m@a", 100, 0));
	OK(make(client, d, "m@b", LONG_MS, 0));
	OK(make(client, d, "m@c", 0, 0));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 2));
	cr_expect_not(is_there(client, "m@a"));
	cr_expect(is_there(client, "m@b") && is_there(client, "m@c"));
	cr_expect_eq(status_of(d, "aliases"), 0);
	drop(d, "m@b");
	drop(d, "m@c");
	gpuwm_close(client);
}

GPUWMD_TEST(cached, whoever_has_it_keeps_it_and_its_key_is_free)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *old, *new;

	OK(make(client, d, "m@a", 0, 0));
	OK(gpuwm_attach(client, "m@a", NULL, &old));
	OK(gpuwm_retire(client, "m@a", 0));
	FAILS(gpuwm_retire(client, "m@a", 0), ENOENT);
	OK(make(client, d, "m@a", 0, 0));
	OK(gpuwm_attach(client, "m@a", NULL, &new));
	cr_expect(strcmp(gpuwm_mapping_version(old)->id, gpuwm_mapping_version(new)->id) != 0);
	cr_expect(mapping_holds(old, 1) && mapping_holds(new, 1));
	cr_expect_eq(status_of(d, "versions"), 2);
	OK(gpuwm_detach(old));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 1));
	OK(gpuwm_detach(new));
	drop(d, "m@a");
	gpuwm_close(client);
}

GPUWMD_TEST(cached, the_last_ones_stay)
{
	struct gpuwm_client *client = client_new();

	OK(publish_version(client, d->device, "m@plain", SMALL(1)));
	OK(make(client, d, "m@a", 0, 2));
	OK(make(client, d, "m@b", 0, 2));
	name_best(client, "a");
	OK(make(client, d, "m@c", 0, 2));
	cr_expect(is_there(client, "m@a"), "an alias names it");
	name_best(client, NULL);
	OK(make(client, d, "m@d", 0, 2));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 3));
	cr_expect(is_there(client, "m@c") && is_there(client, "m@d") && is_there(client, "m@plain"));
	drop(d, "m@c");
	drop(d, "m@d");
	DROP(d, "m@plain");
	gpuwm_close(client);
}

/* An operator of the same uid counts as somebody else. */
GPUWMD_TEST(cached, the_last_ones_of_one_publisher_take_no_place_of_anothers)
{
	struct gpuwm_client *client = client_new();

	OK(make(client, d, "m@a", 0, 0));
	OK(make(d->admin, d, "m@b", 0, 1));
	cr_expect(is_there(client, "m@a"));
	OK(make(client, d, "m@c", 0, 1));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 2));
	cr_expect(is_there(client, "m@b") && is_there(client, "m@c"));
	drop(d, "m@b");
	drop(d, "m@c");
	gpuwm_close(client);
}

GPUWMD_TEST(cached, a_retired_key_is_claimed_anew)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping, *late;

	OK(make(client, d, "m@a", 0, 0));
	OK(gpuwm_claim(client, "m@a", NULL, &mapping));
	OK(gpuwm_retire(client, "m@a", 0));
	cr_assert_eq(gpuwm_claim(client, "m@a", NULL, &late), 1, "this client is to make it");
	OK(make(client, d, "m@a", 0, 0));
	OK(gpuwm_detach(mapping));
	drop(d, "m@a");
	gpuwm_close(client);
}

GPUWMD_TEST(cached, operators_see_it)
{
	struct gpuwm_client *client = client_new();
	json_t *list;

	OK(make(client, d, "m@a", LONG_MS, 0));
	cr_assert_eq(CTL("ls", "m"), 0, "%s", output);
	cr_expect(strstr(output, "ready, cached"), "%s", output);
	list = query(d->admin, "list", "m");
	cr_expect(json_object_get(json_array_get(json_object_get(list, "versions"), 0), "expire_at_ms"));
	json_decref(list);
	drop(d, "m@a");
	gpuwm_close(client);
}

/* Two versions of one name are listed: an older one that is retired, and the one that has the name. */
GPUWMD_TEST(cached, gpuwmctl_means_the_one_that_has_the_name)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *old;

	OK(make(client, d, "m@a", 0, 0));
	OK(gpuwm_attach(client, "m@a", NULL, &old));
	OK(gpuwm_retire(client, "m@a", 0));
	OK(make(client, d, "m@a", 0, 0));
	CTL_IS(0, "retire", "m@a", "--wait", "5");
	cr_expect_str_eq(output, "m@a is freed\n");
	cr_expect_eq(status_of(d, "versions"), 1);
	CTL_IS(0, "retire", gpuwm_mapping_version(old)->id);
	cr_expect(strstr(output, "already: 1 lease holds it"), "%s", output);
	OK(gpuwm_detach(old));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(cached, what_it_may_not_be)
{
	struct gpuwm_client *client = client_new();

	FAILS(make(client, d, NULL, 0, 0), EINVAL);
	FAILS(make(client, d, "m@a", UINT64_C(2592000001), 0), EINVAL);
	FAILS(make(client, d, "m@a", 0, 1025), EINVAL);
	gpuwm_close(client);
}

/* What was retired while a worker had it has the name of a newer one. */
GPUWMD_TEST_BY(cached, a_restart_keeps_names_and_times,
	       gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT}), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *old, *soon;

	OK(make(client, d, "m@a", 0, 0));
	OK(gpuwm_attach(client, "m@a", NULL, &old));
	OK(gpuwm_retire(client, "m@a", 0));
	OK(make(client, d, "m@a", LONG_MS, 0));
	OK(make(client, d, "m@b", SHORT_MS, 0));
	OK(gpuwm_attach(client, "m@b", NULL, &soon));
	kept_kill(d, SIGKILL);
	cr_expect(is_there(client, "m@a"));
	cr_assert(EVENTUALLY(SOON_MS, !is_there(client, "m@b")));
	cr_expect(mapping_holds(old, 1) && mapping_holds(soon, 1));
	cr_expect_eq(status_of(d, "versions"), 3);
	cr_expect_eq(status_of(d, "aliases"), 0);
	OK(gpuwm_detach(old));
	OK(gpuwm_detach(soon));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 1));
	drop(d, "m@a");
	gpuwm_close(client);
}
