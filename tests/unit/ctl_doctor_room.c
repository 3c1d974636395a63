/* doctor: how much room is too little. */
#include "client/ctl/doctor/groups.h"

#include <criterion/criterion.h>
#include <string.h>

static const char *verdict_with(uint64_t free_bytes, uint64_t total, const char *words)
{
	struct findings findings = {json_array(), NULL};
	const struct room room = {"/dev/shm", "more of it", free_bytes, total, SHM_FREE_LEAST, SHM_LEAST};
	static char verdict[32];
	json_t *found;

	room_judge(&findings, &room);
	found = json_array_get(findings.list, 0);
	cr_assert_eq(json_array_size(findings.list), 1);
	cr_assert(strstr(json_string_value(json_object_get(found, "found")), words), "%s",
		  json_string_value(json_object_get(found, "found")));
	strcpy(verdict, json_string_value(json_object_get(found, "verdict")));
	cr_assert_eq(json_object_get(found, "remedy") != NULL, strcmp(verdict, "ok") != 0);
	json_decref(findings.list);
	return verdict;
}

Test(ctl_doctor_room, small_and_full_file_systems_are_warned_of)
{
	cr_assert_str_eq(verdict_with(SHM_LEAST / 2, SHM_LEAST / 2, "engines want 128.0 MiB"), "warning");
	cr_assert_str_eq(verdict_with(SHM_FREE_LEAST - 1, SHM_LEAST, "are free"), "warning");
	cr_assert_str_eq(verdict_with(SHM_FREE_LEAST, SHM_LEAST, "32.0 MiB of 128.0 MiB are free"), "ok");
}
