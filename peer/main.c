/* gpuwm-peer: serves what gpuwmd has to other nodes; or asks them what they have. */
#include "ask.h"
#include "listener.h"
#include "port.h"
#include "wire.h"
#include "../service/log.h"
#include "options.h"
#include "store.h"
#include "serve.h"

#include "../base/bytes.h"
#include "../base/clock.h"
#include "../service/manager.h"
#include "../service/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_RAN = 0, EXIT_COULD_NOT_START = 1, EXIT_USAGE = 2 };

/* How often it detaches what nobody wants any more, and tells the service manager what goes on. */
#define LOOK_MS 1000
/* Until gpuwm-peer waits again, if the kernel had no memory for that. */
#define POLL_AGAIN_NS 100000000

#define PROGRAM "gpuwm-peer " GPUWM_VERSION

struct peer {
	struct options options;
	struct listener listener;
	struct store *store;
	struct takers *takers;
	struct version_id ledger;
	int signals;
	char status[256]; /* as it was told last */
};

static int wrong(const struct error *error)
{
	log_error("%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
	return EXIT_COULD_NOT_START;
}

/* ---- settings and keys ---- */

static int read_keys(const char *config, struct peer_settings *ret_settings, struct peer_keys **ret_keys,
		     struct error *error)
{
	int r = peer_settings_read(config, ret_settings, error);

	if (r < 0)
		return r;
	r = peer_keys_read(ret_settings, ret_keys, error);
	if (r < 0)
		peer_settings_clear(ret_settings);
	return r;
}

static unsigned takers_of(const struct peer_settings *settings)
{
	return settings->takers > 0 ? (unsigned)settings->takers : TAKERS_DEFAULT;
}

/* Connections that exist go on with the old keys. */
static void reload(struct peer *peer)
{
	struct peer_settings settings;
	struct peer_keys *keys;
	struct error error;

	if (read_keys(peer->options.config, &settings, &keys, &error) < 0) {
		log_error("the old keys stay: %s%s%s", error.message, error.detail[0] ? ": " : "",
			  error.detail);
		return;
	}
	if (!settings.listen || strcmp(peer->listener.settings.listen, settings.listen) != 0)
		log_warning("`listen` in [peers] counts at the next start only");
	takers_limit(peer->takers, takers_of(&settings));
	listener_change(&peer->listener, &settings, keys);
	log_info("keys and settings were read again");
}

/* ---- serving ---- */

/* Returns whether the program is to end. */
static bool read_signals(struct peer *peer)
{
	struct signalfd_siginfo signal;

	while (read(peer->signals, &signal, sizeof(signal)) == sizeof(signal)) {
		if (signal.ssi_signo != SIGHUP)
			return true;
		reload(peer);
	}
	return false;
}

/* What systemctl status shows. */
static void tell_status(struct peer *peer)
{
	char status[sizeof(peer->status)], bytes[BYTES_TEXT];
	uint64_t sent;

	pthread_mutex_lock(&peer->listener.lock);
	sent = peer->listener.sent;
	pthread_mutex_unlock(&peer->listener.lock);
	snprintf(status, sizeof(status), "STATUS=Serving at %s: %u connections, %u takers, %s sent",
		 peer->listener.settings.listen, places_count(&peer->listener.places),
		 takers_count(peer->takers), bytes_format(sent, bytes));
	if (strcmp(status, peer->status) != 0 && manager_tell(status) == 0)
		strcpy(peer->status, status);
}

static void peer_look(struct peer *peer)
{
	uint64_t refused = places_refused(&peer->listener.places);

	if (refused > 0)
		log_warning(
			"%llu connections were refused or cut: there are too many that do not prove who they are",
			(unsigned long long)refused);
	store_look(peer->store);
	if (!peer->listener.server.ledger && store_ledger(peer->store, &peer->ledger))
		peer->listener.server.ledger = &peer->ledger;
	tell_status(peer);
}

static void peer_run(struct peer *peer)
{
	struct pollfd fds[] = {{.fd = peer->signals, .events = POLLIN},
			       {.fd = peer->listener.fd, .events = POLLIN}};
	uint64_t next = 0, now;

	for (;;) {
		now = clock_steady_ms();
		if (now >= next) {
			peer_look(peer);
			next = now + LOOK_MS;
		}
		if (poll(fds, 2, (int)(next - now)) < 0 && errno != EINTR) {
			log_warning("gpuwm-peer can't wait for connections: %s", strerror(errno));
			nanosleep(&(struct timespec){.tv_nsec = POLL_AGAIN_NS}, NULL);
		}
		if (read_signals(peer))
			return;
		listener_accept(&peer->listener);
	}
}

static int listen_with(struct peer *peer, struct peer_settings *settings, struct peer_keys *keys)
{
	const struct server server = {
		.source = &store_source, .user = peer->store, .takers = peer->takers, .program = PROGRAM};
	struct error error;
	unsigned port;
	int fd = port_open(settings->listen, false, &port, &error);

	if (fd < 0) {
		peer_keys_release(keys);
		peer_settings_clear(settings);
		return wrong(&error);
	}
	listener_begin(&peer->listener, &server, fd, settings, keys);
	if (geteuid() == 0)
		log_warning(
			"gpuwm-peer is root, for whom no rule of gpuwmd's counts: other nodes can take every model. Start it as a user of its own");
	log_info("serving at %s (port %u)", settings->listen, port);
	manager_tell("READY=1");
	peer_run(peer);
	manager_tell("STOPPING=1");
	store_stop(peer->store);
	listener_end(&peer->listener);
	return EXIT_RAN;
}

static int peer_serve(struct peer *peer, struct peer_settings *settings, struct peer_keys *keys)
{
	int r = EXIT_COULD_NOT_START;
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	sigprocmask(SIG_BLOCK, &ours, NULL); /* threads inherit it */
	peer->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
	peer->store = store_new(peer->options.socket);
	peer->takers = takers_new(takers_of(settings));
	if (peer->store && peer->takers && peer->signals >= 0)
		r = listen_with(peer, settings, keys);
	else
		log_error("gpuwm-peer is out of memory");
	store_free(peer->store);
	takers_free(peer->takers);
	return r;
}

/* ---- what was asked for ---- */

static int run_with_keys(struct peer *peer)
{
	struct peer_settings settings;
	struct peer_keys *keys;
	uint64_t end, now = clock_wall_ms() / 1000;
	struct error error;
	int r = read_keys(peer->options.config, &settings, &keys, &error);

	if (r < 0)
		return wrong(&error);
	if (!peer->options.check && !settings.listen) {
		error_set(&error, -EINVAL, "set it, such as listen = 0.0.0.0:9465",
			  "[peers] has no `listen`: this node serves nothing");
		r = wrong(&error);
	}
	if (!peer->options.check && r == 0)
		return peer_serve(peer, &settings, keys);
	/* For gpuwmctl doctor, which reads each line, and people. */
	end = peer_keys_end(keys);
	if (r == 0 && end == 0)
		printf("a secret\n");
	else if (r == 0)
		printf("%llu days until the certificate ends\n",
		       (unsigned long long)(end > now ? (end - now) / 86400 : 0));
	for (size_t i = 0; r == 0 && wires[i]; i++) {
		error = (struct error){0};
		if (wires[i]->here && wires[i]->here(&error) < 0)
			printf("not by %s: %s%s%s\n", wires[i]->title, error.message,
			       error.detail[0] ? ": " : "", error.detail);
		else
			printf("by %s\n", wires[i]->title);
	}
	peer_keys_release(keys);
	peer_settings_clear(&settings);
	return r;
}

int main(int argc, char **argv)
{
	static struct peer peer;
	struct error error;
	int private = privacy_begin(), r;

	if (streams_open() < 0)
		return EXIT_COULD_NOT_START;
	log_begin("gpuwm-peer");
	abort_line_begin();
	signal(SIGPIPE, SIG_IGN);
	r = options_parse(&peer.options, argc, argv);
	if (r != 0)
		return r < 0 ? EXIT_USAGE : EXIT_RAN;
	if (private < 0)
		log_warning("other processes of this user may trace gpuwm-peer: %s", strerror(-private));
	if (!peer.options.list)
		return run_with_keys(&peer);
	return ask_print(peer.options.config, peer.options.timeout_ms, &error) < 0 ? wrong(&error) : EXIT_RAN;
}
