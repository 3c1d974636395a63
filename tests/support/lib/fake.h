/* A gpuwmd for tests of the library: one thread, one version, its checker
 * included. It answers what the protocol says, refuses what it is told to, dies
 * and comes back. */
#ifndef GPUWM_TESTS_LIB_FAKE_H
#define GPUWM_TESTS_LIB_FAKE_H

#include "base/limits.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/until.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_PEERS 32
#define FAKE_VERSION "0123456789abcdef0123456789abcdef"
#define FAKE_INSTANCE "00000000000000000000000000000001"
#define FAKE_LEDGER "abababababababababababababababab"

/* A version besides the one that was handed in. Its descriptors are the fake's. */
struct fake_version {
	char id[VERSION_ID_TEXT], tag[16];
	int fds[PACKET_FDS_MAX];
	uint64_t bytes[PACKET_FDS_MAX]; /* 0: of the index */
	size_t fd_count;
};

#define FAKE_VERSIONS 6

struct fake {
	char folder[64], path[96];
	pthread_t thread;
	int stop[2];
	struct pollfd peers[FAKE_PEERS]; /* the stop pipe, the listener, peers */
	unsigned held[FAKE_PEERS]; /* leases of each */
	nfds_t peer_count;
	uint8_t buffer[PACKET_BYTES_MAX + 1];
	/* Set by tests before the call. */
	char refuse[32]; /* a method */
	struct error refusal;
	char silent[32]; /* a method that gets no answer */
	bool hang_up; /* instead of refusing */
	char dies_at[32]; /* a method: all connections end instead of an answer, and the next gpuwmd is there */
	unsigned deaths; /* how often it still does */
	bool answers_first; /* and dies then */
	uint64_t revokes_dying; /* this lease, before it dies, and the next gpuwmd knows it; 0: none */
	char pauses_at[32]; /* a method that waits for `go` before it is answered */
	sem_t paused, go;
	unsigned lose; /* so many leases of the next resume get `loss` */
	struct error loss;
	bool loss_revoked; /* an operator revoked them */
	char spoils
		[16]; /* a key that the first event lacks, or that has no value of its type; of `lost`: a `lost` comes */
	bool no_events, no_fds; /* and not the descriptors that a reply speaks of */
	bool revokes; /* the lease of get_handles, before any thread of the client has taken it */
	bool hollow; /* resume says neither a lease nor why not */
	char empty[32]; /* a method whose result has nothing in it */
	bool forgetful; /* a commit is not found after a restart */
	bool ambiguous; /* get_handles needs a device */
	char device[DEVICE_BYTES_MAX + 1];
	/* What has arrived. */
	int fds[PACKET_FDS_MAX];
	uint64_t bytes[PACKET_FDS_MAX]; /* 0: of the index */
	size_t fd_count;
	char name[300], reason[TEXT_BYTES_MAX + 1];
	struct fake_version versions[FAKE_VERSIONS]; /* found by "m@tag" or the id */
	size_t version_count;
	char calls[96]; /* a file that gets a line for each release, as a driver's log does; "": none */
	uint64_t granted;
	unsigned announces;
	uint64_t announced_lease; /* of the last announce */
	char announced[ADDRESS_BYTES_MAX + 1],
		resumed_with[ADDRESS_BYTES_MAX + 1]; /* the last addresses; "": none */
	uint64_t released; /* the lease of the last release */
	const char *listed_source,
		*listed_tier; /* `list` tells one version, m@described, that has these; NULL: none */
	unsigned leases, grants, aborts, commits, hellos, releases, requests;
	unsigned resumes, resumed, batch; /* requests, leases in all, most leases of one */
	unsigned epoch;
	int64_t wait_ms, longest_ms; /* of the last request, and the longest */
	bool alias_error; /* of commits */
	unsigned segments_at_abort; /* that this process still held when it was told */
};

/* Starts one in a folder of its own. The caller owns it: fake_stop. Also removes the folders of tests that died. */
struct fake *fake_start(void);
/* Ends it, closes what it holds, and frees it. */
void fake_stop(struct fake *fake);

/* Ends every connection, and nobody listens; the version stays in the store. */
void fake_kill(struct fake *fake);
/* Starts the next gpuwmd, at the same place. */
void fake_run_again(struct fake *fake);

/* Tells all connections that this lease is revoked. From any thread: each message is one packet. */
void fake_revoke(struct fake *fake, uint64_t lease);

/* Counts the memfds of segments among this process's descriptors. */
unsigned fake_segments_held(void);

#endif
