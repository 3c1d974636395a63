/* What stands at a peer's port, and is no gpuwm-peer. */
#include "harness.h"

#include "tests/support/any/own_folder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char secret[64];

SYSTEM_SUITE(peers_cut);

/* A gpuwmd that may take from peers. */
static struct gpuwmd *begin(void)
{
	char set[96];
	FILE *file;

	snprintf(secret, sizeof(secret), "%s/cut.secret", own_folder());
	file = fopen(secret, "we");
	cr_assert(file);
	fputs("0123456789abcdef0123456789abcdef", file);
	fclose(file);
	chmod(secret, 0600);
	snprintf(set, sizeof(set), "peers.secret=%s", secret);
	return gpuwmd_start("--set", set, NULL);
}

static void built(void)
{
	char program[256];

	snprintf(program, sizeof(program), "%s/bin/gpuwm-peer", build_path());
	SKIP_UNLESS(access(program, X_OK) == 0, "this build takes nothing from peers: no OpenSSL");
}

/* Accepts each connection and ends it, until the socket is shut. */
static void *cut_all(void *user_data)
{
	const int *listener = user_data;
	int fd;

	while ((fd = accept(*listener, NULL, NULL)) >= 0)
		close(fd);
	return NULL;
}

GPUWMD_TEST_IF(peers_cut, a_connection_that_is_cut_was_not_gpuwmds, built(), begin(), gpuwmd_stop_empty)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof(at);
	pthread_t thread;
	char source[64];

	cr_assert_eq(bind(listener, (struct sockaddr *)&at, bytes), 0);
	cr_assert_eq(listen(listener, 8), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
	cr_assert_eq(pthread_create(&thread, NULL, cut_all, &listener), 0);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", ntohs(at.sin_port));
	cr_assert_neq(CTL("load", source, "copy@v1", "--device", d->device, "--wait"), 0, "%s", output);
	SAYS("127.0.0.1");
	cr_expect_null(strstr(output, "gpuwmd went away"), "%s", output);
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(listener);
}
