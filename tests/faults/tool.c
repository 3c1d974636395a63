#include "tool.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 16
#define OUTPUT_BYTES 65536
#define TAKE_LOOK_MS 200
/* Exit statuses of gpuwmctl that would be wrong here: everything that is asked for is there, undamaged, and allowed. Only who can't
 * connect to the operators' socket goes on as a user, and is refused as one. */
enum { CTL_USAGE = 2, CTL_NOT_FOUND = 4, CTL_IN_USE = 5, CTL_PERMISSION = 6, CTL_DAMAGED = 9 };

static const char *in_folder(const struct stack *s, const char *name)
{
	static char path[96];

	snprintf(path, sizeof path, "%s/%s", s->dir, name);
	return path;
}

/* ---- running ---------------------------------------------------------- */

static char *word_of(const struct stack *s, const char *word)
{
	char *made = NULL;
	int bytes = 0;

	if (strcmp(word, WORD_SOURCE) == 0)
		return strdup(stack_source(s, CONTENT_TWO));
	if (strcmp(word, WORD_SAVED) == 0)
		return strdup(in_folder(s, "models/saved"));
	if (strcmp(word, WORD_SOCKET) == 0)
		return strdup(s->socket);
	if (strcmp(word, WORD_ADMIN) == 0)
		return strdup(in_folder(s, "admin.sock"));
	if (strcmp(word, WORD_CONFIG) == 0)
		return strdup(in_folder(s, "gpuwmd.conf"));
	if (strcmp(word, WORD_HOOK) == 0)
		bytes = asprintf(&made, "cat > %s/heard.new && mv %s/heard.new %s/heard", s->dir, s->dir,
				 s->dir);
	return bytes > 0 ? made : strdup(word);
}

static _Noreturn void run(const struct stack *s, const char *const *words)
{
	char *argv[WORDS_MAX + 1] = {NULL}, program[512];

	for (size_t i = 0; i < WORDS_MAX && words[i]; i++)
		argv[i] = word_of(s, words[i]);
	snprintf(program, sizeof program, "%s/bin/%s", getenv("GPUWM_BUILD"), words[0]);
	stack_child(s, open(in_folder(s, "output"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	setenv("GPUWM_SOCKET", s->socket, 1);
	execv(program, argv);
	_exit(127);
}

static pid_t tool_start(const struct round *r)
{
	pid_t pid = fork();

	if (pid == 0)
		run(r->stack, r->scenario->words);
	return pid;
}

static bool has_ended(pid_t *pid, int *ret_status)
{
	if (*pid > 0 && waitpid(*pid, ret_status, WNOHANG) == *pid)
		*pid = 0;
	return *pid == 0;
}

/* Waits for its end. Returns its wait status. */
static int tool_end(struct round *r, pid_t pid)
{
	int status = 0;

	if (EVENTUALLY(LIMIT_MS, has_ended(&pid, &status)))
		return status;
	round_fail(r, "%s does not end", r->scenario->words[0]);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return status;
}

static char *file_read(const char *path)
{
	static char text[OUTPUT_BYTES];
	FILE *file = fopen(path, "re");
	size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;

	text[bytes] = '\0';
	if (file)
		fclose(file);
	return text;
}

static unsigned lines_of(const char *text)
{
	unsigned count = 0;

	for (; (text = strchr(text, '\n')); text++)
		count++;
	return count;
}

/* ---- what it said ----------------------------------------------------- */

/* With `-o json` output and errors are a JSON value each. */
static bool wants_json(const struct round *r)
{
	size_t last = 0;

	while (r->scenario->words[last + 1])
		last++;
	return strcmp(r->scenario->words[last], "json") == 0;
}

static void check_json(struct round *r)
{
	const char *text = file_read(in_folder(r->stack, "output"));
	json_t *value = json_loads(text, 0, NULL);

	if (!value)
		round_fail(r, "status 0, and no JSON: %.300s", text);
	json_decref(value);
}

/* Its line in the log of this round, and what is wrong with it. A line is to name a thing and a reason. */
static void check_words(struct round *r, int status)
{
	const char *name = r->scenario->words[0];
	char *said = stack_said(r->stack), *line, begin[32];

	snprintf(begin, sizeof begin, wants_json(r) ? "{\"error\":{" : "%s: ", name);
	line = said ? strstr(said, begin) : NULL;
	if (line)
		line[strcspn(line, "\n")] = '\0';
	if (!line)
		round_fail(r, "%s ended with status %d and did not say why", name, status);
	else if (strstr(line, "(null)") || strstr(line, ": Success") || strlen(line) < strlen(begin) + 8)
		round_fail(r, "%s ended with status %d and gave no reason: %s", name, status, line);
	free(said);
}

/* True: it ended well. */
static bool check_status(struct round *r, int status)
{
	const char *name = r->scenario->words[0];
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

	if (WIFEXITED(status) && code == 0)
		return true;
	r->refused++;
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT)
		round_fail(r, "%s was ended by signal %d", name, WTERMSIG(status));
	else if (r->scenario->of == PROGRAM_CTL && r->fault && r->fault->call != CALL_CONNECT &&
		 (code == CTL_USAGE || code == CTL_NOT_FOUND || code == CTL_IN_USE || code == CTL_PERMISSION ||
		  code == CTL_DAMAGED))
		round_fail(r, "%s ended with status %d, which is not so", name, code);
	else
		check_words(r, code);
	return false;
}

/* ---- what ends by itself ---------------------------------------------- */

/* How many lines it prints without a fault, which scenario of this process. */
static unsigned lines_expected;

static void command_learn(struct round *r)
{
	struct control *c = r->stack->control;
	bool armed = atomic_exchange(&c->armed, false), counting = atomic_exchange(&c->counting, false);
	int status = tool_end(r, tool_start(r));

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		round_fail(r, "without a fault, %s ends with status %#x", r->scenario->words[0],
			   (unsigned)status);
	lines_expected = lines_of(file_read(in_folder(r->stack, "output")));
	atomic_store(&c->counting, counting);
	atomic_store(&c->armed, armed);
}

static void check_output(struct round *r)
{
	const char *text = file_read(in_folder(r->stack, "output"));
	unsigned lines = lines_of(text);

	if (!strstr(text, r->scenario->says))
		round_fail(r, "it ended with status 0 and did not print \"%s\"", r->scenario->says);
	else if (!r->scenario->after && lines != lines_expected)
		round_fail(r, "it ended with status 0 and printed %u lines instead of %u", lines,
			   lines_expected);
}

void act_command(struct round *r)
{
	int status;

	step_begin(r, r->scenario->name);
	if (!r->scenario->after && lines_expected == 0)
		command_learn(r);
	status = tool_end(r, tool_start(r));
	alarm(0);
	round_disarm(r);
	if (r->failed)
		return;
	if (check_status(r, status)) {
		check_output(r);
		if (wants_json(r))
			check_json(r);
	}
	if (!r->failed && r->scenario->after)
		r->scenario->after(r, status);
}

void after_load(struct round *r, int status)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	/* A load whose answer was lost goes on. */
	if (status != 0 || stack_operator(r->stack, &client) < 0)
		return;
	if (!version_ready(client, "made") || !alias_names(client, "fresh", "made"))
		round_fail(r, "status 0, and the version is not ready or has no alias");
	else if (gpuwm_attach(client, MODEL "@made", NULL, &mapping) == 0) {
		if (!content_is(mapping, CONTENT_TWO))
			round_fail(r, "the version has wrong bytes");
		gpuwm_detach(mapping);
	}
	gpuwm_close(client);
}

void after_pin(struct round *r, int status)
{
	struct gpuwm_client *client;

	if (status != 0 || stack_operator(r->stack, &client) < 0)
		return;
	if (!pin_is_there(client, "one", "round"))
		round_fail(r, "status 0, and the pin is not there");
	gpuwm_close(client);
}

void after_swap(struct round *r, int status)
{
	struct gpuwm_client *client;

	if (status != 0 || stack_operator(r->stack, &client) < 0)
		return;
	if (!alias_names(client, "current", "two"))
		round_fail(r, "status 0, and the alias was not moved");
	gpuwm_close(client);
}

/* Entries of the folder that a save made; -1: there is no folder. The names begin with a dot while they are written. */
static int saved_count(const char *folder, int *ret_hidden)
{
	DIR *dir = opendir(folder);
	int count = 0;

	*ret_hidden = 0;
	if (!dir)
		return -1;
	for (const struct dirent *entry; (entry = readdir(dir));) {
		count += entry->d_name[0] != '.';
		*ret_hidden += entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 &&
			       strcmp(entry->d_name, "..") != 0;
	}
	closedir(dir);
	return count;
}

/* What has the name of a finished file is whole, whatever the status. */
static void saved_load(struct round *r, const char *folder)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	struct gpuwm_client *client;
	uint64_t job;

	if (stack_operator(r->stack, &client) < 0)
		return;
	options.source = folder;
	options.name = MODEL "@made";
	options.alias = "fresh";
	if (gpuwm_load(client, &options, &job) < 0 || gpuwm_job_wait(client, job, LIMIT_MS) < 0)
		round_fail(r, "what was saved can't be loaded: %s", gpuwm_error()->message);
	gpuwm_close(client);
	if (!r->failed)
		after_load(r, 0);
}

static void saved_remove(const char *folder)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", folder);
	if (system(command) != 0)
		perror(folder);
}

void after_save(struct round *r, int status)
{
	char folder[96];
	int hidden, count;

	snprintf(folder, sizeof folder, "%s", in_folder(r->stack, "models/saved"));
	count = saved_count(folder, &hidden);
	if (status == 0 && count <= 0)
		round_fail(r, "status 0, and nothing was saved");
	else if (hidden > 0 && !leaves_files(r->fault))
		round_fail(r, "a save left %d files that it had begun", hidden);
	else if (count > 0)
		saved_load(r, folder);
	saved_remove(folder);
}

/* ---- what serves ------------------------------------------------------ */

/* Whether it says the words, or has ended. */
static bool says(const struct round *r, const char *words)
{
	char *said = stack_said(r->stack);
	bool has = said && strstr(said, words);

	free(said);
	return has;
}

static unsigned port_of(const struct round *r)
{
	char *said = stack_said(r->stack);
	const char *port = said ? strstr(said, "(port ") : NULL;
	unsigned number = port ? (unsigned)strtoul(port + strlen("(port "), NULL, 10) : 0;

	free(said);
	return number;
}

/* Of the services below: their descriptors when they are idle, in the first round of this process. */
static size_t fds_expected;

static void check_fds(struct round *r, pid_t pid)
{
	if (fds_expected == 0 && !r->stack->control->struck)
		fds_expected = process_fds(pid);
	if (fds_expected > 0 && !EVENTUALLY(LIMIT_MS, process_fds(pid) <= fds_expected))
		round_fail(r, "%s has %zu descriptors instead of %zu", r->scenario->words[0], process_fds(pid),
			   fds_expected);
}

static pid_t served; /* 0: none */

/* Starts it and lets `use` do what may fail while it runs; `works` must hold once nothing fails any more. It may end with
 * an error that it says. */
static void serve(struct round *r, bool (*is_up)(const struct round *), void (*use)(struct round *),
		  bool (*works)(struct round *))
{
	int status = 0;
	pid_t pid;

	step_begin(r, "starting");
	served = pid = tool_start(r);
	if (!EVENTUALLY(LIMIT_MS, has_ended(&pid, &status) || is_up(r)))
		round_fail(r, "it neither serves nor ends");
	if (pid != 0 && !r->failed) {
		step_begin(r, "using it");
		use(r);
	}
	if (pid != 0 && r->stack->control->struck && !r->failed) {
		round_disarm(r);
		step_begin(r, "using it without a fault");
		if (!EVENTUALLY(LIMIT_MS, has_ended(&pid, &status) || works(r)))
			round_fail(r, "it does not work afterwards");
	}
	step_begin(r, "stopping");
	if (pid != 0 && !r->failed)
		check_fds(r, pid);
	if (pid != 0) {
		kill(pid, SIGTERM);
		status = tool_end(r, pid);
	}
	alarm(0);
	round_disarm(r);
	if (!r->failed)
		check_status(r, status);
}

/* -- the exporter -- */

static int http_connect(unsigned port)
{
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_port = htons((uint16_t)port),
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	close(fd);
	return -1;
}

/* The answer, or "" where there is none. */
static const char *http_get(unsigned port, const char *path)
{
	static char text[OUTPUT_BYTES * 4];
	const struct timeval limit = {.tv_sec = LIMIT_MS / 2000};
	int fd = http_connect(port), bytes;
	size_t used = 0;
	ssize_t got = 0;

	text[0] = '\0';
	if (fd < 0)
		return text;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	bytes = dprintf(fd, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
	while (bytes > 0 && used < sizeof text - 1 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	close(fd);
	return text;
}

/* A good answer is whole: it has as many bytes as it says, and this at its end or anywhere. */
static bool http_has(const char *answer, const char *words)
{
	const char *length = strstr(answer, "Content-Length: "), *body = strstr(answer, "\r\n\r\n");

	return strncmp(answer, "HTTP/1.1 200 ", 13) == 0 && length && body &&
	       strtoul(length + strlen("Content-Length: "), NULL, 10) == strlen(body + 4) &&
	       strstr(body, words);
}

static const struct {
	const char *path, *words;
} pages[] = {{"/metrics", "\ngpuwm_up 1\n"},
	     {"/api/state", "\"two\""},
	     {"/healthz", "gpuwmd answers"},
	     {"/readyz?version=model", "ready"},
	     {"/", "</html>"}};

static void use_exporter(struct round *r)
{
	for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
		const char *answer = http_get(port_of(r), pages[i].path);

		if (http_has(answer, pages[i].words))
			continue;
		r->refused++;
		/* That gpuwmd was not asked is an answer of /metrics and of the state, which has to be whole. */
		if (strncmp(answer, "HTTP/1.1 200 ", 13) == 0 && !http_has(answer, "gpuwm_up 0") &&
		    !http_has(answer, "\"up\":false"))
			round_fail(r, "%s: an answer that is not so: %.200s", pages[i].path, answer);
	}
}

static bool exporter_works(struct round *r)
{
	for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
		if (!http_has(http_get(port_of(r), pages[i].path), pages[i].words))
			return false;
	}
	return true;
}

static bool has_port(const struct round *r)
{
	return port_of(r) > 0;
}

void act_exporter(struct round *r)
{
	serve(r, has_port, use_exporter, exporter_works);
}

/* -- follow -- */

static bool heard(const struct round *r, const char *tag)
{
	char words[32];

	snprintf(words, sizeof words, "\"tag\":\"%s\"", tag);
	return strstr(file_read(in_folder(r->stack, "heard")), words);
}

static bool heard_first(const struct round *r)
{
	return heard(r, "one");
}

static bool moves(struct round *r, const char *tag)
{
	struct gpuwm_client *client;
	bool moved;

	if (stack_operator(r->stack, &client) < 0)
		return false;
	moved = alias_names(client, "current", tag) || swap_alias(client, "current", tag) >= 0;
	gpuwm_close(client);
	return moved && EVENTUALLY(LIMIT_MS / 4, heard(r, tag));
}

static void use_follow(struct round *r)
{
	if (!moves(r, "two"))
		r->refused++;
}

static bool follow_works(struct round *r)
{
	return moves(r, "two") && moves(r, "one");
}

void act_follow(struct round *r)
{
	unlink(in_folder(r->stack, "heard"));
	serve(r, heard_first, use_follow, follow_works);
	unlink(in_folder(r->stack, "heard.new")); /* of a hook that was killed */
	close(open(in_folder(r->stack, "heard"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

/* -- peer -- */

/* Whether gpuwm-peer has ended; it is not reaped. */
static bool has_left(void)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)served, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == served;
}

/* A load looks much longer for a node that is gone: until then it is cancelled. */
static int take_wait(struct gpuwm_client *client, uint64_t job)
{
	int code, waited = 0;

	do {
		code = gpuwm_job_wait(client, job, TAKE_LOOK_MS);
		waited += TAKE_LOOK_MS;
	} while (code == -ETIMEDOUT && waited < LIMIT_MS && !has_left());
	if (code == -ETIMEDOUT && has_left() && gpuwm_job_cancel(client, job) >= 0)
		code = gpuwm_job_wait(client, job, LIMIT_MS);
	return code;
}

static int take(struct round *r, const char *name)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	char source[64];
	struct gpuwm_client *client;
	uint64_t job;
	int code = stack_operator(r->stack, &client);

	if (code < 0)
		return code;
	snprintf(source, sizeof source, "peer://127.0.0.1:%u/" MODEL "@two", port_of(r));
	options.source = source;
	options.name = name;
	options.alias = "fresh";
	code = gpuwm_load(client, &options, &job);
	if (code >= 0)
		code = take_wait(client, job);
	gpuwm_close(client);
	return code;
}

static void use_peer(struct round *r)
{
	if (step_end(r, take(r, MODEL "@made")) >= 0)
		after_load(r, 0);
}

static bool peer_works(struct round *r)
{
	static unsigned count;
	char name[32];

	snprintf(name, sizeof name, MODEL "@again%u", ++count);
	return take(r, name) >= 0;
}

static bool peer_is_up(const struct round *r)
{
	return has_port(r) && says(r, "gpuwm-peer: ");
}

void act_peer(struct round *r)
{
	serve(r, peer_is_up, use_peer, peer_works);
}
