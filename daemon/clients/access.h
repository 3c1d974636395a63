/* The roles of a session, and its rights to a model. They come from the rules of the configuration, from the owner of the model,
 * and from the user who made a version. Users and groups are numbers here; config/rules.h has looked their names up.
 *
 * A model that a session may not attach to does not exist for the session: errors say the same as for a model that is not
 * there. */
#ifndef GPUWM_DAEMON_ACCESS_H
#define GPUWM_DAEMON_ACCESS_H

#include "../../proto/wire/reference.h"
#include "../ledger/event.h"
#include "../ledger/registry.h"
#include "../../proto/socket_place.h"
#include "../../base/limits.h"

struct clients;
struct session;
struct claim;
struct region;

/* Of each session: the places where the rules of this generation name its peer. */
struct access {
	uint64_t generation; /* 0: not looked up yet */
	struct rules_named named;
};

/* Returns the roles of a session whose peer is identified. Looks them up at the first call and after each reload. */
unsigned access_roles(struct session *session);

/* Returns all groups of the session's peer, which the caller frees. NULL: out of memory. */
gid_t *access_groups(const struct session *session, size_t *ret_count);

/* Returns the section of the configuration that counts for the model. NULL: no section matches. */
const struct rule *access_rule(const struct clients *clients, struct model *model);

/* ---- what exists for the session ---- */

bool access_sees(struct session *session, struct model *model);
bool access_sees_claim(struct session *session, struct claim *claim);
/* As registry_find and registry_model, for this session. */
int access_find(struct session *session, const struct ref *ref, struct version **ret_version,
		uint64_t *ret_generation, struct error *error);
/* The same, but the session also finds versions that its user published into models that do not exist for the session. */
int access_find_own(struct session *session, const struct ref *ref, struct version **ret_version,
		    struct error *error);
int access_find_model(struct session *session, const char *name, struct model **ret_model, struct error *error);
/* Skips the events after number `after` that the session may not see. Returns the number to go on from. */
uint64_t access_skip_events(struct session *session, uint64_t after);

/* ---- what the session may do: each returns 0, or fails with -EACCES; the message says who may ---- */

/* Take leases. An observer sees a model without this right. */
int access_attach(struct session *session, struct model *model, struct error *error);
/* Publish into the model. There need be no model of this name yet. */
int access_publish(struct session *session, const char *model, struct error *error);
/* Move and remove aliases. */
int access_swap(struct session *session, struct model *model, struct error *error);
/* The same for the owner of a version that becomes ready, who may have disconnected. It applies the present rules to the groups
 * that the owner had when the publish began. Sorts the groups. */
int access_swap_late(const struct clients *clients, const struct version *version, gid_t *groups, size_t count,
		     struct error *error);
/* Retire a version, remove it, or move it to another tier. */
int access_retire(struct session *session, const struct version *version, struct error *error);
/* Pin, unpin, verify, and retire with force. `what` names the action in the error. */
int access_operate(struct session *session, struct model *model, const char *what, struct error *error);

/* Whether the version is one of those that a session accepts. Fails with -EACCES; the message says whose the version is, and whose was
 * asked for. */
int owner_check(const struct owner_wish *wish, const struct version *version, struct error *error);

/* ---- regions: access_region.c ----
 * The sections [model.N] match the name of a region as they match that of a model. A region without a name has the name "~" with its
 * user's number there.
 * A region belongs to the user who made it. If no section matches, it exists for this user and operators alone. */

/* Make a region. name NULL: without a name. Returns 0, or -EACCES as above. */
int access_make_region(struct session *session, const char *name, struct error *error);
/* Returns `share` of the section for this name, in percent; 0: there is none. name NULL: without a name. */
unsigned access_region_share(const struct session *session, const char *name);
/* The session finds it, lists it, and gets its events. */
bool access_sees_region(struct session *session, struct region *region);
/* Open it for reading. */
bool access_reads_region(struct session *session, struct region *region);
/* Open it for writing. Returns 0, or -EACCES as above. */
int access_write_region(struct session *session, struct region *region, struct error *error);
/* Whether it is the session's user's, or, for an operator, operators'. Only they own a region that outlives processes. */
bool access_is_regions_user(const struct session *session, const struct region *region);
/* End it. Returns 0, or -EACCES as above. */
int access_remove_region(struct session *session, const struct region *region, struct error *error);

/* ---- remedies: remedy.c ----
 * How a user becomes an operator, an observer or a publisher, for errors that refuse a role. */

#define REMEDY_BYTES (TEXT_BYTES_MAX + 1)

/* The operators' socket, as gpuwmd found it when it opened the socket. */
struct operators_socket {
	char path[PATH_BYTES_MAX + 1]; /* "": not open yet */
	char group[GROUP_NAME_BYTES]; /* its members may connect; "": only the socket's owner may */
};

/* Sets *ret from the socket's file at `path`. */
void operators_socket_look(struct operators_socket *ret, const char *path);

/* Each writes a sentence into `text`, which names the group to join if there is one, and returns `text`. */
const char *remedy_operator(const struct clients *clients, char text[REMEDY_BYTES]);
const char *remedy_observer(const struct clients *clients, char text[REMEDY_BYTES]);
const char *remedy_publisher(const struct clients *clients, char text[REMEDY_BYTES]);

#endif
