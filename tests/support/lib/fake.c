#include "fake_internal.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

void fake_lease(struct fake *fake, nfds_t peer, int by)
{
	fake->leases += (unsigned)by;
	fake->held[peer] += (unsigned)by;
}

/* The peer, or the last one in its place, goes. */
static void fake_drop(struct fake *fake, nfds_t peer)
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
static void fake_die(struct fake *fake)
{
	while (fake->peer_count > 2)
		fake_drop(fake, 2);
	fake->epoch++;
	if (fake->forgetful)
		strcpy(fake->refuse, "publish_commit");
}

/* False: the peer is not there any more. */
static bool fake_serve(struct fake *fake, nfds_t peer)
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

static void *fake_run(void *data)
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

static int fake_remove(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	(void)type;
	(void)walk;
	return remove(path);
}

/* Folders are named after their process: those of tests that died go with the next one. */
static void fake_sweep(void)
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

void fake_run_again(struct fake *fake)
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

void fake_kill(struct fake *fake)
{
	close(fake->stop[1]);
	pthread_join(fake->thread, NULL);
	while (fake->peer_count > 0)
		fake_drop(fake, fake->peer_count - 1);
}

struct fake *fake_start(void)
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

void fake_stop(struct fake *fake)
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
