/* Kicked leases: a client that lost its connection, or gpuwmd, does not get these again. */
#include "registry_internal.h"

#include <errno.h>
#include <stdlib.h>

struct revoked_id {
	uint64_t id;
	struct revoked_id *next; /* of its user */
	UT_hash_handle hh;
};

/* What one user lost of one version. */
struct revoked_user {
	uid_t uid;
	uint64_t all_to; /* all leases up to this number; 0: none but those by number */
	uint64_t id_count;
	struct revoked_id *ids, **ids_end; /* above all_to, in the order of kicks */
	struct revoked_user *next; /* of the version */
};

/* ---- looking ---- */

static struct revoked_user *find_user(const struct version *version, uid_t uid)
{
	struct revoked_user *user = version->revoked_users;

	while (user && user->uid != uid)
		user = user->next;
	return user;
}

bool version_lease_revoked(const struct version *version, uid_t uid, uint64_t id)
{
	const struct revoked_user *user = find_user(version, uid);
	struct revoked_id *found;

	if (user && id > 0 && id <= user->all_to)
		return true;
	HASH_FIND(hh, version->model->registry->revoked_ids, &id, sizeof(id), found);
	return found;
}

uint64_t registry_revoked_ids(const struct registry *registry, uid_t uid)
{
	struct version *version = NULL;
	uint64_t count = 0;

	while ((version = registry_next_version(registry, NULL, version))) {
		const struct revoked_user *user = find_user(version, uid);

		count += user ? user->id_count : 0;
	}
	return count;
}

/* ---- remembering ---- */

/* At the end of the list, so that a snapshot of a snapshot is the same. NULL: out of memory. */
static struct revoked_user *find_or_add_user(struct version *version, uid_t uid)
{
	struct revoked_user **link = &version->revoked_users, *user;

	for (user = *link; user; user = *link) {
		if (user->uid == uid)
			return user;
		link = &user->next;
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	user->ids_end = &user->ids;
	*link = user;
	return user;
}

int version_revoke_id(struct version *version, uid_t uid, uint64_t id, struct error *error)
{
	struct registry *registry = version->model->registry;
	struct revoked_user *user;
	struct revoked_id *revoked;

	if (version_lease_revoked(version, uid, id))
		return error_set(error, -EEXIST, NULL, "lease %llu was revoked before", (unsigned long long)id);
	user = find_or_add_user(version, uid);
	revoked = user ? calloc(1, sizeof(*revoked)) : NULL;
	if (!revoked)
		return out_of_memory(error);
	revoked->id = id;
	HASH_ADD(hh, registry->revoked_ids, id, sizeof(id), revoked);
	if (!revoked->hh.tbl) {
		free(revoked);
		return out_of_memory(error);
	}
	*user->ids_end = revoked;
	user->ids_end = &revoked->next;
	user->id_count++;
	return 0;
}

static void forget_ids(struct registry *registry, struct revoked_user *user, uint64_t up_to)
{
	struct revoked_id **link = &user->ids;

	while (*link) {
		struct revoked_id *revoked = *link;

		if (revoked->id > up_to) {
			link = &revoked->next;
			continue;
		}
		*link = revoked->next;
		user->id_count--;
		HASH_DEL(registry->revoked_ids, revoked);
		free(revoked);
	}
	user->ids_end = link;
}

int version_revoke_user(struct version *version, uid_t uid, uint64_t all_to, struct error *error)
{
	struct revoked_user *user = find_or_add_user(version, uid);

	if (!user)
		return out_of_memory(error);
	if (all_to <= user->all_to)
		return 0;
	user->all_to = all_to;
	forget_ids(version->model->registry, user, all_to);
	return 0;
}

/* ---- writing ---- */

void version_put_revoked(struct message_writer *w, const char *key, const struct version *version)
{
	message_begin_array(w, key);
	for (const struct revoked_user *user = version->revoked_users; user; user = user->next) {
		message_begin_map(w, NULL);
		message_put_u64(w, "uid", user->uid);
		message_put_u64(w, "all_to", user->all_to);
		message_begin_array(w, "leases");
		for (const struct revoked_id *revoked = user->ids; revoked; revoked = revoked->next)
			message_put_u64(w, NULL, revoked->id);
		message_end(w);
		message_end(w);
	}
	message_end(w);
}

/* ---- reading ---- */

static int take_ids(struct version *version, uid_t uid, const msgpack_object *ids, uint32_t count,
		    struct error *error)
{
	for (uint32_t i = 0; i < count; i++) {
		int r;

		if (ids[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
			return error_set(error, -EINVAL, NULL, "\"leases\" has what is no lease's number");
		r = version_revoke_id(version, uid, ids[i].via.u64, error);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_user(struct version *version, const msgpack_object *o, struct error *error)
{
	const msgpack_object *ids;
	uint64_t uid, all_to;
	struct fields f;
	uint32_t count;
	int r;

	fields_of(&f, o);
	uid = fields_u64(&f, "uid");
	all_to = fields_u64(&f, "all_to");
	ids = fields_array(&f, "leases", &count);
	if (!f.error.code && uid >= UINT32_MAX)
		error_set(&f.error, -EINVAL, NULL, "%llu is no uid", (unsigned long long)uid);
	if (!f.error.code && find_user(version, (uid_t)uid))
		error_set(&f.error, -EEXIST, NULL, "uid %llu is there twice", (unsigned long long)uid);
	if (f.error.code) {
		*error = f.error;
		return error->code;
	}
	r = version_revoke_user(version, (uid_t)uid, all_to, error);
	return r < 0 ? r : take_ids(version, (uid_t)uid, ids, count, error);
}

int version_take_revoked(struct version *version, struct fields *f, const char *key, struct error *error)
{
	const msgpack_object *users;
	uint32_t count = 0;

	if (!fields_have(f, key))
		return 0;
	users = fields_array(f, key, &count);
	for (uint32_t i = 0; i < count; i++) {
		struct error why;
		int r = take_user(version, &users[i], &why);

		if (r < 0)
			return error_set(error, r, why.detail, "%s[%u]: %s", key, i, why.message);
	}
	if (f->error.code)
		*error = f->error;
	return f->error.code;
}

/* ---- ending ---- */

void version_forget_revoked(struct version *version)
{
	struct revoked_user *user = version->revoked_users, *next;

	for (; user; user = next) {
		next = user->next;
		forget_ids(version->model->registry, user, UINT64_MAX);
		free(user);
	}
	version->revoked_users = NULL;
}
