/* A connection between two nodes over TLS 1.3, in which both sides have proved who they are. Neither side reads a message before
 * that.
 *
 * With certificates each side shows one that the other side's authority signed. The side that connects also compares the
 * name: the certificate must be for the host that was asked. With a secret, both sides prove that they have the secret, and agree
 * on fresh keys. So nobody who steals the secret later can decrypt a recorded connection.
 *
 * Every call has a time limit, and fails with -ETIMEDOUT at its end. An error names the peer and the reason. After an error
 * the connection is of no use: close it.
 *
 * The program ignores SIGPIPE: OpenSSL writes to connections that have ended.
 *
 * Threads: one for reading and one for writing may use a link at the same time. Any thread may call link_interrupt. */
#ifndef GPUWM_PEER_LINK_H
#define GPUWM_PEER_LINK_H

#include "../service/peers.h"

#include <netdb.h>
#include <pthread.h>

/* How long TCP and TLS may take together until both sides know each other. They take four round trips, a second at most over a slow
 * line. A side that takes longer may be an attacker who wants to occupy places. */
#define LINK_HANDSHAKE_MS 5000
/* How long a peer may send nothing in the middle of an exchange. A peer that computes for longer sends something meanwhile. */
#define LINK_SILENCE_MS 30000

struct link;
struct peer_keys;

/* Where a peer is. */
struct link_target {
	const char *host; /* a name or an address */
	unsigned port;
	/* The name that the peer's certificate must have. NULL: `host`. If another peer redirected the taker to this one, that
	 * peer told the name: it has seen the certificate. */
	const char *name;
};

/* Connects, and does the handshake, within timeout_ms in all. The time that the resolver takes for the host's name (resolv.conf(5)) does
 * not count. Tries each address of the host in turn. Returns 0 and sets *ret. The caller owns the link until link_close.
 *
 * Fails with
 *   -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -ECONNRESET  No program answers there.
 *   -ENOENT  The host's name has no address.
 *   -EKEYREJECTED  The other side refused our certificate or secret, or we refused its one. The message says which, and why.
 *   -EPROTO  The other side does not speak TLS 1.3.
 *   -ENOMEM, -EMFILE */
int link_connect(struct peer_keys *keys, const struct link_target *target, uint64_t timeout_ms,
		 struct link **ret, struct error *error);

/* Does the other side's part on a connection that accept(2) gave. The link owns fd, also if the call fails. Returns 0 and sets
 * *ret, or fails as link_connect, and with -ENOLINK if the other side left without a word: a probe of the port does. */
int link_accept(struct peer_keys *keys, int fd, uint64_t timeout_ms, struct link **ret, struct error *error);

/* Ends the connection. A peer that still reads gets what was sent before. NULL is fine. Returns NULL. */
struct link *link_close(struct link *link);

/* The least that a peer must send or take, beside timeout_ms: 64 KiB a second. A peer that lets each byte wait would hold a connection for
 * ever, and no line between nodes is that slow. */
#define LINK_BYTES_PER_MS_MIN 64

/* Reads or writes exactly `bytes` bytes. The time limit is for each step forward; all of them may take as long, and the time in which
 * LINK_BYTES_PER_MS_MIN brings the bytes. Returns 0.
 *
 * Fails with
 *   -ENOLINK  The peer ended the connection at the beginning of the read.
 *   -ECONNRESET  The connection ended in the middle, or was not ended as TLS wants it: somebody may have cut it.
 *   -ETIMEDOUT, -ECANCELED (link_interrupt), -EPROTO */
int link_read(struct link *link, void *data, size_t bytes, uint64_t timeout_ms, struct error *error);
int link_write(struct link *link, const void *data, size_t bytes, uint64_t timeout_ms, struct error *error);

/* Later reads and writes pass TLS by: nothing is encrypted any more, and nobody notices what somebody changes on the way. Both sides call it after
 * the same message, of which each has seen the end. */
void link_clear(struct link *link);

/* Every later call on the link ends at deadline_ms (base/clock.h), even if its own time limit is longer. For the
 * thread that uses the link. */
void link_limit(struct link *link, uint64_t deadline_ms);

/* Makes every call on the link fail at once, now and later. The caller still has to close the link. */
void link_interrupt(struct link *link);

/* Returns the connection's descriptor, for poll(2). The link keeps it. The link may have read bytes from the descriptor that it has not
 * handed out yet; those don't make the descriptor readable. */
int link_fd(const struct link *link);

/* Returns the other side's name for errors and log lines: "node7 (10.0.0.7:9465)". Valid until link_close. */
const char *link_peer(const struct link *link);
/* Returns the first DNS name in the other side's certificate, or its common name. With a secret, returns "". */
const char *link_peer_name(const struct link *link);
/* Returns the other side's address, in digits and without its port. */
const char *link_peer_address(const struct link *link);
/* Returns whether the other side's certificate has one of these names. An entry *.DOMAIN stands for one more label. Returns true if
 * the list is empty, and with a secret. */
bool link_peer_matches(const struct link *link, const struct peer_list *names);

/* ---- addresses (lookup.c) ----
 *
 * Addresses of several names at once. The resolver may take its time for each name: 10 seconds if no server answers. */

struct lookup {
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;
	int why; /* for gai_strerror; 0: `list` has addresses */
	struct addrinfo *list;
	pthread_t thread;
	bool runs; /* the thread is to be joined */
};

/* Looks up all names of a list of HOST[:PORT], each in a thread of its own. Then calls `found` for each address, in digits, in the order
 * of the list. For a name without an address, calls it once with NULL, and lookup->why says why. Returns 0. Fails with -ENOMEM. */
int lookup_all(const struct peer_list *names,
	       void (*found)(void *user, const struct lookup *lookup, const char *address), void *user);

/* ---- keys (keys.c) ----
 *
 * The keys with which this node proves who it is, and checks other nodes. They are read from the files of the settings, and never
 * change afterwards. New files make new keys; connections that exist go on with the old ones. */

/* A secret is as strong as the keys that TLS derives from it: 256 bits. A shorter file is a mistake, or a password. */
#define PEER_SECRET_BYTES_MIN 32
/* A larger file is no secret. */
#define PEER_SECRET_BYTES_MAX 4096

/* Reads the files. Returns 0 and sets *ret. The caller owns one hold on the keys.
 *
 * Fails with
 *   -EACCES  The settings name no keys. Or a file can't be read, or others than its owner and its group may read the key or the
 *            secret.
 *   -EINVAL  A file has something else in it, or certificate and key do not belong together.
 *   -EKEYREJECTED  This node's certificate is out of date, or not valid yet.
 *   -ENOENT, -ENOMEM */
int peer_keys_read(const struct peer_settings *settings, struct peer_keys **ret, struct error *error);

/* Takes one more hold. Threads: any. Returns `keys`. */
struct peer_keys *peer_keys_hold(struct peer_keys *keys);
/* Gives a hold back; the last one frees the keys. NULL is fine. Threads: any. Returns NULL. */
struct peer_keys *peer_keys_release(struct peer_keys *keys);

/* Returns when this node's certificate ends, in seconds since 1970. Returns 0 if the keys are a secret. */
uint64_t peer_keys_end(const struct peer_keys *keys);

#endif
