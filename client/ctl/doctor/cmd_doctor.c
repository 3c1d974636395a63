/* doctor: looks at all that gpuwm needs of this machine. Needs no gpuwmd, no GPU and no rights. */
#include "../commands.h"

#include "gpuwmd.h"
#include "groups.h"
#include "report.h"

int command_doctor(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct report report;

	(void)client;
	gpuwmd_config_choose(arguments->config);
	report_begin(&report, arguments->json);
	for (size_t i = 0; i < group_count; i++) {
		struct findings findings = group_run(&groups[i], arguments->socket);

		report_add(&report, &groups[i], &findings);
	}
	return report_end(&report);
}
