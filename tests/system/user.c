#include "user.h"

#include "../../proto/wire/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct gpuwm_client *client;
static struct gpuwm_mapping *mapping;
static struct gpuwm_events *events;
static int hoard[2]; /* descriptors that nobody reads are between these */

static int do_attach(const char *ref, const char *owner, int64_t wait_ms)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	uint32_t uid = owner ? (uint32_t)atoi(owner) : 0;

	options.owner_operator = owner && strcmp(owner, "operator") == 0;
	options.owner_uids = &uid;
	options.owner_uid_count = owner && !options.owner_operator;
	options.wait_ms = wait_ms;
	return gpuwm_attach(client, ref, &options, &mapping);
}

static int do_publish(const char *name, const char *alias)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	const struct checkpoint *c = SMALL(1);
	struct gpuwm_tensor_spec *specs = calloc(checkpoint_tensors(c), sizeof(*specs));
	struct gpuwm_publish *publish;
	int r;

	options.name = name;
	options.device = "host";
	options.alias = alias;
	checkpoint_specs(c, specs);
	r = gpuwm_publish_begin(client, &options, specs, checkpoint_tensors(c), &publish);
	free(specs);
	if (r == 0)
		r = publish_fill(publish, c);
	return r < 0 ? r : gpuwm_publish_commit(publish, NULL);
}

/* Opens the file, passes it, and waits for the version. */
static int do_load(const char *path, const char *ref)
{
	const struct gpuwm_load_file file = {"model.safetensors", open(path, O_RDONLY | O_CLOEXEC)};
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;
	int r;

	options.source = "hf:acme/tiny@0123abc";
	options.name = ref;
	options.files = &file;
	options.file_count = 1;
	r = gpuwm_load(client, &options, &job);
	close(file.fd);
	return r < 0 ? r : gpuwm_job_wait(client, job, -1);
}

static int do_share(const char *device)
{
	struct gpuwm_mapping *shared;
	struct gpuwm_publish *publish;
	int r = publish_begin(client, device, NULL, SMALL(1), &publish);

	if (r == 0)
		r = publish_fill(publish, SMALL(1));
	if (r == 0)
		r = gpuwm_publish_commit_attached(publish, &shared);
	return r < 0 ? r : gpuwm_detach(shared);
}

static int do_swap(const char *model, const char *to)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = model;
	options.to = to;
	return gpuwm_swap(client, &options, NULL);
}

/* The number of versions that list tells of a model. */
static int do_list(const char *model)
{
	char *text;
	json_t *list;
	int count, r = gpuwm_query(client, "list", model, &text);

	if (r < 0)
		return r;
	list = json_loads(text, 0, NULL);
	count = (int)json_array_size(json_object_get(list, "versions"));
	json_decref(list);
	free(text);
	return count;
}

static int do_query(const char *method)
{
	char *text = NULL;
	int r = gpuwm_query(client, method, NULL, &text);

	free(text);
	return r;
}

struct counted {
	const char *prefix;
	int count;
	bool ended;
};

static void count_about(const struct gpuwm_event *event, void *data)
{
	struct counted *counted = data;

	counted->count += strncmp(event->model, counted->prefix, strlen(counted->prefix)) == 0;
	counted->ended |= strcmp(event->model, "end") == 0;
}

/* How many events of models that begin so come before the first of model "end". */
static int do_events(const char *prefix)
{
	struct counted counted = {.prefix = prefix};

	while (!counted.ended) {
		int r = gpuwm_events_dispatch(events, SOON_MS, count_about, &counted);

		if (r <= 0)
			return r < 0 ? r : -ETIMEDOUT;
	}
	return counted.count;
}

/* Sends descriptors that nobody reads, until the kernel refuses more of them: of this user, by a process with this soft limit of
 * open files. */
static int do_hoard(rlim_t limit)
{
	struct rlimit files;
	int r = 0, some[PACKET_FDS_MAX];

	CHILD_ASSERT(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = limit;
	CHILD_ASSERT(setrlimit(RLIMIT_NOFILE, &files) == 0);
	CHILD_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, hoard) == 0);
	for (size_t i = 0; i < PACKET_FDS_MAX; i++)
		some[i] = STDERR_FILENO;
	while (r == 0)
		r = packet_send(hoard[0], "x", 1, some, PACKET_FDS_MAX);
	return r == -ETOOMANYREFS ? 0 : r;
}

static int do_unhoard(void)
{
	close(hoard[0]);
	close(hoard[1]);
	return 0;
}

static int obey(const char *verb, const char *first, const char *second)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *claimed;

	if (strcmp(verb, "attach") == 0)
		return do_attach(first, second, 0);
	if (strcmp(verb, "copy") == 0) {
		options.transport = GPUWM_TRANSPORT_CUDA_IPC;
		return gpuwm_attach(client, first, &options, &mapping);
	}
	if (strcmp(verb, "wait") == 0)
		return do_attach(first, second, -1);
	if (strcmp(verb, "detach") == 0)
		return gpuwm_detach(mapping);
	if (strcmp(verb, "switch") == 0)
		return gpuwm_switch(mapping, first, NULL);
	if (strcmp(verb, "check") == 0)
		return gpuwm_mapping_check(mapping);
	if (strcmp(verb, "publish") == 0)
		return do_publish(first, second);
	if (strcmp(verb, "load") == 0)
		return do_load(first, second);
	if (strcmp(verb, "job") == 0)
		return gpuwm_job_wait(client, (uint64_t)atoi(first), 0);
	if (strcmp(verb, "cancel") == 0)
		return gpuwm_job_cancel(client, (uint64_t)atoi(first));
	if (strcmp(verb, "share") == 0)
		return do_share(first);
	if (strcmp(verb, "claim") == 0)
		return gpuwm_claim(client, first, &options, &claimed);
	if (strcmp(verb, "swap") == 0)
		return do_swap(first, second);
	if (strcmp(verb, "retire") == 0)
		return gpuwm_retire(client, first, second ? atoi(second) : 0);
	if (strcmp(verb, "pin") == 0)
		return gpuwm_pin(client, first, "p");
	if (strcmp(verb, "unpin") == 0)
		return gpuwm_unpin(client, first, "p");
	if (strcmp(verb, "verify") == 0) {
		uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
		size_t count;
		int r = gpuwm_verify(client, first, NULL, jobs, &count);

		return r < 0 ? r : gpuwm_job_wait(client, jobs[0], LOAD_MS);
	}
	if (strcmp(verb, "hoard") == 0)
		return do_hoard((rlim_t)atoi(first));
	if (strcmp(verb, "unhoard") == 0)
		return do_unhoard();
	if (strcmp(verb, "list") == 0)
		return do_list(first);
	if (strcmp(verb, "query") == 0)
		return do_query(first);
	if (strcmp(verb, "subscribe") == 0)
		return gpuwm_events_open(client, UINT64_MAX, &events);
	CHILD_ASSERT(strcmp(verb, "events") == 0);
	return do_events(first);
}

/* argv: the user's number, and its groups. */
int user(int argc, char **argv)
{
	gid_t groups[4];
	char line[512];
	FILE *in = fdopen(CHILD_IN, "r");
	uid_t uid = (uid_t)atoi(argv[0]);

	for (int i = 1; i < argc; i++)
		groups[i - 1] = (gid_t)atoi(argv[i]);
	CHILD_ASSERT(setgroups((size_t)argc - 1, groups) == 0 && setgid(uid) == 0 && setuid(uid) == 0);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	while (fgets(line, sizeof line, in)) {
		char *verb = strtok(line, " \n"), *first = strtok(NULL, " \n"), *second = strtok(NULL, " \n");
		int r = obey(verb, first, second);

		dprintf(CHILD_OUT, "%d %s|%s\n", r, r < 0 ? gpuwm_error()->message : "",
			r < 0 ? gpuwm_error()->detail : "");
	}
	_exit(0); /* what it holds goes with it */
}

#define ANSWER_MS 30000 /* a publish, or what waits for a gpuwmd that is started anew */
char said[2 * 1100];

int answer_of(struct process *p)
{
	struct pollfd ready = {.fd = p->from, .events = POLLIN};
	size_t used = 0;

	cr_assert_eq(poll(&ready, 1, ANSWER_MS), 1, "no answer");
	do
		cr_assert_eq(read(p->from, said + used, 1), 1, "the user is gone");
	while (said[used++] != '\n' && used < sizeof said);
	said[used - 1] = '\0';
	return atoi(said);
}

int does(struct process *p, const char *format, ...)
{
	char line[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	cr_assert(dprintf(p->to, "%s\n", line) > 0);
	return answer_of(p);
}

struct process user_start(uid_t uid)
{
	char text[16];

	snprintf(text, sizeof text, "%u", uid);
	return process_start(user, text, NULL);
}

void user_end(struct process *p)
{
	close(p->to);
	p->to = -1;
	process_finish(p);
}
