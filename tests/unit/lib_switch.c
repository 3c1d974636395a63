/* A mapping that becomes another version's, on host. */
#include "client/lib/mapping.h"

#include <sys/mman.h>

#include "fail_alloc.h"
#include "lib_restart.h"
#include "lib_versions.h"

static struct memory_device host;
static struct fake_version *v1, *v2;

static void setup(void)
{
	struct made made = made_default("v1", 1);

	restart_setup();
	cr_assert(eq(int, memory_device_open("host", &host, NULL), 0));
	fake->version_count = 0;
	v1 = made_add(fake, &host, &made);
	made = made_default("v2", 2);
	v2 = made_add(fake, &host, &made);
	*fake->name = 0;
}

TestSuite(switching, .init = setup, .fini = restart_teardown);

/* When gpuwmd has closed what it sent. */
static int settled_fds(void)
{
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%s", gpuwm_error()->message);
	return open_fds();
}

static struct gpuwm_mapping *attach_to(const char *ref)
{
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, gpuwm_attach(client, ref, NULL, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

static void is_version(const struct gpuwm_mapping *mapping, const struct fake_version *version, int fill)
{
	cr_assert(eq(int, filled_with(mapping), fill));
	cr_assert(eq(str, (char *)gpuwm_mapping_version(mapping)->id, (char *)version->id));
	cr_assert(eq(str, (char *)gpuwm_mapping_version(mapping)->tag, (char *)version->tag));
	cr_assert(eq(str, (char *)gpuwm_metadata(mapping, "tag"), (char *)version->tag));
}

/* One lease is held, by gpuwmd and by the client, and it is the mapping's. */
static void holds_one_lease(struct gpuwm_mapping *mapping)
{
	cr_assert(eq(uint, fake->leases, 1));
	cr_assert(client->reviver.leases == mapping->lease);
	cr_assert(mapping->lease->next == NULL);
	cr_assert(eq(str, mapping->lease->version.id, mapping->version.id));
}

Test(switching, puts_the_new_bytes_where_the_old_ones_were)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor before[3], after;
	const void *base = gpuwm_mapping_address(mapping, NULL);
	uint8_t content[16];
	int fds = settled_fds();

	memcpy(content, gpuwm_mapping_version(mapping)->content, 16);
	for (uint64_t i = 0; i < 3; i++)
		gpuwm_tensor_at(mapping, i, &before[i]);
	cr_assert(eq(int, *(const uint8_t *)before[2].data, 1));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, *(const uint8_t *)before[2].data, 2));
	is_version(mapping, v2, 2);
	for (uint64_t i = 0; i < 3; i++) {
		gpuwm_tensor_at(mapping, i, &after);
		cr_assert(after.data == before[i].data);
		cr_assert(ne(int, memcmp(after.digest, before[i].digest, 16), 0));
	}
	cr_assert(gpuwm_mapping_address(mapping, NULL) == base);
	cr_assert(ne(int, memcmp(content, gpuwm_mapping_version(mapping)->content, 16), 0));
	holds_one_lease(mapping);
	cr_assert(eq(uint, fake->releases, 1));
	cr_assert(eq(int, settled_fds(), fds));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(switching, goes_to_and_fro)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor tensor;
	int fds = settled_fds();

	gpuwm_tensor_at(mapping, 0, &tensor);
	for (int i = 0; i < 100; i++) {
		cr_assert(eq(int, gpuwm_switch(mapping, i % 2 ? "m@v1" : "m@v2", NULL), 0));
		cr_assert(eq(int, *(const uint8_t *)tensor.data, i % 2 ? 1 : 2));
	}
	cr_assert(eq(int, settled_fds(), fds));
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, to_where_it_is_takes_a_new_lease_only)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1"), *second = attach_to("m@v1");

	/* Shared or not: nothing moves. */
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0));
	cr_assert(eq(u64, mapping->lease->id, 3));
	cr_assert(eq(uint, fake->leases, 2));
	gpuwm_detach(second);
	cr_assert(eq(int, gpuwm_switch(mapping, v1->id, NULL), 0));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, is_refused_while_another_attachment_shares_the_mapping)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1"), *second = attach_to("m@v1");

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EBUSY));
	cr_assert(strstr(gpuwm_error()->message, "shares the mapping") != NULL);
	cr_assert(gt(sz, strlen(gpuwm_error()->detail), 0));
	is_version(mapping, v1, 1);
	cr_assert(eq(uint, fake->leases, 2));
	cr_assert(eq(int, gpuwm_detach(second), 0));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	is_version(mapping, v2, 2);
	gpuwm_detach(mapping);
}

Test(switching, leaves_what_else_is_attached_alone)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1"), *other = attach_to("m@v2"), *third;

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v2, 2);
	third = attach_to("m@v1");
	is_version(third, v1, 1);
	is_version(other, v2, 2);
	cr_assert(gpuwm_mapping_address(third, NULL) != gpuwm_mapping_address(mapping, NULL));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v1, 1);
	is_version(other, v2, 2);
	gpuwm_detach(other);
	gpuwm_detach(mapping);
	is_version(third, v1, 1);
	gpuwm_detach(third);
	cr_assert(eq(uint, fake->leases, 0));
}

/* v2 anew, as `made` says; v1 stays as it is. */
static void refuses_layout(const struct made *made, const char *words)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct fake_version *version = v2;
	int fds;

	for (size_t i = 0; i < version->fd_count; i++)
		close(version->fds[i]);
	fake->version_count = 1;
	made_add(fake, &host, made);
	fds = settled_fds();
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EXDEV));
	cr_assert(strstr(gpuwm_error()->message, words) != NULL, "%s", gpuwm_error()->message);
	cr_assert(eq(str, (char *)gpuwm_error()->name, "EXDEV"));
	cr_assert(gt(sz, strlen(gpuwm_error()->detail), 0));
	cr_assert(eq(int, settled_fds(), fds));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, refuses_another_layout_and_names_the_first_difference)
{
	struct made made = made_default("v2", 2);

	made.names[1] = "bb";
	refuses_layout(&made, "only m@v1 has a tensor b");
	made.names[1] = "aa";
	refuses_layout(&made, "only m@v2 has a tensor aa");
	made.names[1] = "b";
	made.tensors = 2;
	refuses_layout(&made, "only m@v1 has a tensor c");
	made.tensors = 3;
	made.dtype = DTYPE_I32;
	refuses_layout(&made, "tensor b is F32 [10, 20] in m@v1, I32 [10, 20] in m@v2");
	made.dtype = DTYPE_F32;
	made.shape[0] = 20;
	made.shape[1] = 10;
	made.strides[0] = 10;
	refuses_layout(&made, "tensor b is F32 [10, 20] in m@v1, F32 [20, 10] in m@v2");
	made.ndim = 1;
	made.shape[0] = 200;
	made.strides[0] = 1;
	refuses_layout(&made, "tensor b is F32 [10, 20] in m@v1, F32 [200] in m@v2");
	made = made_default("v2", 2);
	made.strides[0] = 1;
	made.strides[1] = 10;
	refuses_layout(&made, "tensor b has other strides in m@v1 than in m@v2");
	made = made_default("v2", 2);
	made.offset = 512;
	refuses_layout(&made,
		       "tensor b begins at byte 256 of segment 0 in m@v1, at byte 512 of segment 0 in m@v2");
	made.offset = 256;
	made.segments = 1;
	refuses_layout(&made,
		       "tensor c begins at byte 0 of segment 1 in m@v1, at byte 2048 of segment 0 in m@v2");
	made = made_default("v2", 2);
	made.units[1] = 3;
	refuses_layout(&made, "segment 1 holds 4096 bytes in m@v1, 12288 in m@v2");
}

Test(switching, passes_on_what_gpuwmd_refuses)
{
	struct gpuwm_switch_options options = GPUWM_OPTIONS(struct gpuwm_switch_options);
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	options.wait_ms = 1234;
	error_set(&fake->refusal, -ESHUTDOWN, NULL, "draining");
	strcpy(fake->refuse, METHOD_GET_HANDLES);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", &options), -ESHUTDOWN));
	cr_assert(eq(long, fake->wait_ms, 1234));
	*fake->refuse = 0;
	cr_assert(eq(int, gpuwm_switch(mapping, NULL, NULL), -EINVAL));
	options.size--;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", &options), -EINVAL));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, refuses_an_index_that_is_not_of_these_segments)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	v2->bytes[1] += 4096;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EBADMSG));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

/* The last segment of v2 is nothing that can be mapped. */
static int spoil(void)
{
	int ends[2], good = v2->fds[2];

	cr_assert(eq(int, pipe2(ends, O_CLOEXEC), 0));
	close(ends[1]);
	v2->fds[2] = ends[0];
	return good;
}

static void heal(int good)
{
	close(v2->fds[2]);
	v2->fds[2] = good;
}

Test(switching, puts_the_old_bytes_back_when_a_segment_can_not_be_mapped)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor tensor;
	int good = spoil(), fds = settled_fds();

	gpuwm_tensor_at(mapping, 0, &tensor);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENODEV));
	cr_assert(strstr(gpuwm_error()->message, "mapping 4096 bytes") != NULL, "%s", gpuwm_error()->message);
	is_version(mapping, v1, 1);
	cr_assert(eq(int, *(const uint8_t *)tensor.data, 1));
	cr_assert(eq(int, settled_fds(), fds));
	holds_one_lease(mapping);
	/* It is still shared by who attaches now, and can go on. */
	heal(good);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	is_version(mapping, v2, 2);
	gpuwm_detach(mapping);
}

static struct gpuwm_mapping *lost_mapping(void)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int good = spoil();

	/* Nothing is left to put the old bytes back with. */
	memory_host.close_fds(mapping->part->segments, mapping->part->segment_count);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENOTRECOVERABLE));
	cr_assert(strstr(gpuwm_error()->message, "mapping 4096 bytes") != NULL, "%s", gpuwm_error()->message);
	heal(good);
	return mapping;
}

Test(switching, says_that_the_mapping_is_lost_when_not_even_that_can_be)
{
	struct gpuwm_mapping *mapping = lost_mapping(), *fresh;
	const void *base = gpuwm_mapping_address(mapping, NULL);
	struct gpuwm_tensor tensor = {.name = "a"};
	unsigned char present;
	char byte;

	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &tensor), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_tensor_find(mapping, "a", &tensor), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_tensor_read(mapping, &tensor, 0, &byte, 0), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(str, (char *)gpuwm_error()->name, "ENOTRECOVERABLE"));
	/* The addresses stay taken, so that nothing else comes to lie there. */
	cr_assert(eq(int, mincore((void *)base, 4096, &present), 0));
	holds_one_lease(mapping);
	fresh = attach_to("m@v1");
	is_version(fresh, v1, 1);
	cr_assert(eq(int, gpuwm_detach(fresh), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(switching, brings_a_lost_mapping_back)
{
	struct gpuwm_mapping *mapping = lost_mapping();
	const void *base = gpuwm_mapping_address(mapping, NULL);
	int good = spoil();

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENOTRECOVERABLE));
	heal(good);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(gpuwm_mapping_address(mapping, NULL) == base);
	is_version(mapping, v1, 1);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, is_refused_in_a_child)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(gpuwm_switch(mapping, "m@v2", NULL) == -ECHILD ? 0 : 1);
	waitpid(child, &status, 0);
	cr_assert(eq(int, status, 0));
	is_version(mapping, v1, 1);
	gpuwm_detach(mapping);
}

Test(switching, leaves_a_child_what_it_inherited_and_no_descriptor)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor tensor;
	int status, ends[2];
	char go;
	pid_t child;

	gpuwm_tensor_at(mapping, 2, &tensor);
	cr_assert(eq(int, pipe2(ends, O_CLOEXEC), 0));
	child = fork();
	if (child == 0) {
		close(ends[1]);
		/* The fake's own are two versions' segments, and those of what was handed in. */
		if (fake_segments_held() != 5 || read(ends[0], &go, 1) != 0)
			_exit(1);
		_exit(*(const uint8_t *)tensor.data == 1 ? 0 : 2);
	}
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	close(ends[0]);
	close(ends[1]);
	waitpid(child, &status, 0);
	cr_assert(eq(int, status, 0));
	is_version(mapping, v2, 2);
	gpuwm_detach(mapping);
}

Test(switching, fails_cleanly_at_each_allocation)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int fds = settled_fds();
	bool failed = true;
	int fill = 1;

	for (unsigned n = 1; failed; n++) {
		int r;

		fail_alloc_arm(n);
		r = gpuwm_switch(mapping, fill == 1 ? "m@v2" : "m@v1", NULL);
		failed = fail_alloc_disarm();
		/* Giving the old lease back ends the connection when it can't be done otherwise. */
		cr_assert(r == 0 || (failed && r == -ENOMEM), "allocation %u: %d", n, r);
		fill = r == 0 ? 3 - fill : fill;
		is_version(mapping, fill == 1 ? v1 : v2, fill);
		leases_are(1);
		holds_one_lease(mapping);
		cr_assert(eq(int, settled_fds(), fds));
		pause_forget();
	}
	gpuwm_detach(mapping);
}

/* ---- restarts ---------------------------------------------------------- */

Test(switching, outlives_a_gpuwmd_that_dies_at_any_of_its_requests)
{
	const char *const methods[] = {METHOD_GET_HANDLES, METHOD_RELEASE};
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int fill = 1;

	for (int i = 0; i < 4; i++) {
		fake->answers_first = i >= 2;
		pause_forget();
		dies_at(methods[i % 2], 1);
		fill = 3 - fill;
		cr_assert(eq(int, gpuwm_switch(mapping, fill == 2 ? "m@v2" : "m@v1", NULL), 0), "%s",
			  gpuwm_error()->message);
		cr_assert(eq(uint, fake->deaths, 0));
		leases_are(1);
		holds_one_lease(mapping);
		is_version(mapping, fill == 2 ? v2 : v1, fill);
		cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	}
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(switching, waits_for_a_gpuwmd_that_is_away_and_gives_up_in_time)
{
	struct gpuwm_mapping *mapping;

	with_restart_ms(50);
	mapping = attach_to("m@v1");
	fake_kill(fake);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ECONNREFUSED));
	is_version(mapping, v1, 1);
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v2, 2);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, goes_away_from_a_lost_lease)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	error_set(&fake->loss, -ESTALE, NULL, "m@v1 was lost");
	fake->lose = 1;
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ESTALE);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	is_version(mapping, v2, 2);
	holds_one_lease(mapping);
	cr_assert(eq(uint, fake->releases, 0));
	gpuwm_detach(mapping);
}

static void *restart_often(void *data)
{
	_Atomic bool *stop = data;

	while (!*stop) {
		fake_restart();
		poll(NULL, 0, 3);
	}
	return NULL;
}

Test(switching, goes_on_while_gpuwmd_comes_and_goes)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	_Atomic bool stop = false;
	pthread_t thread;
	int fds = settled_fds();

	pthread_create(&thread, NULL, restart_often, (void *)&stop);
	for (int i = 0; i < 60; i++) {
		pause_forget();
		cr_assert(eq(int, gpuwm_switch(mapping, i % 2 ? "m@v1" : "m@v2", NULL), 0), "%s",
			  gpuwm_error()->message);
		cr_assert(eq(int, filled_with(mapping), i % 2 ? 1 : 2));
	}
	stop = true;
	pthread_join(thread, NULL);
	leases_are(1);
	holds_one_lease(mapping);
	UNTIL(settled_fds() == fds);
	gpuwm_detach(mapping);
}

/* ---- threads ----------------------------------------------------------- */

static void *switch_often(void *unused)
{
	struct gpuwm_mapping *mapping = NULL;
	int r = gpuwm_attach(client, "m@v1", NULL, &mapping);

	/* Whoever shares the mapping by chance is refused, and finds it as it was. */
	for (int i = 0; i < 50 && r == 0; i++) {
		const char *other = strcmp(gpuwm_mapping_version(mapping)->tag, "v1") == 0 ? "m@v2" : "m@v1";

		r = gpuwm_switch(mapping, other, NULL);
		r = r == -EBUSY ? 0 : r;
		if (filled_with(mapping) != gpuwm_mapping_version(mapping)->tag[1] - '0')
			r = -EBADMSG;
	}
	(void)unused;
	return (void *)(intptr_t)(r < 0 ? r : gpuwm_detach(mapping));
}

Test(switching, is_done_by_several_threads_with_their_own_mappings)
{
	pthread_t threads_[4];
	void *r;

	for (int i = 0; i < 4; i++)
		pthread_create(&threads_[i], NULL, switch_often, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads_[i], &r);
		cr_assert(eq(int, (int)(intptr_t)r, 0));
	}
	cr_assert(eq(uint, fake->leases, 0));
}

/* ---- what attaching wishes --------------------------------------------- */

/* In a process of its own. */
static int attach_at(void *address)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_connect_options to = to_fake();
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *mine;
	uint64_t bytes;

	options.address = address;
	if (gpuwm_connect(&to, &mine) < 0 || gpuwm_attach(mine, "m@v1", &options, &mapping) < 0)
		return 1;
	if (gpuwm_mapping_address(mapping, &bytes) != address || bytes < 3 * 4096)
		return 2;
	return filled_with(mapping) == 1 && gpuwm_detach(mapping) == 0 ? 0 : 3;
}

Test(switching, two_processes_that_wish_for_it_have_the_same_addresses)
{
	void *const address = (void *)0x300000000000;

	for (int i = 0; i < 2; i++) {
		pid_t child = fork();
		int status;

		if (child == 0)
			_exit(attach_at(address));
		waitpid(child, &status, 0);
		cr_assert(eq(int, status, 0));
	}
}

Test(switching, a_wish_that_can_not_be_had_is_no_error)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *first, *second;

	options.address = (void *)0x300000000000;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &first), 0));
	cr_assert(eq(int, gpuwm_attach(client, "m@v2", &options, &second), 0));
	cr_assert(gpuwm_mapping_address(first, NULL) == options.address);
	cr_assert(gpuwm_mapping_address(second, NULL) != options.address);
	is_version(second, v2, 2);
	gpuwm_detach(second);
	gpuwm_detach(first);
}

/* Whether a read there would not fault. */
static bool is_present(const void *address)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	cr_assert(eq(sz, (size_t)pread(fd, &entry, 8, (off_t)((uintptr_t)address / 4096 * 8)), 8));
	close(fd);
	return entry >> 63;
}

Test(switching, a_mapping_can_be_populated_at_once)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	for (int populate = 0; populate < 2; populate++) {
		options.populate = populate;
		cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0), "%s",
			  gpuwm_error()->message);
		for (uint64_t i = 0; i < 3; i++) {
			gpuwm_tensor_at(mapping, i, &tensor);
			cr_assert(is_present(tensor.data) == populate);
		}
		gpuwm_detach(mapping);
	}
}
