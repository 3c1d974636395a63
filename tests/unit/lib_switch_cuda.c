/* A mapping that becomes another version's, on a GPU: on tests/fakecuda, or a real one. */
#include <criterion/criterion.h>
#include <errno.h>

#ifdef GPUWM_CUDA

#include "tests/support/lib/switch_cuda.h"

TestSuite(switch_cuda, .init = need_driver, .fini = forget_calls, .timeout = 120);

Test(switch_cuda, puts_the_new_bytes_where_the_old_ones_were)
{
	struct gpuwm_tensor before, after;
	struct gpuwm_mapping *mapping;
	uint64_t bytes;

	switch_cuda_start();
	mapping = attach_to("m@v1");
	gpuwm_tensor_at(mapping, 2, &before);
	cr_assert(gpuwm_mapping_address(mapping, &bytes) < before.data);
	cr_assert(eq(u64, bytes, gpuwm_mapping_version(mapping)->bytes));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	/* Neither attaching nor switching makes a context. */
	cr_assert(context_active() == false);
	gpuwm_tensor_at(mapping, 2, &after);
	cr_assert(after.data == before.data);
	cr_assert(eq(int, filled_with(mapping), 2));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, filled_with(mapping), 1));
	cr_assert(eq(uint, fake->leases, 1));
	switch_cuda_stop(mapping);
	cr_assert(context_active() == false);
}

Test(switch_cuda, keeps_what_lies_there_read_only)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	char byte = 9;

	switch_cuda_start();
	mapping = attach_to("m@v1");
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	gpuwm_tensor_at(mapping, 0, &tensor);
	cr_assert(eq(int, memory_cuda.enter(&device, NULL), 0));
	cr_assert(eq(int, memory_cuda.write(&device, (void *)tensor.data, &byte, 1, NULL), -EIO));
	memory_cuda.leave(&device);
	cr_assert(eq(int, filled_with(mapping), 2));
	switch_cuda_stop(mapping);
}

#define MAPS_BOTH                                                                                              \
	"cuMemImportFromShareableHandle cuMemImportFromShareableHandle cuMemUnmap cuMemMap cuMemMap "          \
	"cuMemSetAccess cuMemRelease cuMemRelease release"

Test(switch_cuda, waits_for_the_device_then_unmaps_and_maps_with_one_access_call_then_releases)
{
	struct gpuwm_switch_options options = GPUWM_OPTIONS(struct gpuwm_switch_options);
	struct gpuwm_mapping *mapping;
	long from;

	need_fakecuda();
	switch_cuda_start();
	mapping = attach_to("m@v1");
	cr_assert(eq(int, filled_with(mapping), 1)); /* there is a context from now on */
	from = log_end();
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	cr_assert(eq(str, (char *)log_since(from), "cuCtxSynchronize " MAPS_BOTH));
	/* Who has waited says so. */
	options.idle = true;
	from = log_end();
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", &options), 0));
	cr_assert(eq(str, (char *)log_since(from), MAPS_BOTH));
	switch_cuda_stop(mapping);
}

Test(switch_cuda, detaching_waits_for_the_device_then_unmaps_then_releases)
{
	struct gpuwm_mapping *mapping;
	long from;

	need_fakecuda();
	switch_cuda_start();
	mapping = attach_to("m@v1");
	cr_assert(eq(int, filled_with(mapping), 1));
	from = log_end();
	switch_cuda_stop(mapping);
	cr_assert(eq(str, (char *)log_since(from),
		     "cuCtxSynchronize cuMemUnmap cuMemAddressFree cuMemRelease cuMemRelease release"));
}

Test(switch_cuda, is_refused_while_a_stream_is_captured)
{
	struct gpuwm_mapping *mapping;

	need_fakecuda();
	setenv("FAKECUDA_FAIL", "cuCtxSynchronize:1:900", 1);
	switch_cuda_start();
	mapping = attach_to("m@v1");
	cr_assert(eq(int, filled_with(mapping), 1));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EBUSY));
	cr_assert(strstr(gpuwm_error()->message, "captured") != NULL, "%s", gpuwm_error()->message);
	cr_assert(eq(int, filled_with(mapping), 1));
	cr_assert(eq(uint, fake->leases, 1));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	cr_assert(eq(int, filled_with(mapping), 2));
	switch_cuda_stop(mapping);
}

/* The access is refused to the new version, and to the old one afterwards. */
static struct gpuwm_mapping *lost_mapping(void)
{
	struct gpuwm_mapping *mapping;

	/* One for each segment that is made, and one for the attach. */
	setenv("FAKECUDA_FAIL", "cuMemSetAccess:6:999,cuMemSetAccess:7:999", 1);
	switch_cuda_start();
	mapping = attach_to("m@v1");
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENOTRECOVERABLE));
	cr_assert(strstr(gpuwm_error()->message, "cuMemSetAccess") != NULL, "%s", gpuwm_error()->message);
	return mapping;
}

Test(switch_cuda, says_that_the_mapping_is_lost_when_the_old_one_can_not_be_put_back)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	need_fakecuda();
	mapping = lost_mapping();
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &tensor), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(uint, fake->leases, 1));
	switch_cuda_stop(mapping);
}

Test(switch_cuda, brings_a_lost_mapping_back)
{
	struct gpuwm_mapping *mapping;
	const void *base;

	need_fakecuda();
	mapping = lost_mapping();
	base = gpuwm_mapping_address(mapping, NULL);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(gpuwm_mapping_address(mapping, NULL) == base);
	cr_assert(eq(int, filled_with(mapping), 1));
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	switch_cuda_stop(mapping);
}

Test(switch_cuda, what_was_queued_before_reads_the_old_bytes)
{
	struct gpuwm_mapping *mapping;
	char *before, *after;

	switch_cuda_start();
	cr_assert(eq(int, memory_cuda.enter(&device, NULL), 0));
	/* Pinned: a copy to other memory is over when the call is. */
	cr_assert(eq(int, ((__typeof__(cuMemHostAlloc) *)symbol("cuMemHostAlloc"))((void **)&before, 4096, 0),
		     CUDA_SUCCESS));
	after = before + 2048;
	mapping = attach_to("m@v1");
	queue_read(mapping, before);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, before[0], 1));
	cr_assert(eq(int, before[49], 1));
	/* And detaching waits for what reads the new ones. */
	queue_read(mapping, after);
	switch_cuda_stop(mapping);
	cr_assert(eq(int, after[49], 2));
	memory_cuda.leave(&device);
}

/* ---- peers ------------------------------------------------------------- */

/* As a kernel of that device would. */
static int byte_read_by(const struct memory_device *reader, const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;
	unsigned char byte;
	int r;

	gpuwm_tensor_at(mapping, 2, &tensor);
	cr_assert(eq(int, memory_cuda.enter(reader, NULL), 0));
	r = memory_cuda.read(reader, &byte, tensor.data, 1, NULL);
	memory_cuda.leave(reader);
	return r < 0 ? r : byte;
}

static void open_peer(struct memory_device *ret, char ret_id[CUDA_ID_BYTES])
{
	const struct cuda_driver *cuda;

	cr_assert(eq(int, cuda_open(&cuda, NULL), 0));
	if (cuda->device_count < 2)
		cr_skip("there is one GPU only");
	cr_assert(eq(int, cuda_id(1, ret_id, NULL), 0));
	cr_assert(eq(int, memory_device_open(ret_id, ret, NULL), 0));
}

Test(switch_cuda, peers_read_what_they_were_named_for)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping, *alone;
	struct memory_device peer;
	char id[CUDA_ID_BYTES];
	const char *const peers[] = {id, id, device.id};

	switch_cuda_start();
	open_peer(&peer, id);
	options.peers = peers;
	options.peer_count = 3;
	alone = attach_to("m@v1");
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0), "%s", gpuwm_error()->message);
	/* Another mapping than that of whoever named none. */
	cr_assert(gpuwm_mapping_address(alone, NULL) != gpuwm_mapping_address(mapping, NULL));
	cr_assert(lt(int, byte_read_by(&peer, alone), 0));
	cr_assert(eq(int, byte_read_by(&peer, mapping), 1));
	cr_assert(eq(int, byte_read_by(&device, mapping), 1));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, byte_read_by(&peer, mapping), 2));
	cr_assert(eq(int, gpuwm_detach(alone), 0));
	switch_cuda_stop(mapping);
}

Test(switch_cuda, detaching_waits_for_peers_too)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct memory_device peer;
	char id[CUDA_ID_BYTES], *bytes;
	const char *const peers[] = {id};

	switch_cuda_start();
	open_peer(&peer, id);
	options.peers = peers;
	options.peer_count = 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, memory_cuda.hold(&peer, NULL), 0));
	cr_assert(eq(int, memory_cuda.enter(&peer, NULL), 0));
	cr_assert(eq(int, ((__typeof__(cuMemHostAlloc) *)symbol("cuMemHostAlloc"))((void **)&bytes, 4096, 0),
		     CUDA_SUCCESS));
	queue_read(mapping, bytes);
	memory_cuda.leave(&peer);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, bytes[49], 1));
	switch_cuda_stop(mapping);
	memory_cuda.unhold(&peer);
}

Test(switch_cuda, peers_that_can_not_be_are_refused)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct memory_device peer;
	char id[CUDA_ID_BYTES];
	const char *peers[16] = {id};

	need_fakecuda();
	setenv("FAKECUDA_PEERS", "0", 1);
	switch_cuda_start();
	open_peer(&peer, id);
	options.peers = peers;
	options.peer_count = 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -ENOTSUP));
	cr_assert(strstr(gpuwm_error()->message, "can't read the memory") != NULL);
	peers[0] = "host";
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -EINVAL));
	peers[0] = "GPU-00000000-0000-0000-0000-000000000000";
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -ENODEV));
	peers[0] = NULL;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -EINVAL));
	options.peer_count = 16;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -EINVAL));
	cr_assert(eq(uint, fake->leases, 0));
	gpuwm_close(client);
	fake_stop(fake);
}

/* ---- faults ------------------------------------------------------------ */

enum outcome { SWITCHED = 10, REFUSED = 11, NO_SWITCH = 12 };

/* In a process of its own, whose n-th call of the driver fails, one of a switch's: the new bytes
 * or the old ones, whole, one lease, and nothing open that was not. */
static int with_failing_call(int n)
{
	struct gpuwm_mapping *mapping;
	int fds, r, fill;

	call_fails(n);
	switch_cuda_start();
	if (gpuwm_attach(client, "m@v1", NULL, &mapping) < 0)
		return NO_SWITCH;
	if (filled_with(mapping) != 1)
		return NO_SWITCH;
	if (gpuwm_ping(client, NULL) < 0)
		return 1;
	fds = fd_count();
	r = gpuwm_switch(mapping, "m@v2", NULL);
	if (r < 0 && (!*gpuwm_error()->message || r == -ENOTRECOVERABLE))
		return 2;
	gpuwm_ping(client, NULL);
	/* What the driver does not let go of stays, one descriptor of the stand-in. */
	if (fd_count() - fds != (log_has("cuMemRelease 999") ? 1 : 0) || fake->leases != 1)
		return 4;
	fill = filled_with(mapping);
	if (fill != (r < 0 ? 1 : 2))
		return 5;
	gpuwm_detach(mapping);
	return fake->leases != 0 ? 6 : r < 0 ? REFUSED : SWITCHED;
}

static struct gpuwm_mapping *switched;

static void before_switch(void)
{
	switch_cuda_start();
	switched = attach_to("m@v1");
	filled_with(switched);
}

static void switch_it(void)
{
	gpuwm_switch(switched, "m@v2", NULL);
}

Test(switch_cuda, leaves_the_old_or_the_new_version_whole_whichever_call_fails)
{
	int refused = 0, during, before;

	need_fakecuda();
	before = calls_of(before_switch, switch_it, &during);
	cr_assert(lt(int, 10, during));
	for (int n = before + 1; n <= before + during; n++) {
		int status = status_with(n, with_failing_call);

		cr_assert(status == SWITCHED << 8 || status == REFUSED << 8, "call %d: %#x", n - before,
			  status);
		refused += status == REFUSED << 8;
	}
	/* Importing, waiting, unmapping, mapping and making accessible. */
	cr_assert(ge(int, refused, 6));
}

#else

Test(switch_cuda, needs_the_header)
{
	cr_skip("built without cuda.h");
}

#endif
