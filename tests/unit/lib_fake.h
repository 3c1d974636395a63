/* A gpuwmd for tests of the library: one thread, one version, its checker
 * included. It answers what the protocol says, refuses what it is told to, dies
 * and comes back. */
#ifndef LIB_FAKE_H
#define LIB_FAKE_H

#include "client/lib/clock.h"
#include "proto/message.h"
#include "proto/methods.h"
#include "proto/packet.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_PEERS 32
#define FAKE_VERSION "0123456789abcdef0123456789abcdef"
#define FAKE_INSTANCE "00000000000000000000000000000001"
#define FAKE_LEDGER "abababababababababababababababab"

/* A version besides the one that was handed in. Its descriptors are the fake's. */
struct fake_version {
	char id[VERSION_ID_TEXT], tag[16];
	int fds[PACKET_FDS_MAX];
	uint64_t bytes[PACKET_FDS_MAX]; /* 0: of the index */
	size_t fd_count;
};

#define FAKE_VERSIONS 4

struct fake {
	char folder[64], path[96];
	pthread_t thread;
	int stop[2];
	struct pollfd peers[FAKE_PEERS]; /* the stop pipe, the listener, peers */
	unsigned held[FAKE_PEERS]; /* leases of each */
	nfds_t peer_count;
	uint8_t buffer[PACKET_BYTES_MAX + 1];
	/* Set by tests before the call. */
	char refuse[32]; /* a method */
	struct error refusal;
	char silent[32]; /* a method that gets no answer */
	bool hang_up; /* instead of refusing */
	char dies_at[32]; /* a method: all connections end instead of an answer, and the next gpuwmd is there */
	unsigned deaths; /* how often it still does */
	bool answers_first; /* and dies then */
	uint64_t revokes_dying; /* this lease, before it dies; 0: none */
	char pauses_at[32]; /* a method that waits for `go` before it is answered */
	sem_t paused, go;
	unsigned lose; /* so many leases of the next resume get `loss` */
	struct error loss;
	bool loss_revoked; /* an operator revoked them */
	bool no_events, no_fds; /* and not the descriptors that a reply speaks of */
	bool revokes; /* the lease of get_handles, before any thread of the client has taken it */
	bool hollow; /* resume says neither a lease nor why not */
	char empty[32]; /* a method whose result has nothing in it */
	bool forgetful; /* a commit is not found after a restart */
	bool ambiguous; /* get_handles needs a device */
	char device[DEVICE_BYTES_MAX + 1];
	/* What has arrived. */
	int fds[PACKET_FDS_MAX];
	uint64_t bytes[PACKET_FDS_MAX]; /* 0: of the index */
	size_t fd_count;
	char name[300], reason[TEXT_BYTES_MAX + 1];
	struct fake_version versions[FAKE_VERSIONS]; /* found by "m@tag" or the id */
	size_t version_count;
	char calls[96]; /* a file that gets a line for each release, as a driver's log does; "": none */
	uint64_t granted;
	uint64_t released; /* the lease of the last release */
	unsigned leases, grants, aborts, commits, hellos, releases, requests;
	unsigned resumes, resumed, batch; /* requests, leases in all, most leases of one */
	unsigned epoch;
	int64_t wait_ms, longest_ms; /* of the last request, and the longest */
	bool alias_error; /* of commits */
	unsigned segments_at_abort; /* that this process still held when it was told */
};

/* Waits for what other threads do, of the library or of the fake. */
#define UNTIL(condition)                                                                                       \
	do {                                                                                                   \
		int64_t deadline_ = clock_ms() + 10000;                                                        \
		bool holds_;                                                                                   \
		while (!(holds_ = (condition)) && clock_ms() < deadline_)                                      \
			poll(NULL, 0, 1);                                                                      \
		cr_assert(holds_, "%s", #condition);                                                           \
	} while (0)

/* Descriptors that this process has open. */
static inline int open_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = -3; /* ".", ".." and the folder itself */

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static inline void fake_hello(struct message_writer *w, const struct fake *fake)
{
	const char *const devices[][3] = {{"host", "host", "memory"}, {fake->device, "cuda", "a GPU"}};
	char instance[VERSION_ID_TEXT];

	snprintf(instance, sizeof(instance), "%032x", fake->epoch);
	message_put_u64(w, "protocol", 1);
	message_put_text(w, "instance", instance);
	message_put_text(w, "ledger", FAKE_LEDGER);
	message_put_u64(w, "epoch", fake->epoch);
	message_begin_array(w, "devices");
	for (size_t i = 0; i < (strcmp(fake->device, "host") ? 2 : 1); i++) {
		message_begin_map(w, NULL);
		message_put_text(w, "device", devices[i][0]);
		message_put_text(w, "kind", devices[i][1]);
		message_put_text(w, "name", devices[i][2]);
		message_put_u64(w, "total", GIB(8));
		message_put_u64(w, "budget", GIB(4));
		message_put_u64(w, "granularity", 4096);
		message_end(w);
	}
	message_end(w);
}

static inline void fake_lease(struct fake *fake, nfds_t peer, int by)
{
	fake->leases += (unsigned)by;
	fake->held[peer] += (unsigned)by;
}

/* The one that a ref or an id names: else what was handed in. */
static inline struct fake_version *fake_find(struct fake *fake, const char *ref, struct fake_version *handed_in)
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

static inline void fake_grant(struct fake *fake, const struct fake_version *version, struct message_writer *w)
{
	message_put_u64(w, "lease", ++fake->grants);
	message_put_text(w, "version", version->id);
	message_put_text(w, "model", "m");
	message_put_text(w, "tag", version->tag);
	message_put_text(w, "device", fake->device);
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
}

static inline void fake_hand_in(struct fake *fake, struct fields *f, struct packet *packet)
{
	const msgpack_object *segments;
	uint32_t count;

	for (size_t i = 0; i < fake->fd_count; i++)
		close(fake->fds[i]);
	fake->bytes[0] = fields_u64(f, "index_bytes");
	segments = fields_array(f, "segments", &count);
	for (uint32_t i = 0; i < count; i++) {
		struct fields segment;

		fields_of(&segment, &segments[i]);
		fake->bytes[i + 1] = fields_u64(&segment, "bytes");
	}
	fake->fd_count = packet->fd_count;
	for (size_t i = 0; i < fake->fd_count; i++)
		packet_take_fd(packet, i, &fake->fds[i]);
}

static inline void fake_log(const struct fake *fake, const char *what)
{
	FILE *log = *fake->calls ? fopen(fake->calls, "ae") : NULL;

	if (log) {
		fprintf(log, "%d gpuwmd %s 0\n", getpid(), what);
		fclose(log);
	}
}

static inline bool fake_has(struct fake *fake, const char *id)
{
	struct fake_version handed_in;

	return strcmp(fake_find(fake, id, &handed_in)->id, id) == 0;
}

static inline void fake_resume(struct fake *fake, nfds_t peer, struct fields *f, struct message_writer *w)
{
	uint32_t count;
	const msgpack_object *leases = fields_array(f, "leases", &count);

	fake->resumes++;
	fake->batch = count > fake->batch ? count : fake->batch;
	message_begin_array(w, "leases");
	for (uint32_t i = 0; i < count; i++) {
		char version[VERSION_ID_TEXT], device[DEVICE_BYTES_MAX + 1];
		struct fields one;

		fields_of(&one, &leases[i]);
		fields_text(&one, "version", version, sizeof(version));
		fields_text(&one, "device", device, sizeof(device));
		fields_u64(&one, "rank");
		message_begin_map(w, NULL);
		if (fake->hollow) {
			/* nothing */
		} else if (fake->lose > 0) {
			fake->lose--;
			message_put_error(w, "error", &fake->loss);
			if (fake->loss_revoked)
				message_put_bool(w, "revoked", true);
		} else if (one.error.code || !fake_has(fake, version) || strcmp(device, fake->device)) {
			message_put_error(w, "error", &(struct error){-EINVAL, "not as it was granted", ""});
		} else {
			fake_lease(fake, peer, 1);
			fake->resumed++;
			message_put_u64(w, "lease", ++fake->grants);
		}
		message_end(w);
	}
	message_end(w);
	message_put_u64(w, "grace_ms", 10000);
}

static inline void fake_event(int sock, uint64_t seq)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_EVENT);
	message_put_u64(&w, "seq", seq);
	message_put_text(&w, "kind", EVENT_SWAPPED);
	message_put_text(&w, "model", "m");
	message_put_text(&w, "alias", "current");
	message_put_text(&w, "version", FAKE_VERSION);
	message_end(&w);
	packet_send(sock, w.buffer.data, w.buffer.size, NULL, 0);
	message_writer_clear(&w);
}

/* The result of a request; what it sends beside it is in fds. */
/* Memfds of segments among this process's descriptors. */
static unsigned fake_segments_held(void)
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

static inline void fake_answer(struct fake *fake, nfds_t peer, struct message *m, struct packet *packet,
			       struct message_writer *w, int *fds, size_t *fd_count)
{
	struct fields f;

	fields_of(&f, m->body);
	if (strcmp(m->method, METHOD_HELLO) == 0) {
		fake->hellos++;
		fake_hello(w, fake);
	} else if (strcmp(m->method, METHOD_PUBLISH_BEGIN) == 0) {
		int pair[2];

		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
		fields_text(&f, "name", fake->name, sizeof(fake->name));
		fake->granted = fields_u64(&f, "bytes");
		fake->peers[fake->peer_count++] = (struct pollfd){.fd = pair[0], .events = POLLIN};
		fds[(*fd_count)++] = pair[1];
		message_put_text(w, "publish", FAKE_VERSION);
		message_put_text(w, "version", FAKE_VERSION);
		message_put_u64(w, "checker", 0);
	} else if (strcmp(m->method, METHOD_HAND_IN) == 0) {
		fake_hand_in(fake, &f, packet);
	} else if (strcmp(m->method, METHOD_PUBLISH_COMMIT) == 0) {
		fake->commits++;
		message_put_text(w, "version", FAKE_VERSION);
		message_put_text(w, "state", "ready");
		if (fake->alias_error)
			message_put_error(w, "alias_error",
					  &(struct error){-EEXIST, "\"v1\" is a tag", "take another"});
	} else if (strcmp(m->method, METHOD_PUBLISH_ABORT) == 0) {
		fake->aborts++;
		fake->segments_at_abort = fake_segments_held();
		fields_text_or(&f, "reason", fake->reason, sizeof(fake->reason), "");
	} else if (strcmp(m->method, METHOD_GET_HANDLES) == 0) {
		char ref[300];
		struct fake_version handed_in, *version;

		fields_text_or(&f, "ref", ref, sizeof(ref), "");
		version = fake_find(fake, ref, &handed_in);
		fake_lease(fake, peer, 1);
		fake_grant(fake, version, w);
		*fd_count = version->fd_count;
		for (size_t i = 0; i < version->fd_count; i++)
			fds[i] = dup(version->fds[i]);
	} else if (strcmp(m->method, METHOD_RELEASE) == 0) {
		fake_lease(fake, peer, fake->held[peer] > 0 ? -1 : 0);
		fake->releases++;
		fake->released = fields_u64(&f, "lease");
		fake_log(fake, METHOD_RELEASE);
	} else if (strcmp(m->method, METHOD_RESUME) == 0) {
		fake_resume(fake, peer, &f, w);
	} else if (strcmp(m->method, METHOD_LOAD) == 0) {
		message_put_u64(w, "job", 5);
	} else if (strcmp(m->method, METHOD_VERIFY) == 0) {
		char ref[64];

		/* As many jobs as the ref says; below 0: the last one is something else. */
		fields_text(&f, "ref", ref, sizeof(ref));
		message_begin_array(w, "jobs");
		for (int i = 0; i < abs(atoi(ref)) - (atoi(ref) < 0); i++)
			message_put_u64(w, NULL, 100 + (uint64_t)i);
		if (atoi(ref) < 0)
			message_put_text(w, NULL, "a job");
		message_end(w);
	} else if (strcmp(m->method, METHOD_SUBSCRIBE) == 0) {
		message_put_u64(w, "seq", 3);
	} else if (strcmp(m->method, METHOD_JOBS) == 0) {
		struct error error;
		uint64_t job = fields_u64_or(&f, "job", 0);

		error_set(&error, -EBADMSG, "get it again", "the file is damaged");
		message_begin_array(w, "jobs");
		message_begin_map(w, NULL);
		message_put_text(w, "state", job == 1 ? "done" : job == 2 ? "failed" : "running");
		if (job == 2)
			message_put_error(w, "error", &error);
		message_end(w);
		message_end(w);
	} else if (strcmp(m->method, METHOD_HOT_SWAP) == 0) {
		message_put_text(w, "old", FAKE_VERSION);
	}
}

static inline bool fake_no_device(const struct message *m)
{
	struct fields f;

	fields_of(&f, m->body);
	return !fields_have(&f, "device");
}

/* To one connection: the lease of this number is revoked. */
static inline void fake_revoke_on(int sock, uint64_t lease)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_REVOKED);
	message_put_text(&w, "reason", "an operator revoked it");
	message_begin_array(&w, "leases");
	message_put_u64(&w, NULL, lease);
	message_end(&w);
	message_end(&w);
	packet_send(sock, w.buffer.data, w.buffer.size, NULL, 0);
	message_writer_clear(&w);
}

/* To all connections. From any thread: each is one packet. */
static inline void fake_revoke(struct fake *fake, uint64_t lease)
{
	for (nfds_t peer = 2; peer < fake->peer_count; peer++)
		fake_revoke_on(fake->peers[peer].fd, lease);
}

static inline void fake_request(struct fake *fake, nfds_t peer, struct message *m, struct packet *packet)
{
	const int sock = fake->peers[peer].fd;
	int fds[PACKET_FDS_MAX];
	size_t fd_count = 0;
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	if (fake->ambiguous && strcmp(m->method, METHOD_GET_HANDLES) == 0 && fake_no_device(m)) {
		struct error error;

		error_set(&error, -ENODEV, NULL, "say on which device");
		message_response_error(&w, &m->id, &error);
	} else if (strcmp(m->method, fake->refuse) == 0) {
		message_response_error(&w, &m->id, &fake->refusal);
	} else {
		message_response(&w, m->id);
		if (strcmp(m->method, fake->empty) != 0)
			fake_answer(fake, peer, m, packet, &w, fds, &fd_count);
		message_end(&w);
	}
	if (fake->revokes && strcmp(m->method, METHOD_GET_HANDLES) == 0)
		fake_revoke_on(sock, fake->grants);
	if (strcmp(m->method, fake->silent) != 0)
		packet_send(sock, w.buffer.data, w.buffer.size, fds, fake->no_fds ? 0 : fd_count);
	if (strcmp(m->method, METHOD_SUBSCRIBE) == 0 && !fake->no_events) {
		fake_event(sock, 4);
		fake_event(sock, 5);
	}
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	message_writer_clear(&w);
}

/* The peer, or the last one in its place, goes. */
static inline void fake_drop(struct fake *fake, nfds_t peer)
{
	nfds_t last = fake->peer_count - 1;

	fake_lease(fake, peer, -(int)fake->held[peer]);
	close(fake->peers[peer].fd);
	fake->peers[peer] = fake->peers[last];
	fake->held[peer] = fake->held[last];
	fake->held[last] = 0;
	fake->peer_count = last;
}

/* What a kill does, and a service manager that holds the listening socket. */
static inline void fake_die(struct fake *fake)
{
	while (fake->peer_count > 2)
		fake_drop(fake, 2);
	fake->epoch++;
	if (fake->forgetful)
		strcpy(fake->refuse, METHOD_PUBLISH_COMMIT);
}

/* False: the peer is not there any more. */
static inline bool fake_serve(struct fake *fake, nfds_t peer)
{
	struct packet packet = {.data = fake->buffer};
	struct message m = {0};
	const char *why;
	bool stay = true, dies;
	struct fields f;
	int r = packet_receive(fake->peers[peer].fd, true, &packet);

	if (r == -EAGAIN)
		return true;
	if (r <= 0 || message_read(packet.data, packet.bytes, &m, &why) < 0) {
		fake_drop(fake, peer);
		return false;
	}
	fields_of(&f, m.body);
	fake->wait_ms = fields_i64_or(&f, "wait_ms", fake->wait_ms);
	fake->longest_ms = fake->wait_ms > fake->longest_ms ? fake->wait_ms : fake->longest_ms;
	fake->requests++;
	if (strcmp(m.method, fake->pauses_at) == 0) {
		sem_post(&fake->paused);
		sem_wait(&fake->go);
	}
	dies = fake->deaths > 0 && strcmp(m.method, fake->dies_at) == 0;
	if (fake->hang_up && strcmp(m.method, fake->refuse) == 0) {
		fake_drop(fake, peer);
		stay = false;
	} else if (!dies || fake->answers_first) {
		fake_request(fake, peer, &m, &packet);
	}
	if (dies) {
		fake->deaths--;
		if (fake->revokes_dying)
			fake_revoke(fake, fake->revokes_dying);
		fake_die(fake);
		stay = false;
	}
	message_clear(&m);
	packet_drop(&packet);
	return stay;
}

static inline void *fake_run(void *data)
{
	struct fake *fake = data;

	for (;;) {
		poll(fake->peers, fake->peer_count, -1);
		if (fake->peers[0].revents)
			return NULL;
		if (fake->peers[1].revents && fake->peer_count < FAKE_PEERS)
			fake->peers[fake->peer_count++] = (struct pollfd){
				.fd = accept4(fake->peers[1].fd, NULL, NULL, SOCK_CLOEXEC), .events = POLLIN};
		for (nfds_t i = 2; i < fake->peer_count; i++) {
			if (fake->peers[i].revents && !fake_serve(fake, i))
				i--;
		}
	}
}

static inline int fake_remove(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	(void)type;
	(void)walk;
	return remove(path);
}

/* Folders are named after their process: those of tests that died go with the next one. */
static inline void fake_sweep(void)
{
	struct dirent *entry;
	DIR *tmp = opendir("/tmp");
	char path[300], any;
	int pid;

	cr_assert(tmp != NULL);
	while ((entry = readdir(tmp))) {
		if (sscanf(entry->d_name, "gpuwm-fake-%d-%c", &pid, &any) != 2 || kill(pid, 0) == 0 ||
		    errno != ESRCH)
			continue;
		snprintf(path, sizeof(path), "/tmp/%s", entry->d_name);
		nftw(path, fake_remove, 4, FTW_DEPTH | FTW_PHYS);
	}
	closedir(tmp);
}

/* The next gpuwmd, at the same place. */
static inline void fake_run_again(struct fake *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, fake->path);
	unlink(fake->path);
	cr_assert(eq(int, bind(listener, (struct sockaddr *)&address, sizeof(address)), 0));
	cr_assert(eq(int, listen(listener, 16), 0));
	cr_assert(eq(int, pipe(fake->stop), 0));
	fake->peers[0] = (struct pollfd){.fd = fake->stop[0], .events = POLLIN};
	fake->peers[1] = (struct pollfd){.fd = listener, .events = POLLIN};
	fake->peer_count = 2;
	fake->epoch++;
	cr_assert(eq(int, pthread_create(&fake->thread, NULL, fake_run, fake), 0));
}

/* Ends every connection, and nobody listens; the version stays in the store. */
static inline void fake_kill(struct fake *fake)
{
	close(fake->stop[1]);
	pthread_join(fake->thread, NULL);
	while (fake->peer_count > 0)
		fake_drop(fake, fake->peer_count - 1);
}

static inline struct fake *fake_start(void)
{
	struct fake *fake = calloc(1, sizeof(*fake));

	fake_sweep();
	snprintf(fake->folder, sizeof(fake->folder), "/tmp/gpuwm-fake-%d-XXXXXX", getpid());
	cr_assert(mkdtemp(fake->folder) != NULL);
	snprintf(fake->path, sizeof(fake->path), "%s/gpuwm.sock", fake->folder);
	strcpy(fake->device, "host");
	sem_init(&fake->paused, 0, 0);
	sem_init(&fake->go, 0, 0);
	fake_run_again(fake);
	return fake;
}

static inline void fake_stop(struct fake *fake)
{
	if (fake->peer_count > 0)
		fake_kill(fake);
	for (size_t i = 0; i < fake->fd_count; i++)
		close(fake->fds[i]);
	for (size_t i = 0; i < fake->version_count; i++) {
		for (size_t n = 0; n < fake->versions[i].fd_count; n++)
			close(fake->versions[i].fds[n]);
	}
	nftw(fake->folder, fake_remove, 4, FTW_DEPTH | FTW_PHYS);
	free(fake);
}

#endif
