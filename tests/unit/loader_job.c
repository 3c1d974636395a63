/* What becomes of the message of a job before the job runs. */
#include "loader/job.h"

#include "proto/wire/messages.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static uint8_t data[PACKET_BYTES_MAX];
static struct message_writer w;
static struct message message;
static struct packet packet = {.data = data};
static struct job *job;
static struct error error;
static int fds_before;

static void start(void)
{
	fds_before = fd_count();
}

static void finish(void)
{
	job_free(job);
	message_clear(&message);
	message_writer_clear(&w);
}

TestSuite(job, .init = start, .fini = finish);

static void begin(const char *kind)
{
	message_writer_init(&w, sizeof(data));
	message_notification(&w, NOTIFY_JOB);
	record_put(&w, &job_head_record, &(struct job_head){1, kind});
}

/* Reads what was written, as a message with so many descriptors. */
static void end(size_t fd_count)
{
	const char *why = "";

	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read((const uint8_t *)w.buffer.data, w.buffer.size, &message, &why), 0, "%s", why);
	for (packet.fd_count = 0; packet.fd_count < fd_count; packet.fd_count++)
		packet.fds[packet.fd_count] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void write_hold(uint64_t rank, uint64_t world, size_t fd_count)
{
	const struct part part = {.index = {0, 64}, .segment_count = 1, .segments = {{0, 4096}}};
	int unused[PACKET_FDS_MAX];

	begin("hold");
	record_put(&w, form_job_hold.params, &(struct job_hold_params){"m", "v1", {rank, world, "host"}});
	part_write(&w, &part, unused);
	end(fd_count);
}

static void write_load(uint32_t devices)
{
	static const char *const names[] = {"host", "GPU-1"};
	const uint64_t position = 0;

	begin("load");
	record_put(&w, form_job_load.params,
		   &(struct job_load_params){.wish = {.source = "/m", .devices = {names, devices}},
					     .model = "m",
					     .tag = "v1",
					     .keep = true,
					     .files = &position});
	end(1);
}

/* The job goes, and the packet with what nobody took: no descriptor is left over. */
static void expect_all_closed(void)
{
	job = job_free(job);
	packet_drop(&packet);
	cr_expect_eq(fd_count(), fds_before);
}

static void expect_refused(int code, const char *says)
{
	cr_assert_eq(job_parse(&message, &packet, &job, &error), code, "%s", error.message);
	cr_expect(strstr(error.message, says), "%s", error.message);
	cr_expect_null(job);
	expect_all_closed();
}

Test(job, owns_its_message)
{
	const struct job_load_params *params;

	write_load(2);
	cr_assert_eq(job_parse(&message, &packet, &job, &error), 0, "%s", error.message);
	message_clear(&message);
	params = job->params;
	cr_expect_str_eq(params->model, "m");
	cr_expect_eq(job->device_count, 2);
	cr_expect_str_eq(job->devices[1], "GPU-1");
	cr_expect(job->keep);
	expect_all_closed();
}

Test(job, of_a_part_has_the_device_of_its_place)
{
	write_hold(2, 3, 2);
	cr_assert_eq(job_parse(&message, &packet, &job, &error), 0, "%s", error.message);
	cr_expect_eq(job->kind, &kind_hold);
	cr_expect_eq(job->place->rank, 2);
	cr_expect_eq(job->device_count, 1);
	cr_expect_str_eq(job->devices[0], "host");
	cr_expect_not(job->keep);
	expect_all_closed();
}

Test(job, of_a_kind_that_there_is_not_is_refused)
{
	begin("dance");
	end(0);
	expect_refused(-EINVAL, "there is no job of the kind \"dance\"");
}

Test(job, of_a_rank_that_there_is_not_is_refused)
{
	write_hold(3, 3, 2);
	expect_refused(-EINVAL, "of rank 3, but its world is 3");
}

Test(job, without_a_device_is_refused)
{
	write_load(0);
	expect_refused(-EINVAL, "between 1 and");
}

/* With -EBADMSG gpuwmd would take the version for damaged. */
Test(job, without_its_parts_descriptors_is_refused)
{
	write_hold(2, 3, 1);
	expect_refused(-EPROTO, "segment 0 came without its descriptor");
}

Test(job, without_its_socket_is_refused)
{
	write_load(1);
	packet_drop(&packet);
	packet.fd_count = 0;
	expect_refused(-EBADMSG, "without the socket for its files");
}

Test(job, to_a_tier_that_there_is_not_is_refused)
{
	begin("move");
	record_put(&w, form_job_move.params,
		   &(struct job_move_params){
			   .model = "m", .tag = "v1", .place = {0, 1, "host"}, .from = "tape", .to = "host"});
	end(0);
	expect_refused(-EINVAL, "a move from \"tape\" to \"host\"");
}

Test(job, any_allocation_may_fail)
{
	int r;

	write_load(2);
	for (unsigned n = 1;
	     fail_alloc_arm(n), r = job_parse(&message, &packet, &job, &error), fail_alloc_disarm(); n++)
		cr_assert_eq(r, -ENOMEM, "%u: %d %s", n, r, error.message);
	cr_expect_eq(r, 0, "%s", error.message);
}
