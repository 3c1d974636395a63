/* Two mappings that exchange their versions, on host. */
#include "include/gpuwm/dlpack.h"

#include "client/lib/key.h"

#include "tests/support/fail_alloc.h"
#include "tests/support/lib/exchange.h"

#include <errno.h>

TestSuite(exchanging, .init = exchange_setup, .fini = exchange_teardown);

static void exchanges(void)
{
	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), 0), "%s", gpuwm_error()->message);
}

/* With this code, these words and a remedy, from both sides; nothing has changed, as with options->check. */
static void refuses_both_ways(int code, const char *words)
{
	struct gpuwm_exchange_options options = GPUWM_OPTIONS(struct gpuwm_exchange_options);

	for (int i = 0; i < 4; i++) {
		int r;

		options.check = i >= 2;
		r = i % 2 ? gpuwm_exchange(other, mapping, &options) : gpuwm_exchange(mapping, other, &options);
		cr_assert(eq(int, r, code), "%s", gpuwm_error()->message);
		cr_assert(strstr(gpuwm_error()->message, words) != NULL, "%s", gpuwm_error()->message);
		cr_assert(lt(sz, 0, strlen(gpuwm_error()->detail)));
		are_at(mapping, other);
	}
}

static void attach_other(struct gpuwm_attach_options *options)
{
	gpuwm_detach(other);
	options->size = sizeof(*options);
	cr_assert(eq(int, gpuwm_attach(client, "m@v2", options, &other), 0), "%s", gpuwm_error()->message);
}

Test(exchanging, puts_each_version_where_the_other_was_and_back)
{
	const void *bases[] = {gpuwm_mapping_address(mapping, NULL), gpuwm_mapping_address(other, NULL)};
	struct gpuwm_tensor here, there;
	int fds = settled_fds();

	gpuwm_tensor_at(mapping, 2, &here);
	gpuwm_tensor_at(other, 2, &there);
	for (int i = 0; i < 5; i++) {
		exchanges();
		are_at(i % 2 ? mapping : other, i % 2 ? other : mapping);
		cr_assert(eq(int, *(const uint8_t *)here.data, i % 2 ? 1 : 2));
		cr_assert(eq(int, *(const uint8_t *)there.data, i % 2 ? 2 : 1));
		cr_assert(gpuwm_mapping_address(mapping, NULL) == bases[0]);
		cr_assert(gpuwm_mapping_address(other, NULL) == bases[1]);
		cr_assert(eq(int, settled_fds(), fds));
	}
	detach_gives_back(&mapping);
	is_version(other, v1, 1);
}

Test(exchanging, needs_no_memory)
{
	fail_alloc_arm(1);
	exchanges();
	cr_assert(eq(int, fail_alloc_disarm(), false));
	are_at(other, mapping);
}

Test(exchanging, of_the_same_version_only_exchanges_the_leases)
{
	struct gpuwm_mapping *second = attach_to("m@v1");
	uint64_t leases[] = {mapping->lease->id, second->lease->id};

	/* They share one part: nothing moves, as in a switch to where it is. */
	cr_assert(eq(int, gpuwm_exchange(mapping, second, NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v1, 1);
	is_version(second, v1, 1);
	cr_assert(eq(u64, mapping->lease->id, leases[1]));
	cr_assert(eq(u64, second->lease->id, leases[0]));
	gpuwm_detach(second);
	are_at(mapping, other);
}

Test(exchanging, with_itself_is_refused)
{
	cr_assert(eq(int, gpuwm_exchange(mapping, mapping, NULL), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "the same one, of m@v1") != NULL);
	are_at(mapping, other);
}

Test(exchanging, names_the_mapping_that_another_attachment_shares)
{
	struct gpuwm_mapping *third = attach_to("m@v1");

	refuses_both_ways(-EBUSY, "shares the mapping of m@v1");
	gpuwm_detach(third);
	third = attach_to("m@v2");
	refuses_both_ways(-EBUSY, "shares the mapping of m@v2");
	gpuwm_detach(third);
	exchanges();
	are_at(other, mapping);
}

Test(exchanging, new_attachments_share_what_has_their_version_now)
{
	struct gpuwm_mapping *first, *second;

	exchanges();
	first = attach_to("m@v1");
	second = attach_to("m@v2");
	cr_assert(gpuwm_mapping_address(first, NULL) == gpuwm_mapping_address(other, NULL));
	cr_assert(gpuwm_mapping_address(second, NULL) == gpuwm_mapping_address(mapping, NULL));
	are_at(first, second);
	gpuwm_detach(first);
	gpuwm_detach(second);
}

/* As a signal handler finds it: the words that name an address. */
static const char *label_at(const void *address)
{
	for (const struct mapped_part *part = mapped_part_first(); part; part = part->next) {
		if (part->range.base == address)
			return part->label;
	}
	return NULL;
}

Test(exchanging, names_faults_after_the_version_that_is_there)
{
	exchanges();
	cr_assert(eq(str, (char *)label_at(gpuwm_mapping_address(mapping, NULL)), "m@v2"));
	cr_assert(eq(str, (char *)label_at(gpuwm_mapping_address(other, NULL)), "m@v1"));
}

Test(exchanging, exports_and_holds_stay_with_the_addresses)
{
	struct DLManagedTensor *export;
	struct gpuwm_tensor tensor;

	gpuwm_tensor_at(mapping, 0, &tensor);
	cr_assert(eq(int, gpuwm_dlpack(mapping, &tensor, &export), 0));
	cr_assert(eq(int, gpuwm_hold(mapping), 0));
	exchanges();
	cr_assert(eq(int, *(const uint8_t *)export->dl_tensor.data, 2));
	cr_assert(eq(u64, gpuwm_mapping_exports(mapping), 2));
	cr_assert(eq(u64, gpuwm_mapping_exports(other), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), -EBUSY));
	cr_assert(strstr(gpuwm_error()->message, "memory of m@v2") != NULL);
	detach_gives_back(&other);
	cr_assert(eq(int, *(const uint8_t *)export->dl_tensor.data, 2));
	export->deleter(export);
	gpuwm_unhold(mapping);
	detach_gives_back(&mapping);
}

Test(exchanging, keeps_what_each_mapping_asked_for)
{
	const struct gpuwm_key_field field = {"dtype", "bf16"};
	struct gpuwm_key_field *key = key_copy(&field, 1);

	free(mapping->key);
	mapping->key = key;
	mapping->key_count = 1;
	mapping->owner.operators = true;
	exchanges();
	cr_assert(mapping->key == key);
	cr_assert(mapping->owner.operators && !other->owner.operators);
	/* A switch asks for it. */
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), -EKEYREJECTED));
	cr_assert(eq(int, gpuwm_switch(other, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v2, 2);
	is_version(other, v2, 2);
}

/* ---- refused ----------------------------------------------------------- */

Test(exchanging, refuses_another_layout_and_names_the_first_difference)
{
	struct made made = made_default("v2", 2);

	gpuwm_detach(other);
	for (size_t i = 0; i < v2->fd_count; i++)
		close(v2->fds[i]);
	fake->version_count = 1;
	made.dtype = DTYPE_I32;
	made_add(fake, &host, &made);
	other = attach_to("m@v2");
	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), -EXDEV));
	cr_assert(strstr(gpuwm_error()->message, "b is F32 [10, 20] in m@v1, I32 [10, 20] in m@v2") != NULL);
	cr_assert(eq(int, gpuwm_exchange(other, mapping, NULL), -EXDEV));
	cr_assert(strstr(gpuwm_error()->message, "b is I32 [10, 20] in m@v2, F32 [10, 20] in m@v1") != NULL);
	are_at(mapping, other);
}

Test(exchanging, refuses_another_device_and_another_rank)
{
	other->version.rank = 1;
	refuses_both_ways(-EXDEV, "another rank: ");
	strcpy(other->version.device, "GPU-1");
	refuses_both_ways(-EXDEV, "another device: ");
}

Test(exchanging, refuses_other_peers)
{
	struct memory_device *part_device = &other->part->device;

	part_device->peer_count = 1;
	refuses_both_ways(-EXDEV, "other GPUs may read m@v");
	part_device->peer_count = mapping->part->device.peer_count = 1;
	part_device->peers[0] = 3;
	refuses_both_ways(-EXDEV, "other GPUs may read m@v");
}

Test(exchanging, refuses_another_subset_of_segments)
{
	const char *const globs[] = {"c"};
	struct gpuwm_attach_options options = {.globs = globs, .glob_count = 1};

	attach_other(&options);
	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), -EXDEV));
	cr_assert(strstr(gpuwm_error()->message, "other segments of m@v1 are mapped than of m@v2") != NULL);
}

Test(exchanging, takes_the_same_subset_of_segments)
{
	const char *const globs[] = {"c"};
	struct gpuwm_attach_options options = {.size = sizeof(options), .globs = globs, .glob_count = 1};
	struct gpuwm_tensor tensor;

	gpuwm_detach(mapping);
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0));
	attach_other(&options);
	gpuwm_tensor_find(mapping, "c", &tensor);
	cr_assert(eq(int, *(const uint8_t *)tensor.data, 1));
	exchanges();
	cr_assert(eq(int, *(const uint8_t *)tensor.data, 2));
}

Test(exchanging, refuses_when_only_one_may_be_written)
{
	struct gpuwm_attach_options options = {.private_writes = true};

	attach_other(&options);
	refuses_both_ways(-EINVAL, "only m@v2 may be written privately");
}

Test(exchanging, loses_what_was_written_privately)
{
	struct gpuwm_attach_options options = {.size = sizeof(options), .private_writes = true};
	struct gpuwm_tensor tensor;

	gpuwm_detach(mapping);
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0));
	attach_other(&options);
	gpuwm_tensor_at(mapping, 0, &tensor);
	*(uint8_t *)tensor.data = 9;
	exchanges();
	are_at(other, mapping);
	*(uint8_t *)tensor.data = 9;
	exchanges();
	are_at(mapping, other);
}

Test(exchanging, takes_options_of_a_known_size)
{
	struct gpuwm_exchange_options options = GPUWM_OPTIONS(struct gpuwm_exchange_options);

	options.size++;
	cr_assert(eq(int, gpuwm_exchange(mapping, other, &options), -EINVAL));
	are_at(mapping, other);
}

Test(exchanging, a_check_changes_nothing)
{
	struct gpuwm_exchange_options options = GPUWM_OPTIONS(struct gpuwm_exchange_options);
	const struct lease *leases[] = {mapping->lease, other->lease};
	struct gpuwm_mapping *third;

	options.check = true;
	cr_assert(eq(int, gpuwm_exchange(mapping, other, &options), 0), "%s", gpuwm_error()->message);
	are_at(mapping, other);
	cr_assert(mapping->lease == leases[0] && other->lease == leases[1]);
	third = attach_to("m@v1");
	cr_assert(gpuwm_mapping_address(third, NULL) == gpuwm_mapping_address(mapping, NULL));
	cr_assert(eq(int, gpuwm_exchange(mapping, third, &options), 0));
	cr_assert(mapping->lease == leases[0]);
	gpuwm_detach(third);
}

/* ---- failing ----------------------------------------------------------- */

static struct memory_ops failing; /* memory_host, but for calls whose bits are set in `failures` */
static unsigned failures, calls;

static bool call_fails(void)
{
	return failures & 1u << calls++;
}

static int failing_vacate(const struct memory_device *of, const struct memory_range *range,
			  struct memory_segment *segments, uint32_t count, struct error *error)
{
	if (call_fails())
		return error_set(error, -EIO, NULL, "unmapping failed");
	return memory_host.vacate(of, range, segments, count, error);
}

/* Some of the segments are there when it fails. */
static int failing_map_all(const struct memory_device *of, const struct memory_range *range,
			   struct memory_segment *segments, uint32_t count, struct error *error)
{
	uint64_t handle = segments[count - 1].handle;
	int r;

	if (!call_fails())
		return memory_host.map_all(of, range, segments, count, error);
	segments[count - 1].handle = 0;
	r = memory_host.map_all(of, range, segments, count, error);
	segments[count - 1].handle = handle;
	return r;
}

/* In the order of the calls: both are vacated, both are mapped. */
enum { VACATE_FIRST, VACATE_SECOND, MAP_FIRST, MAP_SECOND };

static int exchange_with(unsigned failing_calls)
{
	int r;

	failing = memory_host;
	failing.vacate = failing_vacate;
	failing.map_all = failing_map_all;
	failures = failing_calls;
	calls = 0;
	mapping->part->device.ops = other->part->device.ops = &failing;
	r = gpuwm_exchange(mapping, other, NULL);
	mapping->part->device.ops = other->part->device.ops = &memory_host;
	return r;
}

Test(exchanging, puts_both_back_whichever_call_fails)
{
	int fds = settled_fds();

	for (unsigned call = VACATE_FIRST; call <= MAP_SECOND; call++) {
		int r = exchange_with(1u << call);

		cr_assert(eq(int, r, call < MAP_FIRST ? -EIO : -EBADF), "call %u: %s", call,
			  gpuwm_error()->message);
		are_at(mapping, other);
		cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
		cr_assert(eq(int, gpuwm_mapping_check(other), 0));
		cr_assert(eq(int, settled_fds(), fds));
	}
	cr_assert(eq(int, exchange_with(0), 0));
	cr_assert(eq(uint, calls, 4));
	are_at(other, mapping);
}

/* The second can't be mapped, and neither can what these bits say be put back. */
static void loses(unsigned failing_calls, const char *words)
{
	cr_assert(eq(int, exchange_with(failing_calls), -ENOTRECOVERABLE));
	cr_assert(strstr(gpuwm_error()->message, words) == gpuwm_error()->message, "%s",
		  gpuwm_error()->message);
	cr_assert(eq(str, (char *)mapping->version.tag, "v1"));
	cr_assert(eq(str, (char *)other->version.tag, "v2"));
	has_its_lease(mapping);
	has_its_lease(other);
}

/* Of fill, fill, vacate and put back twice, from MAP_SECOND on. */
enum { FILL_FAILS = 1u << MAP_SECOND, FIRST_LOST = 1u << 5, SECOND_LOST = 1u << 6 };

Test(exchanging, says_which_one_is_lost_when_it_can_not_be_put_back)
{
	struct gpuwm_tensor tensor;

	loses(FILL_FAILS | FIRST_LOST, "m@v1 could not be put back after this: mapping 4096 bytes");
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &tensor), -ENOTRECOVERABLE));
	is_version(other, v2, 2);
	loses(1u << VACATE_FIRST | 1u << 1, "m@v1 could not be put back");
	is_version(other, v2, 2);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	are_at(mapping, other);
	loses(FILL_FAILS | SECOND_LOST, "m@v2 could not be put back after this: mapping 4096 bytes");
	cr_assert(eq(int, gpuwm_mapping_check(other), -ENOTRECOVERABLE));
	is_version(mapping, v1, 1);
	cr_assert(label_at(gpuwm_mapping_address(other, NULL)) == NULL);
	detach_gives_back(&other);
	is_version(mapping, v1, 1);
}

Test(exchanging, exchanging_again_brings_what_was_lost_back)
{
	loses(FILL_FAILS | FIRST_LOST | SECOND_LOST, "neither m@v1 nor m@v2 could be put back after this");
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_mapping_check(other), -ENOTRECOVERABLE));
	exchanges();
	are_at(other, mapping);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_mapping_check(other), 0));
}

Test(exchanging, both_can_be_detached_when_both_are_lost)
{
	loses(FILL_FAILS | FIRST_LOST | SECOND_LOST, "neither m@v1 nor m@v2 could be put back after this");
	detach_gives_back(&mapping);
	detach_gives_back(&other);
}

Test(exchanging, with_a_fresh_attachment_of_its_version_brings_a_lost_one_back)
{
	struct gpuwm_mapping *fresh;

	for (int i = 0; i < 2; i++) {
		loses(FILL_FAILS | FIRST_LOST, "m@v1 could not be put back after this");
		fresh = attach_to("m@v1");
		cr_assert(eq(int, gpuwm_exchange(i ? mapping : fresh, i ? fresh : mapping, NULL), 0));
		are_at(mapping, other);
		are_at(fresh, other);
		gpuwm_detach(fresh);
	}
}
