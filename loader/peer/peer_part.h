/* One part of a version that is taken from a peer: its memory on this node, and its pieces, which come, are compared with
 * their sums, and are served to the next taker. */
#ifndef GPUWM_LOADER_PEER_PART_H
#define GPUWM_LOADER_PEER_PART_H

#include "peer_offer.h"
#include "../check.h"
#include "../work.h"

#include "../../peer/link.h"

#include <stdatomic.h>

/* ---- pieces (peer_pieces.c) ----
 *
 * Which pieces of a part are here, which are on their way, and which are missing. Any thread. */

struct peer_pieces;

/* Pieces that lie side by side in one segment. */
struct peer_run {
	uint32_t segment;
	uint64_t first; /* the first piece's position in the segment */
	uint32_t count;
};

/* Makes a table in which all pieces of the part are missing. The caller owns the part, which must outlive the table. Returns NULL if there
 * is no memory. */
struct peer_pieces *peer_pieces_new(const struct peer_offer_part *part);
struct peer_pieces *peer_pieces_free(struct peer_pieces *pieces);

/* Claims the first missing pieces, `most` at most: they are on their way then. Returns false if none is missing. */
bool peer_pieces_claim(struct peer_pieces *pieces, uint32_t most, struct peer_run *ret);
/* Notes that claimed pieces are here and right, or that they are missing again. */
void peer_pieces_here(struct peer_pieces *pieces, const struct peer_run *run);
void peer_pieces_missing(struct peer_pieces *pieces, const struct peer_run *run);

/* Returns whether all of the run's pieces are here. */
bool peer_pieces_are_here(struct peer_pieces *pieces, const struct peer_run *run);
bool peer_pieces_complete(struct peer_pieces *pieces);
/* Returns the bytes of all pieces that are here. */
uint64_t peer_pieces_bytes(struct peer_pieces *pieces);

/* Returns the bytes of a run, and where they begin in the segment. */
uint64_t peer_run_bytes(const struct peer_offer_part *part, const struct peer_run *run);
static inline uint64_t peer_run_offset(const struct peer_run *run)
{
	return run->first * SUMS_PIECE_BYTES;
}

/* ---- the part (peer_part.c) ----
 *
 * One part of a version that is taken from a peer: its memory on this node, and the pieces that have arrived. It is an exact copy: the
 * same index, and segments of the same sizes with the same bytes. */

/* When what of the last take happened, by clock_steady_seconds; 0: it did not. After the last message the loader only compares sums. */
struct take_times {
	const char *wire; /* the transport */
	double opened; /* the wire on this side */
	double agreed; /* the peer's wire was open, and it said so */
	double met; /* both had greeted each other */
	double first, last; /* messages came */
	uint64_t bytes; /* of all messages but the first */
};

struct taken_part {
	const struct peer_offer_part *offer;
	const char *id; /* of the device */
	uint32_t rank, world;
	struct memory_device device;
	struct version_id publish; /* gpuwmd's id of the publish */
	int index; /* a sealed memfd; -1: none yet */
	struct memory_segment *segments; /* mapped for writing until they are sealed */
	struct peer_pieces *pieces;
	struct take_times times; /* the thread that takes writes them */
	const struct sum *fingerprint; /* of the version, for gpuwmd's description */
	/* Of a replica: the part whose bytes it copies. NULL: it takes its bytes from a peer. */
	const struct taken_part *origin;
};

/* Begins the part's publish with gpuwmd, creates its memory and maps it. The caller has set part->offer, id, rank and world. `join` is the
 * publish of the version's first part; NULL: this part is the first one. Returns 0. Fails with -ENOTSUP if the device can't have segments
 * of these sizes, and as publish_begin and the memory's create. */
int peer_part_begin(struct taken_part *part, const struct job_load_params *params, struct work *work,
		    const struct version_id *join, struct error *error);
/* Creates the memory on part->device, which is open, and maps it: the step of peer_part_begin that needs no gpuwmd. Calls `look` again
 * and again meanwhile. Returns 0. Fails as the memory's create does, and with the code that look returned. */
int peer_part_make(struct taken_part *part, memory_progress_fn *look, void *user_data, struct error *error);
/* Unmaps and seals the memory. All pieces are here. */
int peer_part_seal(struct taken_part *part, struct error *error);
/* peer_part_check checks a sealed part as loader/check.h does with a publisher's part. peer_part_hand_in hands it to gpuwmd. Return 0. */
int peer_part_check(const struct taken_part *part, struct work *work, struct check_result *ret,
		    struct error *error);
int peer_part_hand_in(const struct taken_part *part, struct work *work, const struct check_result *result,
		      struct error *error);
/* Frees everything. No thread may write into the memory any more. A zeroed part is fine. */
void peer_part_end(struct taken_part *part);

/* Returns the address of a run in the part's memory. */
void *peer_part_address(const struct taken_part *part, const struct peer_run *run);

/* ---- comparing (peer_verify.c) ----
 *
 * Threads that compare the pieces which came with their sums. The right ones are here then, the others are missing again. */

/* Some pieces that came. */
struct peer_arrival {
	struct peer_run run;
	/* Where they are: a buffer, from which the right ones are written to the part's memory. NULL: there already. */
	const void *buffer;
	atomic_bool *busy; /* set to false when the buffer is free again; NULL: nobody asks */
};

struct peer_verify;

/* Begins `threads` threads, or fewer if there can't be as many, but at least one. With in_place, no arrival has a buffer: if the device has a
 * kernel for it, one thread has it hash all that has arrived. The part outlives them. The caller is inside memory_enter, until
 * peer_verify_end. Returns 0 and sets *ret. Fails with -ENOMEM, -EAGAIN and -EIO. */
int peer_verify_begin(struct taken_part *part, unsigned threads, bool in_place, struct peer_verify **ret,
		      struct error *error);
/* Passes pieces on, which were claimed. Fails with -ENOMEM. */
int peer_verify_add(struct peer_verify *verify, const struct peer_arrival *arrival, struct error *error);
/* Returns how many pieces are waiting or being compared. */
uint64_t peer_verify_pending(struct peer_verify *verify);
/* Returns how many pieces were wrong since the last call. */
uint64_t peer_verify_wrong(struct peer_verify *verify);
/* Returns 0, or the code of the first error of a thread: the memory could not be read or written. */
int peer_verify_failed(struct peer_verify *verify, struct error *error);
/* Waits for what is pending, and ends the threads. verify may be NULL. Returns NULL. */
struct peer_verify *peer_verify_end(struct peer_verify *verify);

/* ---- serving (peer_serve.c) ----
 *
 * Serving the next taker of a chain: a loader that takes a version listens, and serves the pieces that it has already. */

/* How long a loader that has everything waits for the takers that it serves. They are a few pieces behind. A taker that is further
 * behind goes on at another node. */
#define PEER_LINGER_MS 10000

struct peer_serve;

/* Listens on a free port of the address that `listen` has, for nodes whose certificates have one of the names (link_peer_matches). Settings and parts
 * outlive the server. Parts that have no memory yet are not served. Returns 0 and sets *ret. Fails with -ENOTSUP if [peers] has no `listen`, as
 * port_open, and with -ENOMEM and -EAGAIN. */
int peer_serve_begin(struct peer_keys *keys, const struct peer_settings *settings,
		     const struct peer_offer *offer, const struct taken_part *parts, struct peer_serve **ret,
		     struct error *error);
/* Returns its port. */
unsigned peer_serve_port(const struct peer_serve *serve);
/* Returns how many connections there are now. */
unsigned peer_serve_count(struct peer_serve *serve);
/* Ends all connections. Afterwards nobody reads the parts' memory. serve may be NULL. Returns NULL. */
struct peer_serve *peer_serve_end(struct peer_serve *serve);

#endif
