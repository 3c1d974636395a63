/* Metrics of users: what they are charged with, and how gpuwmd's time is shared. */

#include "limits.h"
#include "snapshot.h"
#include "prom.h"

#include <inttypes.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define UID_BYTES 24

static const char *const uid_labels[] = {"uid", NULL, NULL};

/* The quotas, as `clients` names them. A test compares them with daemon/base/quota.h. */
#define QUOTA_FAMILY(key, help)                                                                                \
	{                                                                                                      \
		"gpuwm_user_" key, PROM_GAUGE, help, false                                                     \
	}
static const struct fold_family quota_families[] = {
	QUOTA_FAMILY("sessions", "Connections of the user."),
	QUOTA_FAMILY("leases", "Leases of the user."),
	QUOTA_FAMILY("requests", "Requests of the user that wait."),
	QUOTA_FAMILY("publishes", "Open publishes of the user, and parts of it that are checked."),
	QUOTA_FAMILY("claims", "Versions that the user has claimed to build."),
	QUOTA_FAMILY("versions", "Versions that the user has published."),
	QUOTA_FAMILY("nameless", "Versions without a name that the user has published."),
	QUOTA_FAMILY("regions", "Regions of the user."),
	QUOTA_FAMILY("copies", "Copies for programs of the user that attach by CUDA IPC."),
	QUOTA_FAMILY("bytes", "Memory of the user's versions, regions and copies that is charged to the user."),
	QUOTA_FAMILY("fds", "Descriptors that gpuwmd stores for the user."),
	QUOTA_FAMILY("index_bytes", "Indices of the user's versions."),
};
#define QUOTA_PREFIX (sizeof("gpuwm_user_") - 1)

static const struct fold_family fair_families[] = {
	{"gpuwm_user_requests_total", PROM_COUNTER, "Requests of the user that came.", false},
	{"gpuwm_user_refused_total", PROM_COUNTER, "Requests of the user that were answered with an error.",
	 false},
	{"gpuwm_user_busy_seconds_total", PROM_COUNTER, "The time of gpuwmd's loop that the user had.", true},
	{"gpuwm_user_turns_total", PROM_COUNTER, "In how many turns the user had that time.", false},
	{"gpuwm_user_waited_total", PROM_COUNTER,
	 "How often the user's next request waited until other users had had their turn.", false},
};
static const char *const fair_keys[] = {"requests", "refused", "busy_us", "turns", "waited"};

/* The key of row i, or NULL at the end. */
typedef const char *key_fn(size_t i);

static const char *quota_key(size_t i)
{
	return i < COUNT(quota_families) ? quota_families[i].name + QUOTA_PREFIX : NULL;
}

static const char *fair_key(size_t i)
{
	return i < COUNT(fair_keys) ? fair_keys[i] : NULL;
}

static void table_write(FILE *out, const json_t *users, key_fn *key, const struct fold_family *families,
			size_t count)
{
	char(*uids)[UID_BYTES] = calloc(json_array_size(users) + 1, UID_BYTES);
	struct fold fold = {0};
	const json_t *user;
	size_t i;

	json_array_foreach(uids ? users : NULL, i, user) {
		struct fold_row row = {.labels = {FOLD_OTHER}};

		if (member_has(user, "uid")) {
			snprintf(uids[i], UID_BYTES, "%" PRIu64, member_number(user, "uid"));
			row.labels[0] = uids[i];
		}
		for (size_t k = 0; key(k); k++)
			row.values[k] = member_number(user, key(k));
		fold_add(&fold, &row);
	}
	fold_end(&fold, USER_ROWS_MAX, 1);
	fold_write(out, &fold, uid_labels, families, count);
	fold_clear(&fold);
	free(uids);
}

static void limits_write(FILE *out, const json_t *limits)
{
	char key[64];

	if (!limits)
		return;
	prom_family(out, "gpuwm_user_limit", PROM_GAUGE,
		    "What each user may have; a quota without a limit is missing.");
	for (size_t i = 0; quota_key(i); i++) {
		snprintf(key, sizeof(key), "%s_per_uid", quota_key(i));
		if (member_has(limits, key))
			prom_u64(out, "gpuwm_user_limit", member_number(limits, key), "quota", quota_key(i),
				 PROM_END);
	}
}

void metrics_users(FILE *out, const struct snapshot *snapshot)
{
	limits_write(out, json_object_get(snapshot->answers[ASK_STATUS], "limits"));
	table_write(out, json_object_get(snapshot->answers[ASK_CLIENTS], "users"), quota_key, quota_families,
		    COUNT(quota_families));
	table_write(out, json_object_get(snapshot->answers[ASK_METRICS], "users"), fair_key, fair_families,
		    COUNT(fair_families));
}
