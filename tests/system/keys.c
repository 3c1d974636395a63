/* A version's key: who attaches says what must be equal. */
#include "harness.h"

#include "../../base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_SUITE(keys);

#define NAME "m@v1"
#define KEY(...)                                                                                               \
	(const struct gpuwm_key_field[])                                                                       \
	{                                                                                                      \
		__VA_ARGS__                                                                                    \
	}

static const struct gpuwm_key_field bf16[] = {{"dtype", "bf16"}, {"engine", "e 1.0"}};
static const struct gpuwm_key_field fp8[] = {{"dtype", "fp8"}, {"engine", "e 1.0"}};

static int part_begin(struct gpuwm_client *client, const char *device, const char *name,
		      const struct gpuwm_key_field *key, size_t count, struct gpuwm_publish **ret_publish)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	uint64_t shape = 1000;
	struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = &shape};

	options.name = name;
	options.device = device;
	options.key = key;
	options.key_count = count;
	return gpuwm_publish_begin(client, &options, &spec, 1, ret_publish);
}

static void publish(struct gpuwmd *d, const char *name, const struct gpuwm_key_field *key)
{
	struct gpuwm_publish *p;

	OK(part_begin(d->admin, d->device, name, key, key ? 2 : 0, &p));
	OK(gpuwm_publish_commit(p, NULL));
}

static struct gpuwm_attach_options asking(const struct gpuwm_key_field *key, size_t count)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	options.key = key;
	options.key_count = count;
	return options;
}

static int attach(struct gpuwm_client *client, const struct gpuwm_key_field *key, size_t count,
		  struct gpuwm_mapping **ret_mapping)
{
	struct gpuwm_attach_options options = asking(key, count);

	return gpuwm_attach(client, NAME, &options, ret_mapping);
}

static void says(const char *words)
{
	cr_assert(strstr(gpuwm_error()->message, words), "%s", gpuwm_error()->message);
}

GPUWMD_TEST(keys, each_field_that_is_asked_for_is_there_and_equal)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	publish(d, NAME, bf16);
	OK(attach(client, bf16, 2, &mapping));
	cr_assert_str_eq(gpuwm_metadata(mapping, "key.dtype"), "bf16");
	OK(gpuwm_detach(mapping));
	OK(attach(client, &bf16[1], 1, &mapping));
	OK(gpuwm_detach(mapping));
	FAILS(EKEYREJECTED, attach(client, fp8, 2, &mapping));
	says("dtype: \"fp8\" was asked for, it has \"bf16\"");
	FAILS(EKEYREJECTED, attach(client, KEY({"dtype", "bf16"}, {"tp", "2"}), 2, &mapping));
	says("no field tp");
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0), "what was refused holds nothing");
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(keys, a_version_without_one_is_refused_to_who_asks)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	publish(d, NAME, NULL);
	FAILS(EKEYREJECTED, attach(client, bf16, 2, &mapping));
	OK(attach(client, NULL, 0, &mapping));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(keys, handles_and_claims_ask_too)
{
	struct gpuwm_attach_options right = asking(bf16, 2), wrong = asking(fp8, 2);
	struct gpuwm_client *client = client_new();
	struct gpuwm_handles *handles;
	struct gpuwm_mapping *mapping;

	publish(d, NAME, bf16);
	FAILS(EKEYREJECTED, gpuwm_get_handles(client, NAME, &wrong, &handles));
	FAILS(EKEYREJECTED, gpuwm_claim(client, NAME, &wrong, &mapping));
	OK(gpuwm_get_handles(client, NAME, &right, &handles));
	OK(gpuwm_handles_release(handles));
	cr_assert_eq(OK(gpuwm_claim(client, NAME, &right, &mapping)), 0);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(keys, a_switch_asks_for_what_was_asked_at_first)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping, *any;

	publish(d, NAME, bf16);
	publish(d, "m@v2", fp8);
	publish(d, "m@v3", bf16);
	OK(attach(client, bf16, 2, &mapping));
	FAILS(EKEYREJECTED, gpuwm_switch(mapping, "m@v2", NULL));
	cr_assert_str_eq(gpuwm_mapping_version(mapping)->tag, "v1");
	OK(gpuwm_switch(mapping, "m@v3", NULL));
	FAILS(EKEYREJECTED, gpuwm_switch(mapping, "m@v2", NULL));
	OK(attach(client, NULL, 0, &any));
	OK(gpuwm_switch(any, "m@v2", NULL));
	OK(gpuwm_detach(any));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1", "m@v2", "m@v3");
}

static int switch_asking(struct gpuwm_mapping *mapping, const char *ref, const struct gpuwm_key_field *key,
			 size_t count)
{
	struct gpuwm_switch_options options = GPUWM_OPTIONS(struct gpuwm_switch_options);

	options.key = key;
	options.key_count = count;
	return gpuwm_switch(mapping, ref, &options);
}

GPUWMD_TEST(keys, a_switch_with_a_key_of_its_own_asks_for_that_one)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	publish(d, NAME, bf16);
	publish(d, "m@v2", fp8);
	publish(d, "m@v3", NULL);
	OK(attach(client, bf16, 2, &mapping));
	FAILS(EKEYREJECTED, switch_asking(mapping, "m@v2", bf16, 2));
	says("the key of m@v2 differs in dtype: \"bf16\" was asked for, it has \"fp8\"");
	FAILS(EKEYREJECTED, switch_asking(mapping, "m@v3", &bf16[1], 1));
	says("the key of m@v3 has no field engine; \"e 1.0\" was asked for");
	FAILS(EKEYREJECTED, switch_asking(mapping, NAME, fp8, 2));
	FAILS(EINVAL, switch_asking(mapping, "m@v2", NULL, 1));
	FAILS(EINVAL, switch_asking(mapping, "m@v2", KEY({"a b", "x"}), 1));
	cr_assert_str_eq(gpuwm_mapping_version(mapping)->tag, "v1");
	OK(switch_asking(mapping, "m@v2", &bf16[1], 1));
	OK(switch_asking(mapping, "m@v3", bf16, 0));
	cr_assert_str_eq(gpuwm_mapping_version(mapping)->tag, "v3");
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0), "what was refused holds nothing");
	gpuwm_close(client);
	DROP(d, "m@v1", "m@v2", "m@v3");
}

GPUWMD_TEST(keys, a_key_of_one_switch_is_not_asked_for_by_the_next)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	publish(d, NAME, bf16);
	publish(d, "m@v2", fp8);
	OK(attach(client, bf16, 2, &mapping));
	OK(switch_asking(mapping, "m@v2", fp8, 2));
	OK(gpuwm_switch(mapping, "m@v2", NULL));
	OK(gpuwm_switch(mapping, NAME, NULL));
	FAILS(EKEYREJECTED, gpuwm_switch(mapping, "m@v2", NULL));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1", "m@v2");
}

GPUWMD_TEST(keys, who_published_and_stays_attached_asks_for_its_own)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *p;

	publish(d, "m@v2", fp8);
	OK(part_begin(d->admin, d->device, NAME, bf16, 2, &p));
	OK(gpuwm_publish_commit_attached(p, &mapping));
	cr_assert_str_eq(gpuwm_metadata(mapping, "key.dtype"), "bf16");
	FAILS(EKEYREJECTED, gpuwm_switch(mapping, "m@v2", NULL));
	OK(gpuwm_detach(mapping));
	DROP(d, "m@v1", "m@v2");
}

static void is_no_key(struct gpuwmd *d, const struct gpuwm_key_field *key, size_t count)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *p;

	FAILS(EINVAL, attach(d->admin, key, count, &mapping));
	FAILS(EINVAL, part_begin(d->admin, d->device, NAME, key, count, &p));
}

GPUWMD_TEST(keys, what_is_none_is_refused_before_anything_is_made)
{
	struct gpuwm_key_field many[KEY_FIELDS_MAX + 1];
	char names[KEY_FIELDS_MAX + 1][8], longer[KEY_VALUE_BYTES_MAX + 2] = "";
	struct gpuwm_mapping *mapping;

	memset(longer, 'x', sizeof longer - 1);
	for (int i = 0; i <= KEY_FIELDS_MAX; i++) {
		snprintf(names[i], sizeof names[i], "f%d", i);
		many[i] = (struct gpuwm_key_field){names[i], longer + 1};
	}
	is_no_key(d, many, KEY_FIELDS_MAX + 1);
	is_no_key(d, NULL, 1);
	is_no_key(d, KEY({"dtype", "bf16"}, {"dtype", "bf16"}), 2);
	is_no_key(d, KEY({"", "x"}), 1);
	is_no_key(d, KEY({"a b", "x"}), 1);
	is_no_key(d, KEY({NULL, "x"}), 1);
	is_no_key(d, KEY({"dtype", NULL}), 1);
	is_no_key(d, KEY({"dtype", "\xff"}), 1);
	is_no_key(d, KEY({"dtype", longer}), 1);
	FAILS(ENOENT, attach(d->admin, many, KEY_FIELDS_MAX, &mapping));
}

/* Said with the load; what a file says of itself is no key. */
GPUWMD_TEST(keys, a_load_has_the_one_that_it_was_given)
{
	static const char header[] = "{\"__metadata__\":{\"key.tp\":\"4\",\"format\":\"pt\"},"
				     "\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
	const char *source = safetensors_write(d, "v1.safetensors", header, 8);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	CTL_IS(0, "load", source, NAME, "--device", d->device, "--wait", "--key", "dtype=bf16", "--key",
	       "engine=e 1.0");
	SAYS("key.tp is left out");
	OK(attach(client, bf16, 2, &mapping));
	cr_assert_str_eq(gpuwm_metadata(mapping, "format"), "pt");
	cr_assert_null(gpuwm_metadata(mapping, "key.tp"));
	OK(gpuwm_detach(mapping));
	FAILS(EKEYREJECTED, attach(client, fp8, 2, &mapping));
	CTL_IS(0, "show", NAME);
	SAYS("key.dtype");
	gpuwm_close(client);
	DROP(d, "m@v1");
}

/* The new version's own: the old one's is not taken over. */
GPUWMD_TEST(keys, what_replaces_a_version_has_the_one_that_it_was_given)
{
	const char *source = checkpoint_write(d, "v2", SMALL(2));
	struct gpuwm_attach_options asked = asking(fp8, 2);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	publish(d, NAME, bf16);
	CTL_IS(0, "swap", "m", "v2", "--load", source, "--device", d->device, "--key", "dtype=fp8", "--key",
	       "engine=e 1.0");
	OK(gpuwm_attach(client, "m", &asked, &mapping));
	OK(gpuwm_detach(mapping));
	CTL_IS(0, "swap", "m", "v3", "--load", source, "--device", d->device);
	FAILS(EKEYREJECTED, gpuwm_attach(client, "m", &asked, &mapping));
	gpuwm_close(client);
	DROP(d, "m@v3");
}

GPUWMD_TEST(keys, a_load_with_a_wrong_one_is_not_begun)
{
	const char *source = checkpoint_write(d, "v1", SMALL(1));

	CTL_IS(2, "load", source, NAME, "--key", "dtype");
	cr_assert_neq(CTL("load", source, NAME, "--key", "a b=c"), 0);
	SAYS("a b");
	cr_assert_neq(CTL("load", source, NAME, "--key", "a=1", "--key", "a=2"), 0);
	SAYS("is there twice");
}

GPUWMD_TEST(keys, other_texts_do_not_pass_for_one)
{
	struct gpuwm_publish *p;

	OK(part_begin(d->admin, d->device, NAME, bf16, 2, &p));
	FAILS(EINVAL, gpuwm_publish_metadata(p, "key.tp", "2"));
	OK(gpuwm_publish_metadata(p, "key", "2"));
	OK(gpuwm_publish_abort(p, NULL));
}
