#include "beside.h"

#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void text_write(const char *path, unsigned mode, const char *format, ...)
{
	va_list arguments;
	FILE *file = fopen(path, "we");

	cr_assert(file, "%s", path);
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	fchmod(fileno(file), mode);
	fclose(file);
}

/* ---- the secret ---- */

const char *peers_secret(void)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/peers.secret", own_folder());
	return path;
}

const char *peers_setting(void)
{
	static char set[128];

	snprintf(set, sizeof(set), "peers.secret=%s", peers_secret());
	peers_secret_write("first-first-first-first-first-first");
	return set;
}

void peers_secret_write(const char *secret)
{
	text_write(peers_secret(), 0600, "%s\n", secret);
}

/* ---- what it says ---- */

char *beside_log(const struct beside *peer)
{
	static char text[16384];
	int fd = open(peer->log, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[bytes < 0 ? 0 : bytes] = '\0';
	close(fd);
	return text;
}

bool beside_says(const struct beside *peer, const char *words)
{
	return strstr(beside_log(peer), words) != NULL;
}

/* ---- its life ---- */

void beside_needs_built(void)
{
	char program[256];

	snprintf(program, sizeof(program), "%s/bin/gpuwm-peer", build_path());
	SKIP_UNLESS(access(program, X_OK) == 0, "this build has no gpuwm-peer: no OpenSSL");
}

static void run(const struct beside *peer, const struct gpuwmd *d, uid_t uid)
{
	char program[256];
	int log = open(peer->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	snprintf(program, sizeof(program), "%s/bin/gpuwm-peer", build_path());
	if (uid != geteuid() && setuid(uid) < 0)
		_exit(126);
	execl(program, "gpuwm-peer", "--config", peer->config, "--socket", d->socket, NULL);
	_exit(127);
}

void beside_spawn(struct beside *peer, const struct gpuwmd *d, const char *settings, uid_t uid)
{
	snprintf(peer->config, sizeof(peer->config), "%s/peer.conf", d->dir);
	snprintf(peer->asking, sizeof(peer->asking), "%s/asking.conf", d->dir);
	snprintf(peer->log, sizeof(peer->log), "%s/peer.log", d->dir);
	text_write(peer->config, 0644, "[peers]\n%s", settings);
	unlink(peer->log); /* that of one before says another port */
	peer->pid = fork();
	if (peer->pid == 0)
		run(peer, d, uid);
}

void beside_wait(struct beside *peer)
{
	const char *port;

	cr_assert(EVENTUALLY(SOON_MS, beside_says(peer, "(port ")), "%s", beside_log(peer));
	port = strstr(beside_log(peer), "(port ");
	peer->port = (unsigned)strtoul(port + 6, NULL, 10);
	snprintf(peer->source, sizeof(peer->source), "peer://127.0.0.1:%u/m@v1", peer->port);
}

void beside_start_as(struct beside *peer, const struct gpuwmd *d, uid_t uid)
{
	char settings[256];

	snprintf(settings, sizeof(settings), "secret = %s\nlisten = 127.0.0.1:0\n", peers_secret());
	beside_spawn(peer, d, settings, uid);
	beside_wait(peer);
	text_write(peer->asking, 0644, "[peers]\nsecret = %s\npeer = 127.0.0.1:%u\n", peers_secret(),
		   peer->port);
}

void beside_start(struct beside *peer, const struct gpuwmd *d)
{
	beside_start_as(peer, d, geteuid());
}

int beside_ended(struct beside *peer)
{
	int status = 0;

	cr_assert(EVENTUALLY(SOON_MS, waitpid(peer->pid, &status, WNOHANG) == peer->pid));
	peer->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int beside_stop(struct beside *peer)
{
	kill(peer->pid, SIGTERM);
	return beside_ended(peer);
}

void beside_clear(struct beside *peer)
{
	if (peer->pid > 0) {
		kill(peer->pid, SIGKILL);
		waitpid(peer->pid, NULL, 0);
	}
	memset(peer, 0, sizeof(*peer));
}
