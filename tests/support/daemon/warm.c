#include "warm.h"

struct device *gpu, *other_gpu;
int loader = -1, next = -1;

static struct device *add_gpu(const char *id)
{
	struct device report = {.kind = &kind_cuda, .total = GIB(1), .context = CONTEXT};

	snprintf(report.id, sizeof(report.id), "%s", id);
	cr_assert_eq(device_table_budget(&server->ledger.devices, id, GIB(1), 0), 0);
	cr_assert_eq(device_table_report(&server->ledger.devices, &report, 1), 0);
	return device_find(&server->ledger.devices, id);
}

void begin(uint64_t keep_s)
{
	config.keep_context_s = keep_s;
	config.loaders = 4;
	gpu = add_gpu(GPU);
	other_gpu = add_gpu(OTHER_GPU);
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = accept_one();
	cr_assert_eq(hello_with(loader, -1), 0, "%s", message.error.message);
}

void finish(void)
{
	if (loader >= 0)
		close(loader);
	if (next >= 0)
		close(next);
	leave();
}

struct job *load_to_both(struct device *first, struct device *second)
{
	struct job *job = new_load("/models/m", "v1", 0);

	cr_assert_eq(job_add_device(job, first), 0);
	if (second)
		cr_assert_eq(job_add_device(job, second), 0);
	loader_pool_turn(server->work.loaders);
	return job;
}

struct job *load_to(struct device *device)
{
	return load_to_both(device, NULL);
}

void expect_job(int sock)
{
	TURN_UNTIL(comes(sock) && strcmp(message.method, "job") == 0);
}

bool says_done_and_stays(int sock, int code)
{
	struct error error = {.code = code, .message = "it failed"};
	struct message_writer w;
	struct fields f;

	begin_request(&w, 2, "loader_done");
	if (code)
		message_put_error(&w, "error", &error);
	message_put_bool(&w, "keeps", true);
	send_request(sock, &w);
	TURN_UNTIL(comes(sock) && message.type == MESSAGE_RESPONSE);
	cr_assert_eq(message.error.code, 0, "%s", message.error.message);
	fields_of(&f, message.body);
	return fields_bool_or(&f, "stay", false);
}

void warm_up(void)
{
	struct job *job = load_to(gpu);

	expect_job(loader);
	next = standby_with(-1);
	say_progress(loader);
	cr_assert(says_done_and_stays(loader, 0));
	cr_assert_eq(job->state, JOB_DONE);
	cr_assert_eq(gpu->contexts, CONTEXT);
}

struct loader *warm_one(void)
{
	struct loader *l = server->work.loaders->first;

	while (l && l->state != LOADER_WARM)
		l = l->next;
	cr_assert_not_null(l);
	return l;
}

void expect_dismissed(void)
{
	TURN_UNTIL(is_ended(loader));
	close(loader);
	loader = -1;
	TURN_UNTIL(gpu->contexts == 0);
}

void expect_kept(void)
{
	turn();
	cr_expect_not(comes(loader), "%s", message.method);
	cr_expect_eq(gpu->contexts, CONTEXT);
}
