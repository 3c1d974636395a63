#include "fake_internal.h"
#include "proto/wire/messages.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* A request, and its answer as far as it is there. */
struct answer {
	struct fake *fake;
	nfds_t peer;
	struct fields params;
	struct packet *packet;
	struct message_writer w;
	int fds[PACKET_FDS_MAX]; /* sent with it */
	size_t fd_count;
	bool closes_fds; /* then; else they are a version's */
};

/* ---- versions ---------------------------------------------------------- */

/* Returns the version that a ref or an id names, or else what was handed in, which is written to *handed_in. */
static const struct fake_version *find(struct fake *fake, const char *ref, struct fake_version *handed_in)
{
	for (size_t i = 0; i < fake->version_count; i++) {
		struct fake_version *version = &fake->versions[i];

		if (strcmp(ref, version->id) == 0 ||
		    (ref[0] == 'm' && ref[1] == '@' && !strcmp(ref + 2, version->tag)))
			return version;
	}
	*handed_in = (struct fake_version){.id = FAKE_VERSION, .tag = "v1", .fd_count = fake->fd_count};
	memcpy(handed_in->fds, fake->fds, sizeof(fake->fds));
	memcpy(handed_in->bytes, fake->bytes, sizeof(fake->bytes));
	return handed_in;
}

static bool has(struct fake *fake, const char *id)
{
	struct fake_version handed_in;

	return strcmp(find(fake, id, &handed_in)->id, id) == 0;
}

unsigned fake_segments_held(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	for (struct dirent *entry; (entry = readdir(folder));) {
		char target[64] = "";

		if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0)
			count += strstr(target, "memfd:gpuwm-segment") != NULL;
	}
	closedir(folder);
	return count;
}

/* ---- a result each ----------------------------------------------------- */

static void answer_hello(struct answer *a)
{
	const char *const devices[][3] = {{"host", "host", "memory"}, {a->fake->device, "cuda", "a GPU"}};
	static const char *const nothing[] = {"used", "context", "contexts", "still_mapped"};
	struct message_writer *w = &a->w;
	char instance[VERSION_ID_TEXT];

	a->fake->hellos++;
	snprintf(instance, sizeof(instance), "%032x", a->fake->epoch);
	message_put_u64(w, "protocol", 1);
	message_put_text(w, "instance", instance);
	message_put_text(w, "ledger", FAKE_LEDGER);
	message_put_u64(w, "epoch", a->fake->epoch);
	message_put_text(w, "server", GPUWM_VERSION);
	message_put_u64(w, "pid", (uint64_t)getpid());
	message_begin_array(w, "roles");
	message_put_text(w, NULL, "worker");
	message_end(w);
	message_begin_array(w, "devices");
	for (size_t i = 0; i < (strcmp(a->fake->device, "host") ? 2 : 1); i++) {
		message_begin_map(w, NULL);
		message_put_text(w, "device", devices[i][0]);
		message_put_text(w, "kind", devices[i][1]);
		message_put_text(w, "name", devices[i][2]);
		message_put_u64(w, "total", GIB(8));
		message_put_u64(w, "budget", GIB(4));
		message_put_u64(w, "granularity", 4096);
		for (size_t j = 0; j < sizeof(nothing) / sizeof(*nothing); j++)
			message_put_u64(w, nothing[j], 0);
		message_end(w);
	}
	message_end(w);
}

static void answer_publish_begin(struct answer *a)
{
	struct fake *fake = a->fake;
	int pair[2];

	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	fields_text(&a->params, "name", fake->name, sizeof(fake->name));
	fake->granted = fields_u64(&a->params, "bytes");
	fake->peers[fake->peer_count++] = (struct pollfd){.fd = pair[0], .events = POLLIN};
	a->fds[a->fd_count++] = pair[1];
	a->closes_fds = true;
	message_put_text(&a->w, "publish", FAKE_VERSION);
	message_put_text(&a->w, "version", FAKE_VERSION);
	message_put_u64(&a->w, "checker", 0);
}

static void answer_hand_in(struct answer *a)
{
	struct fake *fake = a->fake;
	const msgpack_object *segments;
	uint32_t count;

	for (size_t i = 0; i < fake->fd_count; i++)
		close(fake->fds[i]);
	fake->bytes[0] = fields_u64(&a->params, "index_bytes");
	segments = fields_array(&a->params, "segments", &count);
	for (uint32_t i = 0; i < count; i++) {
		struct fields segment;

		fields_of(&segment, &segments[i]);
		fake->bytes[i + 1] = fields_u64(&segment, "bytes");
	}
	fake->fd_count = a->packet->fd_count;
	for (size_t i = 0; i < fake->fd_count; i++)
		packet_take_fd(a->packet, i, &fake->fds[i]);
}

static void answer_publish_commit(struct answer *a)
{
	a->fake->commits++;
	message_put_text(&a->w, "version", FAKE_VERSION);
	message_put_text(&a->w, "state", "ready");
	if (a->fake->alias_error)
		message_put_error(&a->w, "alias_error",
				  &(struct error){-EEXIST, "\"v1\" is a tag", "take another"});
}

static void answer_publish_abort(struct answer *a)
{
	a->fake->aborts++;
	a->fake->segments_at_abort = fake_segments_held();
	fields_text_or(&a->params, "reason", a->fake->reason, sizeof(a->fake->reason), "");
}

static void answer_get_handles(struct answer *a)
{
	struct message_writer *w = &a->w;
	struct fake_version handed_in;
	const struct fake_version *version;
	char ref[300];

	fields_text_or(&a->params, "ref", ref, sizeof(ref), "");
	version = find(a->fake, ref, &handed_in);
	fake_lease(a->fake, a->peer, 1);
	message_put_u64(w, "lease", ++a->fake->grants);
	message_put_text(w, "version", version->id);
	message_put_text(w, "model", "m");
	message_put_text(w, "tag", version->tag);
	message_put_text(w, "device", a->fake->device);
	message_put_u64(w, "rank", 0);
	message_put_u64(w, "world", 1);
	message_put_u64(w, "generation", 7);
	message_put_u64(w, "index", 0);
	message_put_u64(w, "index_bytes", version->bytes[0]);
	message_begin_array(w, "segments");
	for (size_t i = 1; i < version->fd_count; i++) {
		message_begin_map(w, NULL);
		message_put_u64(w, "fd", i);
		message_put_u64(w, "bytes", version->bytes[i]);
		message_end(w);
	}
	message_end(w);
	a->fd_count = version->fd_count;
	/* No copies: a test that forks meanwhile would count them as the library's. */
	memcpy(a->fds, version->fds, version->fd_count * sizeof(a->fds[0]));
}

static void answer_release(struct answer *a)
{
	FILE *log = *a->fake->calls ? fopen(a->fake->calls, "ae") : NULL;

	fake_lease(a->fake, a->peer, a->fake->held[a->peer] > 0 ? -1 : 0);
	a->fake->releases++;
	a->fake->released = fields_u64(&a->params, "lease");
	if (log) {
		fprintf(log, "%d gpuwmd %s 0\n", getpid(), "release");
		fclose(log);
	}
}

static void answer_announce(struct answer *a)
{
	a->fake->announces++;
	a->fake->announced_lease = fields_u64(&a->params, "lease");
	fields_text_or(&a->params, "address", a->fake->announced, sizeof(a->fake->announced), "");
}

static void resume_one(struct answer *a, const msgpack_object *lease)
{
	char version[VERSION_ID_TEXT], device[DEVICE_BYTES_MAX + 1];
	struct fake *fake = a->fake;
	struct fields one;
	uint64_t number;

	fields_of(&one, lease);
	number = fields_u64_or(&one, "lease", 0);
	fields_text(&one, "version", version, sizeof(version));
	fields_text(&one, "device", device, sizeof(device));
	fields_u64(&one, "rank");
	fields_text_or(&one, "address", fake->resumed_with, sizeof(fake->resumed_with), "");
	if (fake->hollow)
		return;
	if (fake->lose > 0) {
		fake->lose--;
		message_put_error(&a->w, "error", &fake->loss);
		if (fake->loss_revoked)
			message_put_bool(&a->w, "revoked", true);
	} else if (fake->revokes_dying && number == fake->revokes_dying) {
		message_put_error(&a->w, "error", &(struct error){-ESTALE, "an operator revoked it", ""});
		message_put_bool(&a->w, "revoked", true);
	} else if (one.error.code || !has(fake, version) || strcmp(device, fake->device)) {
		message_put_error(&a->w, "error", &(struct error){-EINVAL, "not as it was granted", ""});
	} else {
		fake_lease(fake, a->peer, 1);
		fake->resumed++;
		message_put_u64(&a->w, "lease", ++fake->grants);
	}
}

static void answer_resume(struct answer *a)
{
	uint32_t count;
	const msgpack_object *leases = fields_array(&a->params, "leases", &count);

	a->fake->resumes++;
	a->fake->batch = count > a->fake->batch ? count : a->fake->batch;
	message_begin_array(&a->w, "leases");
	for (uint32_t i = 0; i < count; i++) {
		message_begin_map(&a->w, NULL);
		resume_one(a, &leases[i]);
		message_end(&a->w);
	}
	message_end(&a->w);
	message_put_u64(&a->w, "grace_ms", 10000);
}

static void answer_load(struct answer *a)
{
	message_put_u64(&a->w, "job", 5);
}

/* As many jobs as the ref says. If that is below 0, the last one is something else. */
static void answer_verify(struct answer *a)
{
	char ref[64];

	fields_text(&a->params, "ref", ref, sizeof(ref));
	message_begin_array(&a->w, "jobs");
	for (int i = 0; i < abs(atoi(ref)) - (atoi(ref) < 0); i++)
		message_put_u64(&a->w, NULL, 100 + (uint64_t)i);
	if (atoi(ref) < 0)
		message_put_text(&a->w, NULL, "a job");
	message_end(&a->w);
}

static void answer_subscribe(struct answer *a)
{
	message_put_u64(&a->w, "seq", 3);
}

/* Job 4 is told without its keys. */
static void answer_jobs(struct answer *a)
{
	uint64_t job = fields_u64_or(&a->params, "job", 0);
	struct error error;

	error_set(&error, -EBADMSG, "get it again", "the file is damaged");
	message_begin_array(&a->w, "jobs");
	message_begin_map(&a->w, NULL);
	if (job != 4)
		record_put(&a->w, &job_told_record,
			   &(struct job_told){
				   .job = job,
				   .kind = "load",
				   .state = job == 1   ? "done"
					    : job == 2 ? "failed"
						       : "running",
				   .phase = "",
				   .model = "m",
				   .tag = "v",
				   .error = job == 2 ? &error : NULL,
			   });
	message_end(&a->w);
	message_end(&a->w);
}

static void answer_list(struct answer *a)
{
	const struct fake *fake = a->fake;
	const struct version_id id = {.bytes = {0xde}};

	message_begin_array(&a->w, "versions");
	if (fake->listed_source)
		record_put_map(&a->w, NULL, &version_listed_record,
			       &(struct version_listed){.version = &id,
							.model = "m",
							.tag = "described",
							.state = "ready",
							.tier = fake->listed_tier,
							.source = fake->listed_source});
	message_end(&a->w);
}

static void answer_hot_swap(struct answer *a)
{
	message_put_text(&a->w, "old", FAKE_VERSION);
	message_put_u64(&a->w, "generation", 2);
}

/* The result of every other method is an empty map. */
static const struct {
	const char *method;
	void (*answer)(struct answer *a);
} methods[] = {
	{"hello", answer_hello},
	{"publish_begin", answer_publish_begin},
	{"hand_in", answer_hand_in},
	{"publish_commit", answer_publish_commit},
	{"publish_abort", answer_publish_abort},
	{"get_handles", answer_get_handles},
	{"release", answer_release},
	{"announce", answer_announce},
	{"resume", answer_resume},
	{"load", answer_load},
	{"verify", answer_verify},
	{"subscribe", answer_subscribe},
	{"jobs", answer_jobs},
	{"list", answer_list},
	{"hot_swap", answer_hot_swap},
};

static void answer(struct answer *a, const char *method)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(method, methods[i].method) == 0)
			methods[i].answer(a);
	}
}

/* ---- notifications ----------------------------------------------------- */

static void send_and_clear(int sock, struct message_writer *w)
{
	message_end(w);
	packet_send(sock, w->buffer.data, w->buffer.size, NULL, 0);
	message_writer_clear(w);
}

static void put_number(struct message_writer *w, const char *key, uint64_t number, const char *spoils)
{
	if (strcmp(key, spoils) != 0)
		message_put_u64(w, key, number);
}

/* spoils: as in fake.h; "": nothing. */
static void event(int sock, uint64_t seq, const char *spoils)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "event");
	put_number(&w, "seq", seq, spoils);
	if (strcmp("kind", spoils) != 0)
		message_put_text(&w, "kind", event_swapped.name);
	put_number(&w, "time_ms", 1, spoils);
	message_put_text(&w, "model", "m");
	message_put_text(&w, "alias", "current");
	message_put_text(&w, "version", strcmp("version", spoils) == 0 ? "" : FAKE_VERSION);
	send_and_clear(sock, &w);
}

static void lost(int sock, const char *spoils)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "lost");
	put_number(&w, "from", 1, spoils);
	put_number(&w, "to", 4, spoils);
	send_and_clear(sock, &w);
}

static void two_events(int sock, const char *spoils)
{
	if (strcmp("from", spoils) == 0 || strcmp("to", spoils) == 0)
		lost(sock, spoils);
	else
		event(sock, 4, spoils);
	event(sock, 5, "");
}

static void revoke_on(int sock, uint64_t lease)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "revoked");
	message_put_text(&w, "reason", "an operator revoked it");
	message_begin_array(&w, "leases");
	message_put_u64(&w, NULL, lease);
	message_end(&w);
	send_and_clear(sock, &w);
}

void fake_revoke(struct fake *fake, uint64_t lease)
{
	for (nfds_t peer = 2; peer < fake->peer_count; peer++)
		revoke_on(fake->peers[peer].fd, lease);
}

/* ---- a request --------------------------------------------------------- */

void fake_request(struct fake *fake, nfds_t peer, const struct message *m, struct packet *packet)
{
	const bool gets_handles = strcmp(m->method, "get_handles") == 0;
	struct answer a = {.fake = fake, .peer = peer, .packet = packet};
	const int sock = fake->peers[peer].fd;

	fields_of(&a.params, m->body);
	message_writer_init(&a.w, PACKET_BYTES_MAX);
	if (fake->ambiguous && gets_handles && !fields_have(&a.params, "device")) {
		struct error error;

		error_set(&error, -ENODEV, NULL, "say on which device");
		message_response_error(&a.w, &m->id, &error);
	} else if (strcmp(m->method, fake->refuse) == 0) {
		message_response_error(&a.w, &m->id, &fake->refusal);
	} else {
		message_response(&a.w, m->id);
		if (strcmp(m->method, fake->empty) != 0)
			answer(&a, m->method);
		message_end(&a.w);
	}
	if (fake->revokes && gets_handles)
		revoke_on(sock, fake->grants);
	if (strcmp(m->method, fake->silent) != 0)
		packet_send(sock, a.w.buffer.data, a.w.buffer.size, a.fds, fake->no_fds ? 0 : a.fd_count);
	if (strcmp(m->method, "subscribe") == 0 && !fake->no_events)
		two_events(sock, fake->spoils);
	for (size_t i = 0; a.closes_fds && i < a.fd_count; i++)
		close(a.fds[i]);
	message_writer_clear(&a.w);
}
