/* Messages between nodes: those of MessagePack-RPC that gpuwmd's socket has (proto/wire/message.h), over TLS, each behind its
 * length in 4 bytes, little-endian. docs/peers.md says what each means; messages.c has the forms.
 *
 * The side that connects, the taker, asks; the side that listens, the server, answers each request in turn. Beside answers
 * there are raw bytes, where the text below says so: they follow the answer at once. */
#ifndef GPUWM_PEER_MESSAGES_H
#define GPUWM_PEER_MESSAGES_H

#include "../proto/index/digest.h"
#include "../proto/wire/message_form.h"
#include "../proto/wire/reference.h"

#define PEER_PROTOCOL_MIN 1
#define PEER_PROTOCOL_MAX 1

/* The first message of a connection: a hello has less than 1 KiB. */
#define PEER_HELLO_BYTES_MAX 4096
/* The largest of all others: an offer of 64 parts, with names and digests, has some 30 KiB; a page of a list 512 KiB. */
#define PEER_MESSAGE_BYTES_MAX MIB(1)
/* Versions in one page of a list: with the longest names, 16 aliases and devices each has less than 6 KiB. */
#define PEER_LIST_PAGE 128
#define PEER_ALIASES_MAX 16 /* of a version, in a list; more are left out */

#define PEER_SHA256_BYTES 32
#define PEER_SHA256_TEXT 64 /* in hexadecimal digits, on the wire */
/* The digits of a transport's address (wire.h). */
#define PEER_WORKER_TEXT (2 * KIB(8))
#define WIRE_NAME_BYTES_MAX 15 /* of a transport's name */
#define WIRES_MAX 16 /* transports of a node */

/* ---- hello: the first request ------------------------------------------ */

extern const struct message_form form_peer_hello;
struct peer_hello_params {
	uint64_t protocol_min, protocol_max;
	const char *node; /* the machine's name, for people */
	const char *program; /* "gpuwm-loader 0.1.0" */
};
struct peer_hello_result {
	uint64_t protocol;
	const char *node, *program;
	const struct version_id
		*ledger; /* of its gpuwmd; NULL: not known. Who finds its own here asks itself */
	const char *
		machine; /* the kernel's boot_id: who finds its own here is on the same machine; NULL: not known */
	/* The names of its transports (wire.h). NULL: it has none. */
	struct {
		const char *const *items;
		uint32_t count;
	} wires;
};

/* ---- list: the versions, one page a request ------------------------------ */

extern const struct message_form form_peer_list;
struct peer_list_params {
	uint64_t from; /* the position of the page's first version */
};
/* Beside it the array `versions` (FIELD_LOOP) of struct peer_version. */
struct peer_list_result {
	uint64_t total; /* versions on all pages */
};
extern const struct record peer_version_record;
struct peer_version {
	const struct version_id *version;
	const char *model, *tag;
	struct {
		const char *const *items;
		uint32_t count;
	} aliases;
	uint64_t world, bytes;
	const char *tier; /* "device", "host" or "files". Only what lies in memory can be taken */
	/* Of rank 0's index; NULL: not known. It is gpuwm's own digest, which is no signature. */
	const struct digest *content;
	const char *fingerprint; /* as in peer_find_result */
	const struct version_id *companion_of; /* the version that it belongs to; NULL: none */
};

/* ---- find: one version, and its parts ------------------------------------ */

extern const struct message_form form_peer_find;
struct peer_find_params {
	const char *ref; /* model, model@tag, model@alias, or a version's id: as gpuwmctl takes it */
};
struct peer_part {
	uint64_t rank;
	const char *device, *kind; /* where it lies now: "host" or "cuda" */
	uint64_t bytes, segments, index_bytes;
};
struct peer_find_result {
	const struct version_id *version;
	const char *model, *tag;
	uint64_t world;
	struct {
		const struct peer_part *items;
		uint32_t count;
	} parts; /* one for each rank, in their order */
	uint64_t piece_bytes; /* of peer/sums.h: both sides must have the same */
	/* The version's sum (sums.h), which load --expect compares. NULL: the server has not computed all sums yet. */
	const char *fingerprint;
};

/* ---- index and sums ------------------------------------------------------ */

/* The index of one part. The answer is followed by `bytes` raw bytes. */
extern const struct message_form form_peer_index;
struct peer_index_params {
	const struct version_id *version;
	uint64_t rank;
};
struct peer_index_result {
	uint64_t bytes;
};

/* The sums of one segment's pieces, from piece `from` on. The answer is followed by pieces * PEER_SHA256_BYTES raw bytes. The
 * server sends each sum when it has computed it: the first time, that goes on for as long as reading the segment takes. */
extern const struct message_form form_peer_sums;
struct peer_sums_params {
	const struct version_id *version;
	uint64_t rank, segment, from;
};
struct peer_sums_result {
	uint64_t pieces;
};

/* ---- take: the bytes ------------------------------------------------------ */

/* Begins to take one part. After an answer without `redirect` the server has a lease on the version, and the connection is for
 * this part's bytes alone: the taker sends `want`, the server sends the pieces over the wire, and `gone` if it can't go on. */
extern const struct message_form form_peer_take;
struct peer_take_params {
	const struct version_id *version;
	uint64_t rank;
	const char *wire; /* the name of the transport, which both have */
	const char *worker; /* the taker's address in this transport, in hexadecimal digits */
	uint64_t nonce; /* random, of WIRE_NONCE_BITS: in the tag of every message of this take */
	/* Where the taker serves what it has already: its port. NULL: it does not. */
	const uint64_t *serves;
	/* The server must not redirect the taker, which was redirected to it, or asks again. */
	bool stay;
	/* How many bytes a second the taker gets where this server redirected it, which is slow to it. The server sends itself if it may have
	 * more, redirects the taker to a faster one, or answers -EALREADY. NULL: the taker comes for the first time, or again after an
	 * error. */
	const uint64_t *pace;
};
/* The node to ask instead: another taker, which has the first pieces already. */
struct peer_redirect {
	const char *host; /* an address in digits */
	uint64_t port;
	const char *name; /* what its certificate has; "" with a secret */
};
struct peer_take_result {
	const struct peer_redirect *redirect; /* NULL: this server sends */
	const char *worker; /* of this server, as above; NULL with redirect */
};

/* The first request after the hello on each further connection of a take by TLS (wire_tls.c). After the answer the server sends chunks of messages over
 * it: the message's tag, the chunk's offset in it and its bytes, 8 bytes each in little-endian, and the chunk. */
extern const struct message_form form_peer_lane;
struct peer_lane_params {
	const char *secret; /* what the answer to `take` has as `worker` */
	bool clear; /* the taker allows that what follows is not encrypted */
};
struct peer_lane_result {
	bool clear; /* the server does, too: nothing is, from the next byte on */
};

/* From the taker: pieces that the server is to send next, at most SENDER_WANT_PIECES_MAX that lie side by side (sender.h). They come as
 * one message on the wire, whose tag has the number of this want (wire_tag), from 0. */
extern const struct message_form form_peer_want;
struct peer_want_params {
	uint64_t segment, first, count;
};

/* From the taker: all pieces are here and right, or an error says what was wrong. It ends the take, and has no answer. */
extern const struct message_form form_peer_done;
struct peer_done_params {
	uint64_t bytes;
	const struct error *error;
};

/* From the server, instead of pieces that the taker wants: the version is gone, a lease was revoked, or the server stops. */
extern const struct message_form form_peer_gone;
struct peer_gone_params {
	const struct error *error;
};

/* All of them, for tests. */
extern const struct message_form *const peer_forms[];
extern const size_t peer_form_count;

#endif
