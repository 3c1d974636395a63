/* descriptions: whether a reboot would find the versions. */
#include "groups.h"

#include "../answer.h"
#include "gpuwmd.h"

void check_descriptions(struct findings *findings, const char *socket)
{
	json_t *status = gpuwmd_status(socket);
	const json_t *tiers = json_object_get(status, "tiers"), *error = json_object_get(tiers, "error");
	const char *folder = answer_text(tiers, "folder");
	const unsigned long long described = answer_number(tiers, "described");
	const unsigned long long all = answer_number(tiers, "to_restore");
	const unsigned long long done = answer_number(tiers, "restored");
	const unsigned long long failed = answer_number(tiers, "not_restored");

	if (!status || !json_object_get(tiers, "folder")) {
		finding(findings, VERDICT_NOT_APPLICABLE, "folder", NULL, NULL, "%s",
			status ? "no folder is configured: after a reboot versions have to be loaded again"
			       : "gpuwmd does not answer");
		json_decref(status);
		return;
	}

	if (error)
		finding(findings, VERDICT_FAILED, "folder", folder, answer_text(error, "detail"), "%s",
			answer_text(error, "message"));
	else
		finding(findings, VERDICT_OK, "folder", folder, NULL, "a reboot finds %llu version%s",
			described, described == 1 ? "" : "s");

	if (failed > 0)
		finding(findings, VERDICT_WARNING, "restore", NULL,
			"gpuwmctl show tells why; then gpuwmctl promote",
			"%llu of %llu versions did not come back", failed, all);
	else if (all > 0)
		finding(findings, VERDICT_OK, "restore", NULL, NULL, "%llu of %llu versions are back", done,
			all);
	json_decref(status);
}
