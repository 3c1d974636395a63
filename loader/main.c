/* gpuwm-loader: all that needs a GPU, a model file, or trust in somebody's
 * bytes. gpuwmd starts it; it does one job and ends. */
#include "standby.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <fcntl.h>

#ifdef GPUWM_COVERAGE
void __gcov_dump(void);
#endif

static const char help[] = "usage: gpuwm-loader --fd N\n"
			   "\n"
			   "gpuwmd starts this program for each load and each check; it is of no use by hand.\n"
			   "\n"
			   "  --fd N     the connected socket to gpuwmd\n"
			   "  --version  print the version\n"
			   "  --help     print this\n";

/* The socket's number; -1 where it is none. */
static int parse_fd(const char *text)
{
	char *end;
	long fd = strtol(text, &end, 10);
	int type;
	socklen_t bytes = sizeof(type);

	if (end == text || *end || fd < 0 || fd > 65535)
		return -1;
	if (getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 || type != SOCK_SEQPACKET)
		return -1;
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	return (int)fd;
}

static int parse_arguments(int argc, char **argv, int *ret_fd)
{
	static const struct option options[] = {
		{"fd", required_argument, NULL, 'f'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option;

	*ret_fd = -1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			*ret_fd = parse_fd(optarg);
			break;
		case 'v':
			puts("gpuwm-loader " GPUWM_VERSION);
			exit(0);
		case 'h':
			fputs(help, stdout);
			exit(0);
		default:
			return -EINVAL;
		}
	}
	return optind == argc && *ret_fd >= 0 ? 0 : -EINVAL;
}

/* A repository may have more shards than the usual soft limit of 1,024 files. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	int fd, r;

	if (parse_arguments(argc, argv, &fd) < 0) {
		fputs(help, stderr);
		return 2;
	}
	/* gpuwmd's end is this process's end, in whatever call it is. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	r = standby_run(fd);
	if (r < 0)
		fprintf(stderr, "gpuwm-loader: gpuwmd was not told the end: %s\n", strerror(-r));
	fflush(NULL);
#ifdef GPUWM_COVERAGE
	__gcov_dump();
#endif
	/* Destructors of the driver may wait for a GPU that hangs. */
	_exit(r < 0 ? 1 : 0);
}
