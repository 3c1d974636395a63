/* Companions: cached versions that end with the version that they belong to. */
#include "beside.h"
#include "kept.h"

#include "base/limits.h"
#include "tests/support/any/own_folder.h"

#include <signal.h>
#include <string.h>

SYSTEM_SUITE(companions);

static char id_of_m[33];

/* "m@v1", whose id is id_of_m from then on. */
static void make_m(struct gpuwm_client *client, struct gpuwmd *d)
{
	struct gpuwm_mapping *mapping;

	OK(publish_version(client, d->device, "m@v1", SMALL(1)));
	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	snprintf(id_of_m, sizeof(id_of_m), "%s", gpuwm_mapping_version(mapping)->id);
	OK(gpuwm_detach(mapping));
}

/* Waits so long until it is freed. */
static void retire_m(struct gpuwm_client *client, int64_t wait_ms)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = "m";
	options.alias = "current";
	OK(gpuwm_swap(client, &options, NULL));
	OK(gpuwm_retire(client, "m@v1", wait_ms));
}

static struct gpuwm_publish_options companion(const char *name, const char *of)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);

	options.name = name;
	options.device = "host";
	options.cached = true;
	options.companion_of = of;
	return options;
}

static int make(struct gpuwm_client *client, const char *name, const char *of)
{
	struct gpuwm_publish_options options = companion(name, of);
	struct gpuwm_publish *publish;
	int r = publish_begin_with(client, &options, SMALL(2), &publish);

	if (r == 0)
		r = publish_fill(publish, SMALL(2));
	return r < 0 ? r : gpuwm_publish_commit(publish, NULL);
}

/* A begin of so many bytes, without their memory. */
static int begin(struct gpuwm_client *client, const char *name, uint64_t bytes, struct gpuwm_publish **ret)
{
	struct gpuwm_publish_options options = companion(name, id_of_m);
	const struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = &bytes};

	options.stepwise = true;
	return gpuwm_publish_begin(client, &options, &spec, 1, ret);
}

GPUWMD_TEST(companions, it_is_retired_when_its_version_is_freed)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping, *of;

	make_m(client, d);
	OK(make(client, "m@c", id_of_m));
	OK(make(client, "m@held", id_of_m));
	OK(gpuwm_attach(client, "m@v1", NULL, &of));
	OK(gpuwm_attach(client, "m@held", NULL, &mapping));
	retire_m(client, 0);
	cr_expect_eq(status_of(d, "versions"), 3, "a worker has the version");
	OK(gpuwm_detach(of));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 1));
	cr_expect(mapping_holds(mapping, 2));
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(companions, one_that_comes_too_late_ends_at_once)
{
	struct gpuwm_publish_options options;
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;

	make_m(client, d);
	options = companion("m@late", id_of_m);
	OK(publish_begin_with(client, &options, SMALL(2), &publish));
	retire_m(client, SOON_MS);
	OK(publish_fill(publish, SMALL(2)));
	OK(gpuwm_publish_commit(publish, NULL));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(companions, what_it_may_not_be)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish_options options;
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	char id_of_c[33];

	make_m(client, d);
	OK(make(client, "m@c", id_of_m));
	OK(gpuwm_attach(client, "m@c", NULL, &mapping));
	snprintf(id_of_c, sizeof(id_of_c), "%s", gpuwm_mapping_version(mapping)->id);
	OK(gpuwm_detach(mapping));
	FAILS(make(client, "m@d", "00000000000000000000000000000001"), ENOENT);
	FAILS(make(client, "other@d", id_of_m), ENOENT);
	FAILS(make(client, "m@d", id_of_c), EINVAL);
	FAILS(make(client, "m@d", "v1"), EINVAL);
	options = companion("m@d", id_of_m);
	options.cached = false;
	FAILS(publish_begin_with(client, &options, SMALL(1), &publish), EINVAL);
	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	retire_m(client, 0);
	FAILS(make(client, "m@d", id_of_m), EINVAL);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(companions, all_of_one_version_have_a_limit)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *large, *small;

	make_m(client, d);
	FAILS(begin(client, "m@a", COMPANION_BYTES_MAX + 1, &large), EFBIG);
	cr_expect(strstr(gpuwm_error()->message, "1073741824 together"), "%s", gpuwm_error()->message);
	OK(begin(client, "m@a", COMPANION_BYTES_MAX, &large));
	FAILS(begin(client, "m@b", 1, &small), EFBIG);
	gpuwm_publish_abort(large, "the test wants so");
	OK(begin(client, "m@b", 1, &small));
	gpuwm_publish_abort(small, "the test wants so");
	retire_m(client, SOON_MS);
	gpuwm_close(client);
}

/* A builder's results may have the same model and user. */
GPUWMD_TEST(companions, it_takes_no_place_of_cached_versions)
{
	struct gpuwm_publish_options options;
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;

	make_m(client, d);
	OK(make(client, "m@c", id_of_m));
	options = companion("m@result", NULL);
	options.keep_last = 1;
	OK(publish_begin_with(client, &options, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	OK(gpuwm_publish_commit(publish, NULL));
	OK(gpuwm_attach(client, "m@c", NULL, &mapping));
	OK(gpuwm_detach(mapping));
	OK(gpuwm_retire(client, "m@result", SOON_MS));
	retire_m(client, SOON_MS);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(companions, show_names_them)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	make_m(client, d);
	OK(make(client, "m@c", id_of_m));
	OK(gpuwm_attach(client, "m@c", NULL, &mapping)); /* it is there until the end */
	CTL_IS(0, "show", "m@v1");
	cr_expect(strstr(output, "companion m@c"), "%s", output);
	CTL_IS(0, "show", "m@c");
	cr_expect(strstr(output, "a companion of m@v1"), "%s", output);
	CTL_IS(0, "show", "m@v1", "-o", "json");
	cr_expect(strstr(output, "\"companions\""), "%s", output);
	retire_m(client, SOON_MS);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST_BY(companions, a_restart_keeps_them,
	       gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT}), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	make_m(client, d);
	OK(make(client, "m@c", id_of_m));
	kept_kill(d, SIGKILL);
	OK(gpuwm_attach(client, "m@c", NULL, &mapping));
	cr_expect(mapping_holds(mapping, 2));
	OK(gpuwm_detach(mapping));
	retire_m(client, SOON_MS);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(companions, files_of_a_save_have_them)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	char folder[256], inside[300];

	snprintf(folder, sizeof(folder), "%s/saved", d->root);
	snprintf(inside, sizeof(inside), "%s/companions/c/model.safetensors", folder);
	make_m(client, d);
	OK(make(client, "m@v1.c", id_of_m));
	CTL_IS(0, "save", "m@v1", folder);
	SAYS("its companion v1.c is saved beneath it");
	cr_assert_eq(access(inside, R_OK), 0);
	retire_m(client, SOON_MS);
	CTL_IS(0, "load", folder, "m@plain", "--device", d->device, "--wait");
	cr_expect_eq(status_of(d, "versions"), 1, "nobody asked for files that are code");
	CTL_IS(0, "load", folder, "m@v2", "--device", d->device, "--wait", "--companions");
	SAYS("its companion m@v2.c is ready");
	OK(gpuwm_attach(client, "m@v2.c", NULL, &mapping));
	cr_expect(mapping_holds(mapping, 2));
	cr_expect_str_eq(gpuwm_mapping_version(mapping)->device, "host");
	OK(gpuwm_detach(mapping));
	CTL_IS(0, "show", "m@v2");
	SAYS("companion m@v2.c");
	CTL_IS(0, "load", folder, "m@v3", "--device", d->device, "--wait", "--companions", "--dry-run");
	DROP(d, "m@plain", "m@v2");
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 0));
	gpuwm_close(client);
}

/* It names a version of another model, or what is no id. */
GPUWMD_TEST(companions, a_load_of_one_may_fail)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	struct gpuwm_client *client = client_new();
	const char *source = checkpoint_write(d, "c", SMALL(2));
	uint64_t job;

	make_m(client, d);
	options.source = source;
	options.name = "other@c";
	options.devices = &(const char *){"host"};
	options.device_count = 1;
	options.companion_of = id_of_m;
	OK(gpuwm_load(d->admin, &options, &job));
	FAILS(gpuwm_job_wait(d->admin, job, SOON_MS), ENOENT);
	options.companion_of = "v1";
	FAILS(gpuwm_load(d->admin, &options, &job), EINVAL);
	DROP(d, "m@v1");
	gpuwm_close(client);
}

/* ---- from a node ---------------------------------------------------------- */

static char config[96];

/* gpuwmctl asks the nodes that gpuwmd's own file names. */
static struct gpuwmd *begin_with_file(void)
{
	peers_setting(); /* writes the secret */
	snprintf(config, sizeof(config), "%s/gpuwmd.conf", own_folder());
	text_write(config, 0644, "[peers]\nsecret = %s\n", peers_secret());
	return gpuwmd_start("--config", config, NULL);
}

GPUWMD_TEST_IF(companions, a_version_of_a_node_brings_them, beside_needs_built(), begin_with_file(),
	       gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct beside peer = {0}, other = {0};

	make_m(client, d);
	OK(make(client, "m@v1.c", id_of_m));
	beside_start(&peer, d);
	beside_start(&other, d);
	/* Its address is the same, and its port is not. */
	text_write(config, 0644, "[peers]\nsecret = %s\npeer = 127.0.0.1:%u\n", peers_secret(), other.port);
	CTL_IS(4, "load", peer.source, "early@v1", "--device", d->device, "--wait", "--companions");
	SAYS("early@v1 is ready, but no node of the configuration tells of m@v1");
	text_write(config, 0644, "[peers]\nsecret = %s\npeer = 127.0.0.1:%u\n", peers_secret(), peer.port);
	CTL_IS(0, "load", peer.source, "copy@v2", "--device", d->device, "--wait", "--companions");
	SAYS("its companion copy@v2.c is ready");
	OK(gpuwm_attach(client, "copy@v2.c", NULL, &mapping));
	cr_expect(mapping_holds(mapping, 2));
	OK(gpuwm_detach(mapping));
	CTL_IS(0, "show", "copy@v2");
	SAYS("companion copy@v2.c");
	beside_stop(&other);
	beside_stop(&peer);
	DROP(d, "early@v1", "copy@v2", "m@v1");
	gpuwm_close(client);
}
