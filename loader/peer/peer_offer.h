/* A peer's description of a version: an index for each part, and the sums of all pieces. All of it comes from another machine:
 * peer_offer_take checks it as far as that is possible without the pieces. */
#ifndef GPUWM_LOADER_PEER_OFFER_H
#define GPUWM_LOADER_PEER_OFFER_H

#include "../../peer/link.h"
#include "../../peer/sums.h"
#include "../../proto/index/index.h"
#include "../../proto/names.h"
#include "../../proto/wire/messages_loader.h"

struct peer_offer_part {
	void *index; /* owned */
	uint64_t index_bytes;
	struct index_view view; /* points into index */
	/* The segments' sizes and the sums of their pieces stand one behind the other. */
	uint32_t segment_count;
	uint64_t segment_bytes[PART_SEGMENTS_MAX];
	uint64_t first[PART_SEGMENTS_MAX +
		       1]; /* the number of each segment's first piece; then the number of all pieces */
	struct sum *sums; /* owned; one for each piece */
	uint64_t bytes; /* of all segments */
};

struct peer_offer {
	struct version_id version; /* as that peer calls it */
	char ref[2 * NAME_BYTES_MAX + 2]; /* model@tag there */
	uint32_t world;
	struct peer_offer_part *parts; /* owned; of each rank one */
	uint64_t bytes;
	struct sum fingerprint;
};

struct peer_wish {
	const char *ref; /* model@tag at the peer, or an id */
	const struct job_load_params *params; /* of the load, which names the devices; NULL: `bytes` is known */
	uint64_t bytes; /* of all parts of the version; any other number is refused */
};

/* Returns 0, or a code that ends the work. */
typedef int peer_look_fn(void *user_data);

/* Asks the peer for a version by a reference, after the hello, and checks the answers: the limits, that the version can fit on the
 * load's devices (peer_offer_fits), each index completely, its rank and world, and that it has the segments that the peer named. Takes
 * memory for an index or for sums only once it knows that the version can fit. Calls `look` again and again meanwhile. Returns 0 and
 * sets *ret, for peer_offer_clear.
 *
 * Fails with
 *   -ENOENT   The peer has no such version.
 *   -EBADMSG  The peer's answers are wrong, or contradict each other. The message names the peer.
 *   -ENOTSUP  The peer's pieces have another size.
 *   -ESTALE   The version has another size than wish->bytes.
 *   -ENOMEM
 * and as peer_offer_fits and peer_call do, and with the code that look returned. */
int peer_offer_take(struct link *link, const struct peer_wish *wish, peer_look_fn *look, void *user_data,
		    struct peer_offer *ret, struct error *error);
/* Frees everything. A zeroed offer is fine. */
void peer_offer_clear(struct peer_offer *offer);

/* Compares the sizes of the offer's parts with all the memory of the devices where they are to lie, whoever uses it now. Needs
 * neither index nor sums. `peer` is for messages. Returns 0.
 *
 * Fails with
 *   -EINVAL  The version has several ranks, and there are neither as many devices nor one.
 *   -ENOSPC  A device is smaller than what is to lie on it.
 *   and as device_total */
int peer_offer_fits(const struct job_load_params *params, const struct peer_offer *offer, const char *peer,
		    struct error *error);

/* The version at another peer. */
struct peer_found {
	struct version_id version; /* as that peer calls it */
	char devices[PARTS_PER_VERSION_MAX][DEVICE_BYTES_MAX + 1]; /* where each part lies there */
};

/* Asks another peer for the same version, and compares the sizes of its parts with the offer. It asks for no sums, since each piece is
 * compared with the sums of the offer. Returns 0 and sets *ret. Fails with -ESTALE if it is another
 * version, and as peer_call does. */
int peer_offer_find(struct link *link, const struct peer_offer *offer, const char *ref, struct peer_found *ret,
		    struct error *error);

/* Compares the offer's fingerprint with `expected`, which has 64 hex digits, or is NULL if every version is fine. Returns 0. Fails with -EBADMSG, naming
 * both, and with -EINVAL if the text is no fingerprint. */
int peer_offer_expect(const struct peer_offer *offer, const char *expected, const char *peer,
		      struct error *error);

#endif
