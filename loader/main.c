/* gpuwm-loader does all that needs a GPU, a model file, or trust in somebody's bytes. gpuwmd starts
 * it, or connects to a service that does. It does one job and ends, unless gpuwmd wants it for the
 * next one. */
#include "../service/process.h"
#include "standby.h"
#include "../service/log.h"
#include "devices/loss.h"
#include "devices/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef GPUWM_COVERAGE
void __gcov_dump(void);
#endif

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char help[] =
	"usage: gpuwm-loader --fd N\n"
	"       gpuwm-loader --activated --user USER [--config FILE]\n"
	"       gpuwm-loader --examine DEVICE\n"
	"       gpuwm-loader --probe [--fd N]\n"
	"\n"
	"gpuwmd starts this program for each load and each check, or a systemd service does for\n"
	"each connection to its socket; it is of no use by hand.\n"
	"\n"
	"  --fd N         the connected socket to gpuwmd\n"
	"  --activated    take the connection from systemd (Accept=yes)\n"
	"  --user USER    who may connect: the name or number of the user that gpuwmd runs as\n"
	"  --config FILE  load from below the roots of this configuration of gpuwmd only\n"
	"  --examine DEVICE\n"
	"                 whether a GPU can be used: make a CUDA context there, write and read\n"
	"                 memory; a loader asks it about a GPU that was lost\n"
	"  --probe        try the driver and every device, and print a line a result, for\n"
	"                 gpuwmctl doctor; with --fd, be the second process of such a probe\n"
	"  --version      print the version\n"
	"  --help         print this\n";

struct arguments {
	int fd; /* -1: not given */
	bool activated;
	const char *user, *config;
	const char *examine; /* NULL: not given */
	bool probe;
};

/* Returns the number of the socket, or -1 if the text is no number. */
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

/* Whether the flags that were given can stand beside each other. */
static bool arguments_fit(const struct arguments *given)
{
	if (given->probe)
		return !given->examine && !given->activated && !given->user && !given->config;
	if (given->examine)
		return given->fd < 0 && !given->activated && !given->user && !given->config;
	/* Without --user, anybody who can connect could have the loader's rights. */
	if (given->activated)
		return given->fd < 0 && given->user;
	return given->fd >= 0 && !given->user && !given->config;
}

static int parse_arguments(int argc, char **argv, struct arguments *ret)
{
	static const struct option options[] = {
		{"fd", required_argument, NULL, 'f'},
		{"activated", no_argument, NULL, 'a'},
		{"user", required_argument, NULL, 'u'},
		{"config", required_argument, NULL, 'c'},
		{"examine", required_argument, NULL, 'e'},
		{"probe", no_argument, NULL, 'p'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option;

	*ret = (struct arguments){.fd = -1};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			ret->fd = parse_fd(optarg);
			break;
		case 'a':
			ret->activated = true;
			break;
		case 'u':
			ret->user = optarg;
			break;
		case 'c':
			ret->config = optarg;
			break;
		case 'e':
			ret->examine = optarg;
			break;
		case 'p':
			ret->probe = true;
			break;
		case 'v':
			puts("gpuwm-loader " GPUWM_VERSION);
			exit(EXIT_DONE);
		case 'h':
			fputs(help, stdout);
			exit(EXIT_DONE);
		default:
			return -EINVAL;
		}
	}
	return optind == argc && arguments_fit(ret) ? 0 : -EINVAL;
}

/* OOMScoreAdjust= of gpuwm-loader@.service */
#define OOM_SCORE_ADJ 500

/* If the machine runs out of memory, the kernel is to end a loader rather than the gpuwmd that started it: gpuwmd can repeat the
 * load, but nobody can bring back what gpuwmd holds. A higher value of gpuwmd's own stays. */
static void raise_oom_score(void)
{
	FILE *file = fopen("/proc/self/oom_score_adj", "r+e");
	int has;
	bool is_done = file && fscanf(file, "%d", &has) == 1;

	if (is_done && has < OOM_SCORE_ADJ) {
		rewind(file);
		is_done = fprintf(file, "%d\n", OOM_SCORE_ADJ) > 0 && fflush(file) == 0;
	}
	if (!is_done)
		log_plain("it can't raise its oom_score_adj to %d: %s", OOM_SCORE_ADJ, strerror(errno));
	if (file)
		fclose(file);
}

/* A repository may have more shards than the usual soft limit of open files, 1,024. */
static void raise_file_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

static int complain(const struct error *error)
{
	log_plain("%s%s%s%s", error->message, error->detail[0] ? " (" : "", error->detail,
		  error->detail[0] ? ")" : "");
	return EXIT_FAILED;
}

/* Examines a GPU. The driver may hang in a call to a lost one. Then the alarm ends this process,
 * which is the answer. */
static int loader_examine(const char *device)
{
	struct error error;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(LOOKOUT_EXAMINE_SECONDS);
	return loss_examine(device, &error) < 0 ? complain(&error) : EXIT_DONE;
}

/* Whoever started it ends it when it takes too long: the driver may hang. */
static int loader_probe(int fd)
{
	struct error error;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* it ends with doctor */
	if (fd >= 0)
		return probe_peer_run(fd) < 0 ? EXIT_FAILED : EXIT_DONE;
	return probe_run(&error) < 0 ? complain(&error) : EXIT_DONE;
}

static int loader_run(const struct arguments *arguments)
{
	struct standby_roots roots = {.own = arguments->activated, .file = arguments->config};
	int sock = arguments->fd, r = 0;
	char limits[TEXT_BYTES_MAX + 1];
	struct error error;

	if (arguments->activated)
		r = activated_socket(arguments->user, &sock, &error);
	else
		/* This ends the process sooner than the watcher does. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (r < 0)
		return complain(&error);
	r = watcher_start(sock);
	if (r < 0) {
		task_limits_explain(limits, sizeof(limits));
		error_set(&error, r, limits,
			  "gpuwm-loader can't watch its connection, because it can't make a thread: %s",
			  strerror(-r));
		return complain(&error);
	}
	r = standby_run(sock, &roots);
	if (r < 0)
		log_plain("gpuwmd was not told the end: %s", strerror(-r));
	return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	bool is_understood = parse_arguments(argc, argv, &arguments) == 0;
	int r;

	log_begin("gpuwm-loader");
	/* For an activated loader the service's unit sets it. First, since afterwards the file is root's. */
	if (is_understood && !arguments.activated && !arguments.probe && !arguments.examine)
		raise_oom_score();
	r = privacy_begin();
	if (r < 0) {
		log_plain("it can't keep other processes from tracing it: %s", strerror(-r));
		return EXIT_FAILED;
	}
	if (!is_understood) {
		fputs(help, stderr);
		return EXIT_USAGE;
	}
	abort_line_begin();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a log beyond RLIMIT_FSIZE must not end a load */
	raise_file_limit();
	/* gpuwmd has a higher priority, which a loader must not inherit: its work takes long. */
	if (getpriority(PRIO_PROCESS, 0) < 0)
		setpriority(PRIO_PROCESS, 0, 0);
	if (arguments.probe) {
		r = loader_probe(arguments.fd);
	} else if (arguments.examine) {
		r = loader_examine(arguments.examine);
	} else {
		log_line_date();
		r = loader_run(&arguments);
	}
	fflush(NULL);
#ifdef GPUWM_COVERAGE
	__gcov_dump();
#endif
	/* Destructors of the driver could wait for a GPU that hangs. */
	_exit(r);
}
