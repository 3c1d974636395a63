/* Nodes that may have a version: where they are, and connections to them. */
#ifndef GPUWM_LOADER_PEER_DIAL_H
#define GPUWM_LOADER_PEER_DIAL_H

#include "../../peer/link.h"
#include "../../proto/wire/reference.h"
#include "../../service/peers.h"

/* ---- places (peer_place.c) ----
 *
 * The nodes that a load may take from. */

/* As many as gpuwmctl ls --peers asks: a service may have an address for each node of a site. */
#define PEER_PLACES_MAX 256

struct peer_place {
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;
	char name[PEER_HOST_BYTES_MAX + 1]; /* that its certificate has; "": `host` */
	char ref[REF_BYTES_MAX + 1]; /* the version's name there; "": that of the list */
	bool offered; /* it has said that it has the version */
	struct error
		why; /* why it gave nothing when it was last asked; code 0: it was not asked, or it gave something */
};

struct peer_places {
	struct peer_place items[PEER_PLACES_MAX];
	size_t count;
	size_t more; /* how many are left out */
	char unknown[TEXT_BYTES_MAX + 1]; /* which name of `dns` has no address, and why; "": all have */
	char ref[REF_BYTES_MAX + 1]; /* the version's name on these nodes */
};

/* Returns the version's name at the place, for requests. */
const char *peer_place_ref(const struct peer_places *places, const struct peer_place *place);

/* Returns the place as a target, which points into it. */
struct link_target peer_place_target(const struct peer_place *place);

/* Finds the nodes that a source names: one, or all peers of the settings. With `others`, finds all of the settings in any case, behind
 * the one that is named. Returns 0 and sets *ret, which has one at least. Fails with
 * -EINVAL if the source is malformed, -ENOENT if no peer is configured or
 * found, and -ENOMEM. */
int peer_places_find(const char *source, const struct peer_settings *settings, bool others,
		     struct peer_places *ret, struct error *error);

/* ---- reasons (peer_reasons.c) ----
 *
 * Why the nodes of a list gave nothing. */

/* Returns whether a node with this reason does not have the version, or has no way to send it here, and will hardly do so later. */
bool peer_place_lacks(const struct peer_place *place);
/* Returns whether the reason passes by itself: the node serves as many as it can, or the connection gave way to others. */
bool peer_place_is_busy(const struct peer_place *place);
/* Sets *error to why none of `count` places gave anything: each reason, and at how many places, as far as the message has room. Of one
 * place it is the place's own error. Returns its code: that of the first place that does not just lack the version. */
int peer_places_explain(const struct peer_place *places, size_t count, const char *ref, struct error *error);

/* ---- dialling (peer_dial.c) ----
 *
 * Connects to nodes in the order of a list, and does not wait for one that is silent: after a moment the next one is tried beside it. So
 * nodes that are switched off cost a load a moment each, and those that answer are not all bothered at once. */

/* A connection takes four round trips, so whoever has not answered by then is slow, far away or off. */
#define PEER_DIAL_DELAY_MS 250
/* Nodes that are tried at the same time. Each takes a thread. */
#define PEER_DIAL_MOST 16

struct peer_dial;

struct peer_dialled {
	size_t place; /* its position in the list */
	struct link *link; /* the caller's; NULL: it failed, and `error` says why */
	struct error error;
};

/* Copies the list. With only_busy it leaves out those for which peer_place_is_busy returns false. Returns NULL if there is no memory. */
struct peer_dial *peer_dial_new(struct peer_keys *keys, const struct peer_places *places, bool only_busy);
/* Waits until a node has answered or failed. Calls `look` every 20 ms meanwhile. Returns 1 and sets *ret; 0 if every node was returned
 * before; or what look returned, if that was not 0. */
int peer_dial_next(struct peer_dial *dial, int (*look)(void *user_data), void *user_data,
		   struct peer_dialled *ret);
/* Waits until every attempt has ended, and closes the connections that nobody took. An attempt takes the resolver's time and
 * LINK_HANDSHAKE_MS at most. NULL is fine. */
void peer_dial_free(struct peer_dial *dial);

/* ---- asking (peer_ask.c) ----
 *
 * Asks nodes for a version until one has it. */

struct work;

struct peer_asking {
	struct peer_keys *keys;
	struct peer_places *places; /* gets what was learned of each */
	struct work *work;
	bool persists; /* nodes that do not have the version, or are not there, are asked again too */
	/* Asks a node, after the hello. Returns 0 if the node has the version; it may set place->ref. */
	int (*ask)(void *user_data, struct link *link, struct peer_place *place, struct error *error);
	void *user_data;
	struct peer_dial *dial; /* NULL: nobody was asked yet */
};

/* Asks one node after another, in the order in which they answer. Asks those that are busy again, for PEER_PATIENCE_MS; with `persists`
 * it asks all again. Returns 0. Fails with peer_places_explain, with what ended the job, and with -ENOMEM. The caller calls peer_ask_end in
 * any case. */
int peer_ask(struct peer_asking *asking, struct error *error);
/* Waits for attempts that still go on (peer_dial_free). */
void peer_ask_end(struct peer_asking *asking);

#endif
