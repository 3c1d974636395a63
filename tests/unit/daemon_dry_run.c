/* Dry runs: the plan that a loader makes, and whether gpuwmd says that it fits. */
#include "daemon/methods/methods.h"
#include "daemon/work/loaders/loader_internal.h"
#include "daemon/work/tiers/room.h"
#include "tests/support/daemon/service.h"

TestSuite(dry_run, .init = open_service, .fini = close_service, .timeout = 120);

/* A loader that stands by, and who asks for loads of /models. */
static void open_dry(int *ret_loader, int *ret_admin)
{
	config.roots[config.root_count++] = strdup("/models");
	listen_for(SOCK_SEQPACKET, 4);
	loader_pool_start(server->work.loaders, NULL, NULL);
	*ret_loader = standby_with(-1);
	*ret_admin = greeted(SESSION_ADMIN);
}

static struct job *ask_for_plan(int admin)
{
	cr_assert_eq(
		ASK(admin, "load", TEXT("source", "/models/m"), TEXT("name", "m@v1"), FLAG("dry_run", true)), 0,
		"%s", message.error.message);
	return job_find(&server->work.jobs, answer_u64("job"));
}

/* The loader reports a plan: so many bytes for this device, in these parts. count 0: it names no parts. */
static int done_with_parts(int sock, const char *device, uint64_t bytes, const uint64_t *parts, size_t count)
{
	struct message_writer w;

	begin_request(&w, 2, "loader_done");
	message_begin_map(&w, "plan");
	message_put_u64(&w, "tensors", 7);
	message_put_u64(&w, "files", 2);
	message_put_u64(&w, "bytes", bytes);
	message_put_u64(&w, "cached", 100);
	message_begin_array(&w, "devices");
	message_begin_map(&w, NULL);
	message_put_text(&w, "device", device);
	message_put_u64(&w, "bytes", bytes);
	message_put_u64(&w, "segments", 1);
	message_end(&w);
	message_end(&w);
	if (count > 0) {
		message_begin_array(&w, "parts");
		for (size_t i = 0; i < count; i++)
			message_put_u64(&w, NULL, parts[i]);
		message_end(&w);
	}
	message_end(&w);
	send_request(sock, &w);
	return answered(sock);
}

static int done_with(int sock, const char *device, uint64_t bytes)
{
	return done_with_parts(sock, device, bytes, NULL, 0);
}

/* Whether the plan of the one job fits its one device. */
static bool told_to_fit(int admin, uint64_t bytes)
{
	struct fields job = job_told(admin), plan, device;
	uint32_t count;
	bool fits;

	fields_of(&plan, fields_map(&job, "plan"));
	cr_expect_eq(fields_u64(&plan, "tensors"), 7);
	cr_expect_eq(fields_u64(&plan, "files"), 2);
	cr_expect_eq(fields_u64(&plan, "bytes"), bytes);
	cr_expect_eq(fields_u64(&plan, "cached"), 100);
	fields_of(&device, fields_array(&plan, "devices", &count));
	cr_assert_eq(count, 1);
	cr_expect_eq(fields_u64(&device, "bytes"), bytes);
	cr_expect_eq(fields_u64(&device, "segments"), 1);
	cr_expect_eq(fields_u64(&device, "context"),
		     device_find(&server->ledger.devices, DEVICE_HOST)->context);
	cr_expect_eq(fields_u64(&device, "budget_left"),
		     budget_left(device_find(&server->ledger.devices, DEVICE_HOST)));
	fits = fields_bool_or(&device, "fits", false);
	cr_assert_eq(job.error.code | plan.error.code | device.error.code, 0);
	return fits;
}

Test(dry_run, tells_its_plan_and_whether_it_fits)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct budget_charge charge = {0};
	struct error error;
	int sock, admin;
	struct job *job;

	open_dry(&sock, &admin);
	job = ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_str_eq(message.method, "job");
	cr_expect(answer_has("dry_run"));
	cr_assert_eq(done_with(sock, DEVICE_HOST, MIB(500)), 0, "%s", message.error.message);
	cr_expect_eq(job->state, JOB_DONE);
	host->free = MIB(500);
	cr_expect(told_to_fit(admin, MIB(500)));
	/* What is used by then counts: here of a context that no loader has. */
	host->context = MIB(400);
	cr_assert_eq(budget_charge_context(host, &charge, &error), 0);
	host->context = 0;
	cr_expect_not(told_to_fit(admin, MIB(500)));
	budget_release(&charge);
	cr_expect(told_to_fit(admin, MIB(500)));
	host->context = MIB(319);
	cr_expect(told_to_fit(admin, MIB(500)));
	host->context = MIB(320);
	cr_expect_not(told_to_fit(admin, MIB(500)), "beside its context");
	close(admin);
	close(sock);
	leave();
}

/* A flag of the one device of the one job's plan. */
static bool told_flag(int admin, const char *flag)
{
	struct fields job = job_told(admin), plan, device;
	uint32_t count;

	fields_of(&plan, fields_map(&job, "plan"));
	fields_of(&device, fields_array(&plan, "devices", &count));
	cr_assert_eq(count, 1);
	return fields_bool_or(&device, flag, false);
}

/* The load is granted what the budget has. */
static bool told_to_be_short(int admin)
{
	cr_expect(told_flag(admin, "fits"));
	return told_flag(admin, "short_of_free");
}

Test(dry_run, tells_what_is_granted_and_not_free)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	int sock, admin;

	open_dry(&sock, &admin);
	ask_for_plan(admin);
	cr_assert(comes(sock));
	host->free = MIB(499);
	cr_assert_eq(done_with(sock, DEVICE_HOST, MIB(500)), 0, "%s", message.error.message);
	cr_expect(told_to_be_short(admin));
	host->free = MIB(500);
	cr_expect_not(told_to_be_short(admin));
	host->context = MIB(300);
	host->free = MIB(799);
	cr_expect(told_to_be_short(admin));
	host->free = MIB(800);
	cr_expect_not(told_to_be_short(admin));
	close(admin);
	close(sock);
	leave();
}

/* The same device, asked by a dry run and by a load. */
Test(dry_run, says_that_a_load_fits_which_waits_for_what_is_being_freed)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct version *old;
	struct error error;
	int sock, admin;

	ready("m", "first");
	old = ready("m", "old");
	open_dry(&sock, &admin);
	ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_assert_eq(done_with(sock, DEVICE_HOST, 4096), 0, "%s", message.error.message);
	host->budget = 8192;
	cr_expect_not(told_flag(admin, "fits"));
	cr_expect_eq(room_check_load(&server->work, host, 4096, &error), -ENOSPC);
	cr_assert_eq(versions_retire(&server->work, old, &error), 0);
	cr_expect_eq(room_check_load(&server->work, host, 4096, &error), 0, "it is being freed");
	cr_expect_eq(room_check_load(&server->work, host, 8192, &error), -ENOSPC);
	cr_expect(strstr(error.detail, "4.0 KiB that is being freed"), "%s", error.detail);
	cr_expect(told_flag(admin, "fits"));
	TURN_UNTIL(host->used == 4096);
	cr_expect(told_flag(admin, "fits"));
	close(admin);
	close(sock);
}

Test(dry_run, makes_no_version)
{
	int sock, admin;

	open_dry(&sock, &admin);
	ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_eq(ASK(sock, "publish_begin", TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST),
			 NUMBER("bytes", 4096)),
		     -EINVAL);
	cr_expect_str_eq(message.error.message, "a dry run makes no version");
	cr_expect_eq(registry_counts(server->ledger.registry).versions, 0);
	close(admin);
	close(sock);
	leave();
}

Test(dry_run, needs_parts_that_are_what_the_device_gets)
{
	static const uint64_t parts[] = {4096, 8192}, many[] = {UINT64_MAX, 12289};
	struct job *job;
	int sock, admin;

	open_dry(&sock, &admin);
	job = ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_eq(done_with_parts(sock, DEVICE_HOST, 4096, parts, 2), -EINVAL);
	cr_expect_str_eq(message.error.message, "the parts of the plan are not what its one device gets");
	cr_expect_eq(done_with_parts(sock, DEVICE_HOST, 12288 + 1, parts, 2), -EINVAL);
	cr_expect_eq(done_with_parts(sock, DEVICE_HOST, 12288, many, 2), -EINVAL);
	cr_expect_eq(done_with_parts(sock, DEVICE_HOST, 12288, parts, 2), 0, "%s", message.error.message);
	cr_expect_eq(job->state, JOB_DONE);
	cr_expect(told_to_fit(admin, 12288));
	close(admin);
	close(sock);
	leave();
}

Test(dry_run, needs_a_plan_of_its_devices)
{
	struct job *job;
	int sock, admin;

	open_dry(&sock, &admin);
	job = ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_eq(done_with(sock, "GPU-1", 1), -EINVAL);
	cr_expect_str_eq(message.error.message, "the plan has the device GPU-1 in the place of host");
	send_plain(sock, 3, "loader_done");
	cr_assert_eq(answered(sock), 0);
	cr_assert_eq(job->state, JOB_FAILED);
	cr_expect_str_eq(job->error->message, "gpuwm-loader ended the dry run without a plan");
	close(admin);
	close(sock);
	leave();
}

/* Nobody knows a device before a loader has told them, so an error that lists devices would not help. */
Test(dry_run, without_a_loader_the_error_says_why_there_is_none)
{
	const size_t count = server->ledger.devices.count;
	struct device *device;
	struct error why;

	server->ledger.devices.count = 0;
	cr_assert_eq(params_device(server, "GPU-1", &device, &why), -ENODEV);
	cr_expect_str_eq(why.message, "no device \"GPU-1\" here");
	server->work.loaders->failures = 1;
	error_set(&server->work.loaders->failure, -ENOENT, "install it", "there is no gpuwm-loader");
	cr_assert_eq(params_device(server, "GPU-1", &device, &why), -ENODEV);
	cr_expect_str_eq(why.message, "no loader has told the devices yet: there is no gpuwm-loader");
	cr_expect_str_eq(why.detail, "install it");
	server->ledger.devices.count = count;
}
