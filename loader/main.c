/* gpuwm-loader does all that needs a GPU, a model file, or trust in somebody's bytes. gpuwmd starts
 * it, or connects to a service that does. It does one job and ends, unless gpuwmd wants it for the
 * next one. */
#include "../service/option.h"
#include "../service/process.h"
#include "standby.h"
#include "../service/log.h"
#include "devices/loss.h"
#include "devices/probe.h"

#include <errno.h>
#include <fcntl.h>
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

#define FD_MAX 65535 /* gpuwmd passes a low one: a higher number is a mistake */

/* ---- the command line ---------------------------------------------------- */

static struct {
	int fd; /* -1: not given */
	bool activated;
	const char *user, *config;
	const char *examine; /* NULL: not given */
	bool probe;
} given = {.fd = -1};

static int take_fd(const struct option_row *row, const char *text, void *data, struct error *error)
{
	socklen_t bytes = sizeof(int);
	uint64_t fd;
	int type;

	(void)data;
	if (option_number(row, text, &fd, error) < 0)
		return -EINVAL;
	if (getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 || type != SOCK_SEQPACKET)
		return error_set(error, -EINVAL, row->help, "--%s: %s is no socket of the kind SOCK_SEQPACKET",
				 row->name, text);
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	given.fd = (int)fd;
	return 0;
}

static const struct option_row rows[] = {
	{"fd", "the connected socket to gpuwmd", "N", take_fd, .most = FD_MAX},
	{"activated", "take the connection from systemd (Accept=yes)", .into = &given.activated},
	{"user", "who may connect: the name or number of the user that gpuwmd runs as", "USER", take_text,
	 .into = &given.user},
	{"config", "load from below the roots of this configuration of gpuwmd only", "FILE", take_text,
	 .into = &given.config},
	{"examine",
	 "whether a GPU can be used: make a CUDA context there, write and read memory; a loader asks it about a "
	 "GPU that was lost",
	 "DEVICE", take_text, .into = &given.examine},
	{"probe",
	 "try the driver and every device, and print a line a result, for gpuwmctl doctor; with --fd, be the "
	 "second process of such a probe",
	 .into = &given.probe},
	{0},
};

static const struct command_line line = {
	.program = "gpuwm-loader",
	.usage = "--fd N\n"
		 "--activated --user USER [--config FILE]\n"
		 "--examine DEVICE\n"
		 "--probe [--fd N]",
	.about =
		"gpuwmd starts this program for each load and each check, or a systemd service does for each connection to "
		"its socket; it is of no use by hand.",
	.rows = rows,
	.version = GPUWM_VERSION,
};

/* Whether the options that were given can stand beside each other. */
static bool options_fit(void)
{
	if (given.probe)
		return !given.examine && !given.activated && !given.user && !given.config;
	if (given.examine)
		return given.fd < 0 && !given.activated && !given.user && !given.config;
	/* Without --user, anybody who can connect could have the loader's rights. */
	if (given.activated)
		return given.fd < 0 && given.user;
	return given.fd >= 0 && !given.user && !given.config;
}

/* Returns 0; or 1 after printing help or version. Fails with -EINVAL and *error. */
static int options_read(int argc, char **argv, struct error *error)
{
	int r = command_line_read(&line, argc, argv, NULL, error);

	if (r == 0 && !options_fit())
		return error_set(error, -EINVAL, "gpuwm-loader --help shows its usage",
				 "these options are no way to call gpuwm-loader");
	return r;
}

/* ---- what was asked for --------------------------------------------------- */

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

static int loader_run(void)
{
	struct roots_service roots = {.own = given.activated, .file = given.config};
	int sock = given.fd, r = 0;
	char limits[TEXT_BYTES_MAX + 1];
	struct error error;

	if (given.activated)
		r = activated_socket(given.user, &sock, &error);
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
	struct error wrong;
	const int understood = options_read(argc, argv, &wrong);
	int r;

	log_begin("gpuwm-loader");
	if (understood > 0)
		return EXIT_DONE;
	/* For an activated loader the service's unit sets it. First, since afterwards the file is root's. */
	if (understood == 0 && !given.activated && !given.probe && !given.examine)
		raise_oom_score();
	r = privacy_begin();
	if (r < 0) {
		log_plain("it can't keep other processes from tracing it: %s", strerror(-r));
		return EXIT_FAILED;
	}
	if (understood < 0) {
		complain(&wrong);
		return EXIT_USAGE;
	}
	abort_line_begin();
	signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	/* gpuwmd has a higher priority, which a loader must not inherit: its work takes long. */
	if (getpriority(PRIO_PROCESS, 0) < 0)
		setpriority(PRIO_PROCESS, 0, 0);
	if (given.probe) {
		r = loader_probe(given.fd);
	} else if (given.examine) {
		r = loader_examine(given.examine);
	} else {
		log_line_date();
		r = loader_run();
	}
	fflush(NULL);
#ifdef GPUWM_COVERAGE
	__gcov_dump();
#endif
	/* Destructors of the driver could wait for a GPU that hangs. */
	_exit(r);
}
