/* Metrics of the exporter itself. */
#include "snapshot.h"

#include "limits.h"
#include "prom.h"

void metrics_exporter(FILE *out, const struct snapshot *snapshot)
{
	const struct tally *tally = snapshot->tally;

	prom_single(out, "gpuwm_up", PROM_GAUGE, "1 if gpuwmd answered, 0 if it is away or hangs.",
		    snapshot->up);
	prom_family(out, "gpuwm_exporter_info", PROM_GAUGE, "The version of gpuwm-exporter.");
	prom_u64(out, "gpuwm_exporter_info", 1, "version", GPUWM_VERSION, PROM_END);
	prom_family(
		out, "gpuwm_exporter_sees", PROM_GAUGE,
		"1 if gpuwmd answers this method to the exporter. 0: gpuwmd is away or refuses; metrics made "
		"of the answer are missing.");
	for (size_t i = 0; i < QUESTIONS; i++)
		prom_u64(out, "gpuwm_exporter_sees", snapshot->sees[i], "method", question_names[i], PROM_END);
	prom_single_us(out, "gpuwm_exporter_ask_seconds", PROM_GAUGE,
		       "How long gpuwmd took to answer all questions of this snapshot.", snapshot->asked_us);
	prom_single_us(out, "gpuwm_exporter_snapshot_seconds", PROM_GAUGE,
		       "The shortest time between two snapshots; all scrapes in between get the same one.",
		       SNAPSHOT_MS * 1000);
	prom_single_us(out, "gpuwm_exporter_snapshot_timestamp_seconds", PROM_GAUGE,
		       "When the exporter began to ask for this snapshot.", snapshot->wall_ms * 1000);
	prom_single(out, "gpuwm_exporter_scrapes_total", PROM_COUNTER, "Requests for /metrics.",
		    tally->scrapes);
	prom_single(out, "gpuwm_exporter_pages_total", PROM_COUNTER,
		    "Requests for the status page and its state.", tally->pages);
	prom_single(out, "gpuwm_exporter_refused_total", PROM_COUNTER,
		    "Requests over HTTP that were answered with an error.", tally->refused);
	prom_single(out, "gpuwm_exporter_cut_total", PROM_COUNTER,
		    "Connections over HTTP that were ended because they were slow.", tally->cut);
	prom_single(out, "gpuwm_exporter_snapshots_total", PROM_COUNTER, "How often gpuwmd was asked.",
		    tally->snapshots);
	prom_single(out, "gpuwm_exporter_errors_total", PROM_COUNTER,
		    "How often gpuwmd did not answer, or not in time.", tally->failed + tally->late);
	prom_single(out, "gpuwm_exporter_connects_total", PROM_COUNTER, "Connections to gpuwmd.",
		    tally->connects);
}
