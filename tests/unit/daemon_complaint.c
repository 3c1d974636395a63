/* Log lines that peers cause. */
#include "daemon/base/complaint.h"
#include "base/limits.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uv_loop_t loop;
static struct complaints *complaints;
static char text[65536];
static int pipe_fds[2], stderr_before;

static void setup(void)
{
	log_level_set(LOG_LEVEL_INFO);
	cr_assert_eq(uv_loop_init(&loop), 0);
	complaints = complaints_new(&loop);
	cr_assert(complaints);
	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
	stderr_before = dup(STDERR_FILENO);
	dup2(pipe_fds[1], STDERR_FILENO);
}

static void teardown(void)
{
	complaints_end(complaints);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert_eq(uv_loop_close(&loop), 0);
	complaints_free(complaints);
	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TestSuite(complaint, .init = setup, .fini = teardown);

/* What was logged since the last call. */
static const char *logged(void)
{
	ssize_t n = read(pipe_fds[0], text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static unsigned lines(void)
{
	unsigned count = 0;

	for (const char *at = logged(); (at = strchr(at, '\n')); at++)
		count++;
	return count;
}

static void complain_often(uid_t uid, enum complaint_kind kind, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		complain(complaints, uid, kind, "packet %u of uid %u", i, (unsigned)uid);
}

Test(complaint, is_logged)
{
	complain(complaints, 1000, COMPLAINT_PACKET, "session %d is ended", 7);
	cr_expect(strstr(logged(), "warning: session 7 is ended\n"), "%s", text);
	complain(complaints, 1000, COMPLAINT_LEASES, "session %d ended", 8);
	cr_expect(strstr(logged(), "info: session 8 ended\n"), "%s", text);
}

Test(complaint, of_one_user_and_kind_is_not_logged_without_end)
{
	complain_often(1000, COMPLAINT_PACKET, 5000);
	cr_expect_leq(lines(), LOG_LINES_BURST + 2);
	complain_often(1000, COMPLAINT_CONNECT, 1);
	complain_often(1001, COMPLAINT_PACKET, 1);
	cr_expect_eq(lines(), 2, "%s", text);
}

Test(complaint, that_was_left_out_is_counted_at_the_end)
{
	complain_often(1000, COMPLAINT_PACKET, 100);
	logged();
	complaints_end(complaints);
	cr_expect(strstr(logged(), " more of uid 1000 were not logged: refused packets\n"), "%s", text);
	cr_expect_geq(strtoul(strstr(text, "warning: ") + strlen("warning: "), NULL, 10),
		      100 - LOG_LINES_BURST - 2);
	/* The loop's last steps may still fail versions. */
	complain_often(1000, COMPLAINT_PACKET, 100);
	uv_run(&loop, UV_RUN_DEFAULT);
	complaints_free(complaints);
	complaints = complaints_new(&loop);
}
