#include "own_gpuwmd.h"

#include "../doctor/program.h"
#include "../line.h"
#include "../output.h"
#include "../runner.h"

#include "../../../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* From the start of gpuwm-keeper until gpuwmd serves. The keeper gives gpuwmd START_TIMEOUT_MS (60 s), and a take-over two minutes
 * at most until it goes back. */
#define READY_MS 180000
/* Between two looks whether the keeper has ended or gpuwmd is ready. */
#define LOOK_MS 20
/* Of the log, when gpuwmd did not start: the lines of a keeper, of its gpuwmd, and of those that go on if a take-over fails. */
#define LOG_SHOWN_BYTES 8000
#define UNIT_WORDS_MAX                                                                                         \
	(32 + LAUNCH_WORDS_MAX) /* of systemd-run: its options, the shell that logs, the launch, and NULL */

/* ---- waiting ----------------------------------------------------------------- */

/* Makes the socket to which the keeper says READY=1, and names it in the environment of what is started. EXIT_DONE, or an exit code
 * after printing why there is none. */
static int notify_open(int *ret_notify)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t bytes = sizeof(address);
	char name[sizeof(address.sun_path) + 1] = "@";

	*ret_notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* The kernel chooses an abstract address. */
	if (*ret_notify < 0 ||
	    bind(*ret_notify, (const struct sockaddr *)&address, sizeof(address.sun_family)) < 0 ||
	    getsockname(*ret_notify, (struct sockaddr *)&address, &bytes) < 0)
		return exit_with(EXIT_FAILED, NULL, "no socket can be made: %s", strerror(errno));
	snprintf(name + 1, sizeof(name) - 1, "%.*s", (int)(bytes - offsetof(struct sockaddr_un, sun_path) - 1),
		 address.sun_path + 1);
	setenv("NOTIFY_SOCKET", name, 1);
	return EXIT_DONE;
}

static bool notify_says_ready(int notify)
{
	char text[256];
	bool is_ready = false;
	ssize_t got;

	while ((got = recv(notify, text, sizeof(text) - 1, 0)) >= 0) {
		text[got] = '\0';
		is_ready |= strstr(text, "READY=1") != NULL;
	}
	return is_ready;
}

/* Asks the gpuwmd that has said that it is ready. */
static int launch_take_status(struct launch *launch)
{
	struct own_gpuwmd *own = launch->own;
	struct runner runner;

	own_gpuwmd_clear(own);
	own->status = own_gpuwmd_ask(own);
	if (!own->status)
		return exit_with_connect_error();
	runner = runner_find((pid_t)answer_number(own->status, "pid"), own->socket);
	own->keeper = runner.keeper;
	return EXIT_DONE;
}

/* ---- a child ------------------------------------------------------------------ */

/* In the child. Signals are as a shell would leave them: gpuwmctl may have blocked some. */
static void child_become(const struct launch *launch, int output, pid_t parent)
{
	sigset_t none;
	int input = open("/dev/null", O_RDONLY | O_CLOEXEC);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid(); /* neither Ctrl-C nor the terminal's end reaches it: who started it says when it ends */
	if (parent) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(EXIT_FAILED);
	}
	dup2(input, STDIN_FILENO);
	if (output >= 0) {
		dup2(output, STDOUT_FILENO);
		dup2(output, STDERR_FILENO);
	}
	/* Its flags name the socket. The folder is that of a service in which gpuwmctl runs, and gpuwmd would have its descriptions there. */
	unsetenv("GPUWM_SOCKET");
	unsetenv("STATE_DIRECTORY");
	execv(launch->words[0], (char *const *)launch->words);
	_exit(127);
}

/* parent: the child ends with it; 0: it stays. Returns the child; 0 after printing why there is none. */
static pid_t child_start(const struct launch *launch, int output, pid_t parent)
{
	pid_t pid = fork();

	if (pid == 0)
		child_become(launch, output, parent);
	if (pid > 0)
		return pid;
	exit_with(EXIT_FAILED, NULL, "gpuwm-keeper can't be started: %s", strerror(errno));
	return 0;
}

/* ---- the log ------------------------------------------------------------------- */

static int log_open(struct launch *launch, int *ret_log)
{
	char before[OWN_PATH + 8];
	struct stat st;
	int code = own_log_path(launch->own->folder, launch->log);

	if (code != EXIT_DONE)
		return code;
	/* The keeper that hands over goes on writing to the same file. */
	snprintf(before, sizeof(before), "%s.old", launch->log);
	if (!launch->is_restart)
		rename(launch->log, before);
	*ret_log = open(launch->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (*ret_log < 0)
		return exit_with(EXIT_FAILED, NULL, "the log %s can't be opened: %s", launch->log,
				 strerror(errno));
	if (fstat(*ret_log, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return exit_with(EXIT_FAILED, "remove it", "the log %s is no file of this user", launch->log);
	launch->log_from = lseek(*ret_log, 0, SEEK_END);
	return EXIT_DONE;
}

/* Prints what was logged since the launch. Returns false if that is nothing. */
static bool log_show(const struct launch *launch)
{
	int file = open(launch->log, O_RDONLY | O_CLOEXEC);
	char text[LOG_SHOWN_BYTES];
	ssize_t got = file < 0 ? -1 : pread(file, text, sizeof(text) - 1, launch->log_from);
	struct line line = {0};
	char *rest;

	if (file >= 0)
		close(file);
	if (got <= 0 || !*text)
		return false;
	text[got] = '\0';
	for (char *at = strtok_r(text, "\n", &rest); at && !output_is_data();
	     at = strtok_r(NULL, "\n", &rest)) {
		line_add(&line, "%s", at);
		line_note(&line);
	}
	return true;
}

/* ---- in a session of its own --------------------------------------------------- */

/* Waits until the keeper says that gpuwmd is ready, or ends. */
static int ready_wait(struct launch *launch, int notify, pid_t child)
{
	const int64_t deadline = clock_deadline(READY_MS);

	while (!notify_says_ready(notify)) {
		struct pollfd said = {.fd = notify, .events = POLLIN};

		if (waitpid(child, NULL, WNOHANG) == child)
			return exit_with(EXIT_FAILED,
					 log_show(launch) ? "the lines above are those of its log" : NULL,
					 "gpuwmd has not started: see %s", launch->log);
		if (clock_left(deadline) == 0)
			return exit_with(EXIT_TIMEOUT, "it may still be starting: gpuwmctl stop ends it",
					 "gpuwmd did not serve within %d s: see %s", READY_MS / 1000,
					 launch->log);
		poll(&said, 1, LOOK_MS);
	}
	return launch_take_status(launch);
}

static int launch_detached(struct launch *launch)
{
	int log, notify, code = log_open(launch, &log);
	pid_t child;

	if (code == EXIT_DONE)
		code = notify_open(&notify);
	if (code != EXIT_DONE)
		return code;
	child = chdir("/") == 0 ? child_start(launch, log, 0) : 0; /* it keeps no folder busy */
	close(log);
	code = child ? ready_wait(launch, notify, child) : (int)EXIT_FAILED;
	close(notify);
	return code;
}

/* ---- a unit of the user's systemd ------------------------------------------------ */

/* The first systemd that knows OOMPolicy=, and that notices such processes at all. RHEL 8 has 239. */
#define OOM_POLICY_VERSION 243

/* Variables of this shell that say which GPUs and which driver there are: the user's systemd does not know them. */
static const char *const passed_on[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH",
					"LD_PRELOAD", "TMPDIR"};
#define PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

/* The log is a file, since an ordinary user may not be able to read the journal. StandardError=append: needs systemd 240, so a
 * shell opens the file. */
#define LOGGING "exec \"$@\" >>\"$0\" 2>&1"

/* systemd replaces ${NAME} and $$ in a command: each $ is written twice. Returns the word, for free(3), or NULL. */
static char *unit_word(const char *word)
{
	char *doubled = malloc(2 * strlen(word) + 1), *to = doubled;

	for (const char *at = word; to && *at; at++) {
		if (*at == '$')
			*to++ = '$';
		*to++ = *at;
	}
	if (to)
		*to = '\0';
	return doubled;
}

/* The command of systemd-run: its strings are for free(3), but for those before `own`. */
struct unit_words {
	const char *list[UNIT_WORDS_MAX];
	size_t count, own;
	bool failed; /* memory was short */
};

/* Adds a word of malloc(3)'s. NULL: there was no memory for it. */
static void unit_word_add(struct unit_words *words, char *word)
{
	if (word)
		words->list[words->count++] = word;
	else
		words->failed = true;
}

__attribute__((format(printf, 2, 3))) static void unit_word_print(struct unit_words *words, const char *format,
								  ...)
{
	va_list arguments;
	char *word;

	va_start(arguments, format);
	unit_word_add(words, vasprintf(&word, format, arguments) >= 0 ? word : NULL);
	va_end(arguments);
}

static void unit_words_make(const struct launch *launch, unsigned version, struct unit_words *words)
{
	static const char *const options[] = {"systemd-run",
					      "--user",
					      "--quiet",
					      "--collect",
					      "--description=gpuwm: holds model weights of this user",
					      "--property=Type=notify",
					      "--property=NotifyAccess=main",
					      "--property=KillMode=mixed",
					      "--property=TimeoutStartSec=180",
					      "--property=TimeoutStopSec=30"};
	const char *const logging[] = {"/bin/sh", "-c", LOGGING, launch->log};

	*words = (struct unit_words){.own = sizeof(options) / sizeof(options[0])};
	memcpy(words->list, options, sizeof(options));
	words->count = words->own;
	unit_word_print(words, "--unit=%s", launch->unit);
	/* By default systemd stops a unit of which the kernel has ended any process, such as a loader, for want of memory. */
	if (version >= OOM_POLICY_VERSION)
		unit_word_print(words, "--property=OOMPolicy=continue");
	for (size_t i = 0; i < PASSED_ON; i++) {
		const char *value = getenv(passed_on[i]);

		if (value)
			unit_word_print(words, "--setenv=%s=%s", passed_on[i], value);
	}
	unit_word_print(words, "--");
	for (size_t i = 0; i < sizeof(logging) / sizeof(logging[0]); i++)
		unit_word_add(words, unit_word(logging[i]));
	for (size_t i = 0; i < launch->count; i++)
		unit_word_add(words, unit_word(launch->words[i]));
}

/* version: of systemd; 0: it has not said a number. */
static int launch_unit(struct launch *launch, unsigned version)
{
	char text[2000];
	struct unit_words words;
	int log, status, code = log_open(launch, &log);

	if (code != EXIT_DONE)
		return code;
	close(log);
	snprintf(launch->unit, sizeof(launch->unit), "gpuwm-%d.service", (int)getpid());
	unit_words_make(launch, version, &words);
	/* The program returns when gpuwmd is ready. */
	status = words.failed ? -ENOMEM : program_run(words.list, READY_MS, true, text, sizeof(text));
	while (words.count > words.own)
		free((char *)words.list[--words.count]);
	if (status == 0)
		return launch_take_status(launch);
	if (log_show(launch))
		return exit_with(EXIT_FAILED, "the lines above are those of its log",
				 "gpuwmd has not started as %s: see %s", launch->unit, launch->log);
	text[status < 0 ? 0 : strcspn(text, "\n")] = '\0';
	return exit_with(EXIT_FAILED, "the journal says more: journalctl --user --unit 'gpuwm-*' -n 20",
			 "gpuwmd has not started as %s, and its log is empty: %s", launch->unit,
			 status < 0 ? strerror(-status) : text);
}

int launch_background(struct launch *launch)
{
	static const char *const words[] = {"systemctl", "--user", "show", "--property=Version", NULL};
	unsigned version = 0;
	char text[256];

	/* It fails if this user has no systemd. */
	if (program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text)) != 0)
		return launch_detached(launch);
	sscanf(text, "Version=%u", &version);
	return launch_unit(launch, version);
}

/* ---- in the foreground ------------------------------------------------------------ */

/* Waits for the keeper's end, and passes signals on meanwhile. Returns its wait status. */
static int foreground_watch(struct launch *launch, int notify, pid_t child, const sigset_t *signals,
			    int (*ready)(const struct launch *))
{
	const struct timespec look = {0, LOOK_MS * 1000000L};
	bool is_told = false, is_ending = false;
	int status;

	while (waitpid(child, &status, WNOHANG) != child) {
		/* What comes before gpuwmd answers ends it, too. */
		int number =
			is_told || is_ending ? sigwaitinfo(signals, NULL) : sigtimedwait(signals, NULL, &look);

		if (number > 0 && number != SIGCHLD) {
			if (!is_ending)
				exit_note("processes that map weights keep them until they unmap them",
					  "%s: gpuwmd ends, and lets its weights go",
					  number == SIGINT   ? "Ctrl-C"
					  : number == SIGHUP ? "the terminal was closed"
							     : "SIGTERM");
			is_ending = true;
			kill(child, SIGTERM);
		} else if (!is_told && !is_ending && notify_says_ready(notify)) {
			is_told = true;
			if (launch_take_status(launch) == EXIT_DONE)
				ready(launch);
			fflush(stdout);
		}
	}
	if (!is_ending && is_told && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		exit_note(NULL,
			  "another gpuwm-keeper has taken the weights over, or gpuwmctl stop ended this one");
	return status;
}

int launch_foreground(struct launch *launch, int (*ready)(const struct launch *launch))
{
	static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
	sigset_t signals;
	int notify, status, code = notify_open(&notify);
	pid_t child;

	if (code != EXIT_DONE)
		return code;
	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		sigaddset(&signals, ours[i]);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	child = child_start(launch, -1, getpid());
	if (child == 0)
		return EXIT_FAILED;
	status = foreground_watch(launch, notify, child, &signals, ready);
	close(notify);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return EXIT_DONE;
	return exit_with(EXIT_FAILED, NULL, "gpuwm-keeper has ended: the lines above say why");
}
