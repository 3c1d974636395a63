#include "manager.h"

#include "tests/support/any/own_folder.h"

static void manager_keep(struct manager *m, const char *name, int fd)
{
	cr_assert_lt(m->count, MANAGER_FDS);
	snprintf(m->kept[m->count].name, sizeof(m->kept[0].name), "%s", name);
	m->kept[m->count++].fd = fd;
}

static void manager_drop(struct manager *m, const char *name)
{
	for (int i = m->count - 1; i >= 0; i--) {
		if (strcmp(m->kept[i].name, name) != 0)
			continue;
		close(m->kept[i].fd);
		m->kept[i] = m->kept[--m->count];
	}
}

static void manager_take(struct manager *m, const char *text, int fd)
{
	const char *name = strstr(text, "FDNAME=");
	char word[64] = "";

	if (name)
		sscanf(name, "FDNAME=%63[^\n]", word);
	if (strncmp(text, "FDSTORE=1\n", 10) == 0) {
		cr_assert(strstr(text, "FDPOLL=0"));
		manager_keep(m, word, fd);
	} else if (strncmp(text, "FDSTOREREMOVE=1\n", 16) == 0) {
		manager_drop(m, word);
	} else if (strncmp(text, "BARRIER=1", 9) == 0 && m->silent) {
		if (m->held_back >= 0) /* nobody waits for it any more */
			close(m->held_back);
		m->held_back = fd;
	} else if (fd >= 0) {
		usleep(m->slow_us);
		if (m->answer)
			cr_assert_eq(write(fd, m->answer, strlen(m->answer)), (ssize_t)strlen(m->answer));
		close(fd);
	}
	strncat(m->heard, text, sizeof(m->heard) - strlen(m->heard) - 2);
	strcat(m->heard, "\n");
}

static void *manager_run(void *data)
{
	struct manager *m = data;
	char text[4096], control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text) - 1};

	for (;;) {
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control,
				     .msg_controllen = sizeof(control)};
		ssize_t got = recvmsg(m->sock, &msg, MSG_CMSG_CLOEXEC);
		const struct cmsghdr *c = got >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
		int fd = -1;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return NULL;
		text[got] = '\0';
		if (strcmp(text, "END") == 0)
			return NULL;
		if (c)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		pthread_mutex_lock(&m->lock);
		manager_take(m, text, fd);
		pthread_mutex_unlock(&m->lock);
	}
}

void manager_start(struct manager *m, const char *limit)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memset(m, 0, sizeof(*m));
	m->held_back = -1;
	snprintf(m->path, sizeof(m->path), "%s/manager", own_folder());
	unlink(m->path);
	strcpy(address.sun_path, m->path);
	m->sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(m->sock, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", m->path, 1);
	setenv("FDSTORE", limit, 1);
	pthread_mutex_init(&m->lock, NULL);
	cr_assert_eq(pthread_create(&m->thread, NULL, manager_run, m), 0);
}

void manager_stop(struct manager *m)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, m->path);
	cr_assert_eq(sendto(m->sock, "END", 3, 0, (struct sockaddr *)&address, sizeof(address)), 3);
	pthread_join(m->thread, NULL);
	close(m->sock);
	unlink(m->path);
	for (int i = 0; i < m->count; i++)
		close(m->kept[i].fd);
	if (m->held_back >= 0)
		close(m->held_back);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("FDSTORE");
}

void manager_confirm(struct manager *m)
{
	pthread_mutex_lock(&m->lock);
	m->silent = false;
	if (m->held_back >= 0)
		close(m->held_back);
	m->held_back = -1;
	pthread_mutex_unlock(&m->lock);
}

int manager_keeps(struct manager *m, const char *name)
{
	int count = 0;

	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->count; i++)
		count += !name || strcmp(m->kept[i].name, name) == 0;
	pthread_mutex_unlock(&m->lock);
	return count;
}

bool manager_heard(struct manager *m, const char *words)
{
	bool heard;

	pthread_mutex_lock(&m->lock);
	heard = strstr(m->heard, words) != NULL;
	pthread_mutex_unlock(&m->lock);
	return heard;
}
