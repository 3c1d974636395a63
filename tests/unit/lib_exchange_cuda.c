/* Two mappings that exchange their versions, on a GPU: on tests/fakecuda, or a real one. */
#include <criterion/criterion.h>
#include <errno.h>

#ifdef GPUWM_CUDA

#include "tests/support/lib/switch_cuda.h"

TestSuite(exchange_cuda, .init = need_driver, .fini = forget_calls, .timeout = 120);

static struct gpuwm_mapping *mapping, *other;

static void start_both(void)
{
	switch_cuda_start();
	mapping = attach_to("m@v1");
	other = attach_to("m@v2");
}

static void stop_both(void)
{
	cr_assert(eq(int, gpuwm_detach(other), 0), "%s", gpuwm_error()->message);
	switch_cuda_stop(mapping);
}

static int exchange(void)
{
	return gpuwm_exchange(mapping, other, NULL);
}

static void are_filled_with(int first, int second)
{
	cr_assert(eq(int, filled_with(mapping), first));
	cr_assert(eq(int, filled_with(other), second));
}

Test(exchange_cuda, puts_each_version_where_the_other_was_and_back)
{
	struct gpuwm_tensor here, there, after;

	start_both();
	gpuwm_tensor_at(mapping, 2, &here);
	gpuwm_tensor_at(other, 2, &there);
	cr_assert(eq(int, exchange(), 0), "%s", gpuwm_error()->message);
	/* Neither attaching nor exchanging makes a context. */
	cr_assert(context_active() == false);
	gpuwm_tensor_at(mapping, 2, &after);
	cr_assert(after.data == here.data);
	gpuwm_tensor_at(other, 2, &after);
	cr_assert(after.data == there.data);
	are_filled_with(2, 1);
	cr_assert(eq(int, exchange(), 0), "%s", gpuwm_error()->message);
	are_filled_with(1, 2);
	stop_both();
	cr_assert(context_active() == false);
}

Test(exchange_cuda, keeps_both_read_only)
{
	const struct gpuwm_mapping *both[2];
	struct gpuwm_tensor tensor;
	char byte = 9;

	start_both();
	cr_assert(eq(int, exchange(), 0));
	both[0] = mapping;
	both[1] = other;
	for (int i = 0; i < 2; i++) {
		gpuwm_tensor_at(both[i], 0, &tensor);
		cr_assert(eq(int, memory_cuda.enter(&device, NULL), 0));
		cr_assert(eq(int, memory_cuda.write(&device, (void *)tensor.data, &byte, 1, NULL), -EIO));
		memory_cuda.leave(&device);
	}
	are_filled_with(2, 1);
	stop_both();
}

#define MAPS_FOUR "cuMemUnmap cuMemUnmap cuMemMap cuMemMap cuMemSetAccess cuMemMap cuMemMap cuMemSetAccess"

Test(exchange_cuda, waits_for_the_device_then_unmaps_both_and_maps_both_with_one_access_call_each)
{
	struct gpuwm_exchange_options options = GPUWM_OPTIONS(struct gpuwm_exchange_options);
	long from;

	need_fakecuda();
	start_both();
	are_filled_with(1, 2); /* there is a context from now on */
	from = log_end();
	cr_assert(eq(int, exchange(), 0));
	cr_assert(eq(str, (char *)log_since(from), "cuCtxSynchronize " MAPS_FOUR));
	/* Who has waited says so. */
	options.idle = true;
	from = log_end();
	cr_assert(eq(int, gpuwm_exchange(mapping, other, &options), 0));
	cr_assert(eq(str, (char *)log_since(from), MAPS_FOUR));
	options.idle = false;
	options.check = true;
	from = log_end();
	cr_assert(eq(int, gpuwm_exchange(mapping, other, &options), 0));
	cr_assert(eq(str, (char *)log_since(from), ""));
	are_filled_with(1, 2);
	stop_both();
}

Test(exchange_cuda, is_refused_while_a_stream_is_captured)
{
	struct gpuwm_exchange_options check = {.size = sizeof(check), .check = true};

	need_fakecuda();
	setenv("FAKECUDA_FAIL", "cuCtxSynchronize:1:900", 1);
	start_both();
	are_filled_with(1, 2);
	cr_assert(eq(int, exchange(), -EBUSY));
	cr_assert(strstr(gpuwm_error()->message, "captured") != NULL, "%s", gpuwm_error()->message);
	are_filled_with(1, 2);
	gpuwm_capture_begin();
	cr_assert(eq(int, exchange(), -EBUSY));
	cr_assert(eq(int, gpuwm_exchange(mapping, other, &check), 0));
	gpuwm_capture_end();
	are_filled_with(1, 2);
	cr_assert(eq(int, exchange(), 0), "%s", gpuwm_error()->message);
	are_filled_with(2, 1);
	stop_both();
}

Test(exchange_cuda, what_was_queued_before_reads_the_bytes_from_before)
{
	char *bytes;

	start_both();
	cr_assert(eq(int, memory_cuda.enter(&device, NULL), 0));
	/* Pinned: a copy to other memory is over when the call is. */
	cr_assert(eq(int, ((__typeof__(cuMemHostAlloc) *)symbol("cuMemHostAlloc"))((void **)&bytes, 4096, 0),
		     CUDA_SUCCESS));
	queue_read(mapping, bytes);
	queue_read(other, bytes + 1024);
	cr_assert(eq(int, exchange(), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, bytes[49], 1));
	cr_assert(eq(int, bytes[1024 + 49], 2));
	/* And detaching waits for what reads the new ones. */
	queue_read(mapping, bytes + 2048);
	queue_read(other, bytes + 3072);
	stop_both();
	cr_assert(eq(int, bytes[2048 + 49], 2));
	cr_assert(eq(int, bytes[3072 + 49], 1));
	memory_cuda.leave(&device);
}

/* ---- faults ------------------------------------------------------------ */

enum outcome { EXCHANGED = 10, REFUSED = 11, NO_EXCHANGE = 12 };

/* In a process of its own, whose n-th call of the driver fails, one of an exchange's: both have the bytes of before or
 * both of afterwards, with a lease each, and nothing is open that was not. */
static int with_failing_call(int n)
{
	int fds, r;

	call_fails(n);
	switch_cuda_start();
	if (gpuwm_attach(client, "m@v1", NULL, &mapping) < 0 ||
	    gpuwm_attach(client, "m@v2", NULL, &other) < 0 || filled_with(mapping) != 1 ||
	    filled_with(other) != 2)
		return NO_EXCHANGE;
	fds = fd_count();
	r = exchange();
	if (r < 0 && (!*gpuwm_error()->message || r == -ENOTRECOVERABLE))
		return 1;
	if (fd_count() != fds || fake->leases != 2)
		return 2;
	if (filled_with(mapping) != (r < 0 ? 1 : 2) || filled_with(other) != (r < 0 ? 2 : 1))
		return 3;
	if (gpuwm_mapping_check(mapping) < 0 || gpuwm_mapping_check(other) < 0)
		return 4;
	gpuwm_detach(other);
	gpuwm_detach(mapping);
	return fake->leases != 0 ? 5 : r < 0 ? REFUSED : EXCHANGED;
}

static void before_exchange(void)
{
	start_both();
	filled_with(mapping);
	filled_with(other);
}

static void exchange_it(void)
{
	exchange();
}

Test(exchange_cuda, leaves_both_as_they_were_whichever_call_fails)
{
	int refused = 0, during, before;

	need_fakecuda();
	before = calls_of(before_exchange, exchange_it, &during);
	for (int n = before + 1; n <= before + during; n++) {
		int status = status_with(n, with_failing_call);

		cr_assert(status == EXCHANGED << 8 || status == REFUSED << 8, "call %d: %#x", n - before,
			  status);
		refused += status == REFUSED << 8;
	}
	/* Waiting, and each call of MAPS_FOUR. */
	cr_assert(ge(int, refused, 9));
}

/* The access is refused to what comes to the second place, and to what goes back to these. */
static void lose(const char *fail, const char *words)
{
	need_fakecuda();
	setenv("FAKECUDA_FAIL", fail, 1);
	start_both();
	cr_assert(eq(int, exchange(), -ENOTRECOVERABLE));
	cr_assert(strstr(gpuwm_error()->message, words) == gpuwm_error()->message, "%s",
		  gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->message, "cuMemSetAccess") != NULL, "%s", gpuwm_error()->message);
}

/* One for each segment that is made, one for each attach, one for the first place. */
#define SECOND_REFUSED "cuMemSetAccess:8:999"
#define FIRST_LOST ",cuMemSetAccess:9:999"
#define SECOND_LOST ",cuMemSetAccess:10:999"

Test(exchange_cuda, says_that_the_first_is_lost_when_it_can_not_be_put_back)
{
	lose(SECOND_REFUSED FIRST_LOST, "m@v1 could not be put back after this");
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(int, filled_with(other), 2));
	stop_both();
}

Test(exchange_cuda, says_that_the_second_is_lost_when_it_can_not_be_put_back)
{
	lose(SECOND_REFUSED SECOND_LOST, "m@v2 could not be put back after this");
	cr_assert(eq(int, gpuwm_mapping_check(other), -ENOTRECOVERABLE));
	cr_assert(eq(int, filled_with(mapping), 1));
	stop_both();
}

/* One for each segment that is made, one for each place that is left; what came to the first place stays there. */
Test(exchange_cuda, says_that_both_are_lost_when_what_came_can_not_be_unmapped)
{
	lose(SECOND_REFUSED ",cuMemUnmap:8:999", "neither m@v1 nor m@v2 could be put back after this");
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_mapping_check(other), -ENOTRECOVERABLE));
	stop_both();
}

Test(exchange_cuda, brings_back_what_was_lost)
{
	lose(SECOND_REFUSED FIRST_LOST SECOND_LOST, "neither m@v1 nor m@v2 could be put back after this");
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_mapping_check(other), -ENOTRECOVERABLE));
	cr_assert(eq(int, exchange(), 0), "%s", gpuwm_error()->message);
	are_filled_with(2, 1);
	stop_both();
}

#else

Test(exchange_cuda, needs_the_header)
{
	cr_skip("built without cuda.h");
}

#endif
