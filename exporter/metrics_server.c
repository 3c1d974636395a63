/* Metrics of gpuwmd itself. */

#include "snapshot.h"
#include "prom.h"

static const struct {
	const char *name, *type, *help, *key;
} figures[] = {
	{"gpuwm_epoch", PROM_GAUGE, "How often gpuwmd was started with this ledger, from 1.", "epoch"},
	{"gpuwm_adopted_versions", PROM_GAUGE, "Versions that this gpuwmd took over from the last one.",
	 "adopted"},
	{"gpuwm_lost_versions", PROM_GAUGE, "Versions of the last gpuwmd that this one could not take over.",
	 "lost"},
	{"gpuwm_sessions", PROM_GAUGE, "Connections of clients.", "sessions"},
	{"gpuwm_leases", PROM_GAUGE, "Leases.", "leases"},
	{"gpuwm_revoked_leases", PROM_GAUGE, "Revoked leases whose holders may still map the memory.",
	 "revoked"},
	{"gpuwm_still_mapped_bytes", PROM_GAUGE,
	 "Memory of freed versions that holders of revoked leases may still map.", "still_mapped"},
	{"gpuwm_named_versions", PROM_GAUGE, "Versions with a name, in any state.", "versions"},
	{"gpuwm_nameless_versions", PROM_GAUGE, "Versions without a name.", "nameless"},
	{"gpuwm_aliases", PROM_GAUGE, "Aliases.", "aliases"},
	{"gpuwm_pins", PROM_GAUGE, "Pins.", "pins"},
	{"gpuwm_open_publishes", PROM_GAUGE, "Publishes that have begun and not ended.", "publishes"},
	{"gpuwm_claims", PROM_GAUGE, "Versions that somebody has claimed to build.", "claims"},
	{"gpuwm_regions", PROM_GAUGE, "Regions.", "regions"},
	{"gpuwm_region_users", PROM_GAUGE, "Uses of regions by processes.", "region_users"},
	{"gpuwm_regions_bytes", PROM_GAUGE, "Memory of all regions.", "region_bytes"},
	{"gpuwm_copies", PROM_GAUGE, "Copies for programs that attach by CUDA IPC.", "copies"},
	{"gpuwm_copies_bytes", PROM_GAUGE, "Memory of all copies.", "copy_bytes"},
	{"gpuwm_waiting_requests", PROM_GAUGE, "Requests that wait.", "waiting"},
	{"gpuwm_running_jobs", PROM_GAUGE, "Jobs that a loader works on.", "jobs_running"},
	{"gpuwm_queued_jobs", PROM_GAUGE, "Jobs that wait for a loader.", "jobs_queued"},
	{"gpuwm_loaders", PROM_GAUGE, "Loader processes.", "loaders"},
	{"gpuwm_open_fds", PROM_GAUGE, "Open descriptors of gpuwmd.", "fds"},
	{"gpuwm_resident_memory_bytes", PROM_GAUGE, "Resident memory of gpuwmd itself.", "rss"},
	{"gpuwm_requests_total", PROM_COUNTER, "Requests that gpuwmd got.", "requests"},
	{"gpuwm_refused_requests_total", PROM_COUNTER, "Requests that gpuwmd answered with an error.",
	 "refused"},
	{"gpuwm_held_bytes", PROM_GAUGE, "Memory of all segments that gpuwmd holds, each counted once.",
	 "bytes"},
	{"gpuwm_shared_bytes", PROM_GAUGE, "Those of gpuwm_held_bytes that several versions hold.",
	 "shared_bytes"},
	{"gpuwm_index_bytes", PROM_GAUGE, "Memory of all indices.", "index_bytes"},
	{"gpuwm_segments", PROM_GAUGE, "Segments that gpuwmd holds.", "segments"},
};

static const struct {
	const char *name, *help, *key;
} flags[] = {
	{"gpuwm_draining", "1 if gpuwmd drains: it takes no new work.", "draining"},
	{"gpuwm_kept", "1 if versions outlive this gpuwmd.", "kept"},
	{"gpuwm_standby_loader", "1 if a loader stands by.", "standby"},
};

static void limits_write(FILE *out, const json_t *status)
{
	const json_t *limits = json_object_get(status, "limits");

	prom_single(out, "gpuwm_limit_versions", PROM_GAUGE, "How many versions there may be.",
		    member_number(limits, "versions"));
	prom_single(out, "gpuwm_limit_sessions", PROM_GAUGE, "How many connections there may be.",
		    member_number(limits, "sessions"));
	prom_single(out, "gpuwm_limit_loaders", PROM_GAUGE, "How many loaders may run at a time.",
		    member_number(limits, "loaders"));
	prom_single(out, "gpuwm_limit_store_fds", PROM_GAUGE,
		    "How many descriptors the fd store can hold for gpuwmd.",
		    member_number(limits, "store_fds"));
}

static void scrub_write(FILE *out, const json_t *status)
{
	const json_t *scrub = json_object_get(status, "scrub");

	prom_single(out, "gpuwm_scrub_passes_total", PROM_COUNTER, "Passes of the scrub that have ended.",
		    member_number(scrub, "passes"));
	prom_single(out, "gpuwm_scrub_running", PROM_GAUGE, "1 while a pass of the scrub is under way.",
		    member_true(scrub, "running"));
	prom_single(out, "gpuwm_scrub_skipped_parts", PROM_GAUGE,
		    "Parts that the pass of the scrub could not read.", member_number(scrub, "skipped"));
	if (member_has(scrub, "last_ms"))
		prom_single_us(out, "gpuwm_scrub_last_timestamp_seconds", PROM_GAUGE,
			       "When the last pass of the scrub ended.",
			       member_number(scrub, "last_ms") * 1000);
}

/* What a reboot would find, and what came of the last one. */
static void tiers_write(FILE *out, const json_t *status)
{
	const json_t *tiers = json_object_get(status, "tiers");

	if (!tiers || !member_has(tiers, "folder"))
		return;
	prom_single(out, "gpuwm_described_versions", PROM_GAUGE,
		    "Versions that a start without any state would find in the folder of descriptions.",
		    member_number(tiers, "described"));
	prom_single(out, "gpuwm_descriptions_failing", PROM_GAUGE,
		    "1 if the folder of descriptions can't be used, or not be written.",
		    member_has(tiers, "error"));
	prom_single(out, "gpuwm_versions_to_restore", PROM_GAUGE,
		    "Versions that were resident before the start, less those that came back or could not.",
		    member_number(tiers, "to_restore") - member_number(tiers, "restored") -
			    member_number(tiers, "not_restored"));
}

void metrics_server(FILE *out, const struct snapshot *snapshot)
{
	const json_t *status = snapshot->answers[ASK_STATUS];

	if (!status)
		return;
	prom_family(out, "gpuwm_info", PROM_GAUGE, "The version of gpuwmd, and its ledger's id.");
	prom_u64(out, "gpuwm_info", 1, "version", member_text(status, "server"), "ledger",
		 member_text(status, "ledger"), PROM_END);
	prom_single_us(out, "gpuwm_start_timestamp_seconds", PROM_GAUGE, "When gpuwmd was started.",
		       (snapshot->wall_ms - member_number(status, "uptime_ms")) * 1000);
	prom_single_us(out, "gpuwm_grace_seconds", PROM_GAUGE,
		       "How much of the grace time after a restart is left.",
		       member_number(status, "grace_ms") * 1000);
	prom_single(out, "gpuwm_locked", PROM_GAUGE,
		    "1 if gpuwmd is locked: it can't use its configuration or its stored state.",
		    member_has(status, "locked"));
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		prom_single(out, flags[i].name, PROM_GAUGE, flags[i].help, member_true(status, flags[i].key));
	for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++) {
		if (member_has(status, figures[i].key))
			prom_single(out, figures[i].name, figures[i].type, figures[i].help,
				    member_number(status, figures[i].key));
	}
	limits_write(out, status);
	scrub_write(out, status);
	tiers_write(out, status);
}
