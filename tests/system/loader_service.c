/* What systemd does for a socket unit with Accept=yes and its template service: one gpuwm-loader
 * for each connection, which outlives this process. */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void loader_exec(int sock, char **argv)
{
	char program[512], pid[16];

	snprintf(program, sizeof program, "%s/bin/gpuwm-loader", build_path());
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_FDNAMES", "connection", 1);
	signal(SIGCHLD, SIG_DFL);
	fcntl(sock, F_SETFD, 0);
	if (sock != 3) {
		dup2(sock, 3);
		close(sock);
	}
	close_range(4, ~0u, CLOSE_RANGE_CLOEXEC);
	execl(program, "gpuwm-loader", "--activated", "--user", argv[1], "--config", argv[2], NULL);
	_exit(127);
}

/* argv: where to listen, who may connect, the configuration, the journal. Says 'l' when it listens. */
static int service(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHILD_ASSERT(argc == 4);
	CHILD_ASSERT(dup2(open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), 2) == 2);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[0]);
	unlink(argv[0]);
	CHILD_ASSERT(bind(sock, (struct sockaddr *)&address, sizeof address) == 0 && listen(sock, 64) == 0);
	signal(SIGCHLD, SIG_IGN); /* no zombies */
	child_say('l');
	for (;;) {
		int connection = accept4(sock, NULL, NULL, SOCK_CLOEXEC);

		CHILD_ASSERT(connection >= 0);
		if (fork() == 0)
			loader_exec(connection, argv);
		close(connection);
	}
}

void service_start_for(struct gpuwmd *d, uid_t user)
{
	char config[128], number[16];
	FILE *file;

	snprintf(config, sizeof config, "%s/loader.conf", d->dir);
	file = fopen(config, "we");
	cr_assert(file && fprintf(file, "[loader]\nsocket = %s\nroot = %s\n", d->loader_socket, d->root) > 0);
	cr_assert(fclose(file) == 0);
	snprintf(number, sizeof number, "%u", (unsigned)user);
	d->service = process_start(service, d->loader_socket, number, config, d->log, NULL);
	process_expect(&d->service, 'l');
}

void service_start(struct gpuwmd *d)
{
	service_start_for(d, getuid());
}

void service_stop(struct gpuwmd *d)
{
	process_kill(&d->service, SIGKILL);
}
