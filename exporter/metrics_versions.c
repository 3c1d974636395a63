/* Metrics of versions, of those who own them, and of aliases. */

#include "../proto/memory_kind.h"
#include "limits.h"
#include "snapshot.h"
#include "prom.h"

#include <inttypes.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* A uid as a label. */
struct uid_text {
	char text[24];
};

static const char *uid_text(const json_t *object, const char *key, struct uid_text *ret)
{
	snprintf(ret->text, sizeof(ret->text), "%" PRIu64, member_number(object, key));
	return ret->text;
}

/* ---- by version and device ----------------------------------------------- */

enum { HELD, SHARED, GIVEN_UP };

static const struct fold_family version_families[] = {
	[HELD] = {"gpuwm_version_held_bytes", PROM_GAUGE,
		  "Memory of the version on the device, shared memory included.", false},
	[SHARED] = {"gpuwm_version_shared_bytes", PROM_GAUGE,
		    "Those of gpuwm_version_held_bytes that other versions hold too.", false},
	[GIVEN_UP] = {"gpuwm_version_given_up_bytes", PROM_GAUGE,
		      "Memory of the freed version that holders of revoked leases may still map.", false},
};

static void parts_add(struct fold *fold, const json_t *version)
{
	const json_t *part;
	size_t i;

	json_array_foreach(json_object_get(version, "parts"), i, part) {
		const char *device = part_device(version, part);

		if (device)
			fold_add(fold, &(struct fold_row){
					       .labels = {member_text(version, "model"),
							  member_text(version, "tag"), device},
					       .values = {[HELD] = member_number(part, "bytes"),
							  [SHARED] = member_number(part, "shared_bytes")}});
	}
	if (member_has(version, "host_copy_bytes"))
		fold_add(fold,
			 &(struct fold_row){.labels = {member_text(version, "model"),
						       member_text(version, "tag"), DEVICE_HOST},
					    .values = {[HELD] = member_number(version, "host_copy_bytes")}});
}

/* Several holders may map the same part, which is there once. Returns whether it is the first of them. */
static bool is_first_holder(json_t *parts, const json_t *lease)
{
	char part[256];

	snprintf(part, sizeof(part), "%s %s %" PRIu64, member_text(lease, "version"),
		 member_text(lease, "device"), member_number(lease, "rank"));
	return !json_object_get(parts, part) && json_object_set_new(parts, part, json_true()) == 0;
}

static void given_up_add(struct fold *fold, const json_t *clients)
{
	json_t *parts = json_object();
	const json_t *client, *lease;
	size_t i, k;

	json_array_foreach(clients, i, client) {
		json_array_foreach(json_object_get(client, "leases"), k, lease) {
			if (member_true(lease, "freed") && is_first_holder(parts, lease))
				fold_add(fold, &(struct fold_row){
						       .labels = {member_text(lease, "model"),
								  member_text(lease, "tag"),
								  member_text(lease, "device")},
						       .values = {[GIVEN_UP] = member_number(lease, "bytes")}});
		}
	}
	json_decref(parts);
}

static void by_device_write(FILE *out, const json_t *versions, const json_t *clients)
{
	static const char *const labels[] = {"model", "tag", "device"};
	struct fold fold = {0};
	const json_t *version;
	size_t i;

	json_array_foreach(versions, i, version) {
		if (!member_is(version, "state", "failed"))
			parts_add(&fold, version);
	}
	given_up_add(&fold, clients);
	fold_end(&fold, VERSION_ROWS_MAX, 2);
	fold_write(out, &fold, labels, version_families, COUNT(version_families));
	fold_clear(&fold);
}

/* ---- by version ---------------------------------------------------------- */

enum { VERSIONS, LEASES, PINS, TAINTED };

static const struct fold_family state_families[] = {
	[VERSIONS] = {"gpuwm_version_state", PROM_GAUGE, "1 for the state that the version is in.", false},
	[LEASES] = {"gpuwm_version_leases", PROM_GAUGE, "Leases on the version.", false},
	[PINS] = {"gpuwm_version_pins", PROM_GAUGE, "Pins of the version.", false},
	[TAINTED] = {"gpuwm_version_tainted", PROM_GAUGE,
		     "1 if the version's memory is damaged or lost with its GPU.", false},
};

static void states_write(FILE *out, const json_t *versions)
{
	static const char *const labels[] = {"model", "tag", "state"};
	struct fold fold = {0};
	const json_t *version;
	size_t i;

	json_array_foreach(versions, i, version)
		fold_add(&fold, &(struct fold_row){
					.labels = {member_text(version, "model"), member_text(version, "tag"),
						   member_text(version, "state")},
					.values = {[VERSIONS] = 1,
						   [LEASES] = member_number(version, "leases"),
						   [PINS] = json_array_size(json_object_get(version, "pins")),
						   [TAINTED] = member_has(version, "tainted")}});
	fold_end(&fold, VERSIONS_MAX_TOLD, 2);
	fold_write(out, &fold, labels, state_families, COUNT(state_families));
	fold_clear(&fold);
}

static const struct fold_family tier_family = {
	"gpuwm_version_tier", PROM_GAUGE,
	"1 for the tier that the version lies on: device, host (host memory), or files (no memory).", false};

static void tiers_write(FILE *out, const json_t *versions)
{
	static const char *const labels[] = {"model", "tag", "tier"};
	struct fold fold = {0};
	const json_t *version;
	size_t i;

	json_array_foreach(versions, i, version) {
		const char *tier = member_has(version, "tier") ? member_text(version, "tier") : "device";

		if (!member_is(version, "state", "failed"))
			fold_add(&fold, &(struct fold_row){.labels = {member_text(version, "model"),
								      member_text(version, "tag"), tier},
							   .values = {1}});
	}
	fold_end(&fold, VERSIONS_MAX_TOLD, 2);
	fold_write(out, &fold, labels, &tier_family, 1);
	fold_clear(&fold);
}

/* ---- by owner ------------------------------------------------------------ */

static const struct fold_family owner_families[] = {
	[HELD] = {"gpuwm_owner_held_bytes", PROM_GAUGE,
		  "Memory of the versions that the user made (by=user) or loaded as an operator (by=operator).",
		  false},
	[SHARED] = {"gpuwm_owner_shared_bytes", PROM_GAUGE,
		    "Those of gpuwm_owner_held_bytes that other versions hold too.", false},
};

static void owned_add(struct fold *fold, const json_t *version, const char *owner)
{
	const json_t *part;
	size_t i;

	json_array_foreach(json_object_get(version, "parts"), i, part) {
		const char *device = part_device(version, part);

		if (device)
			fold_add(fold,
				 &(struct fold_row){
					 .labels = {owner,
						    member_true(version, "by_operator") ? "operator" : "user",
						    device},
					 .values = {[HELD] = member_number(part, "bytes"),
						    [SHARED] = member_number(part, "shared_bytes")}});
	}
}

static void owners_write(FILE *out, const json_t *versions)
{
	static const char *const labels[] = {"uid", "by", "device"};
	size_t count = json_array_size(versions), i;
	struct uid_text *owners = calloc(count + 1, sizeof(*owners));
	struct fold fold = {0};
	const json_t *version;

	json_array_foreach(versions, i, version) {
		if (owners && !member_is(version, "state", "failed"))
			owned_add(&fold, version, uid_text(version, "owner_uid", &owners[i]));
	}
	fold_end(&fold, USER_ROWS_MAX, 1);
	fold_write(out, &fold, labels, owner_families, COUNT(owner_families));
	fold_clear(&fold);
	free(owners);
}

/* ---- aliases ------------------------------------------------------------- */

static const struct fold_family alias_family = {"gpuwm_alias_generation", PROM_GAUGE,
						"How often the alias was moved.", false};

static void aliases_write(FILE *out, const json_t *aliases)
{
	static const char *const labels[] = {"model", "alias", NULL};
	struct fold fold = {0};
	const json_t *alias;
	size_t i;

	json_array_foreach(aliases, i, alias)
		fold_add(&fold, &(struct fold_row){
					.labels = {member_text(alias, "model"), member_text(alias, "alias")},
					.values = {member_number(alias, "generation")}});
	fold_end(&fold, ALIAS_ROWS_MAX, 2);
	fold_write(out, &fold, labels, &alias_family, 1);
	fold_clear(&fold);
}

void metrics_versions(FILE *out, const struct snapshot *snapshot)
{
	const json_t *list = snapshot->answers[ASK_LIST];
	const json_t *versions = json_object_get(list, "versions");

	by_device_write(out, versions, json_object_get(snapshot->answers[ASK_CLIENTS], "clients"));
	states_write(out, versions);
	tiers_write(out, versions);
	owners_write(out, versions);
	aliases_write(out, json_object_get(list, "aliases"));
}
