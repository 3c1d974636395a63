/* The processes that hold versions. */
#include "view.h"

#include "../answer.h"
#include "../line.h"

#include "../../../base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the lease is of: a version's part on a device. */
static double lease_bytes(const json_t *list, const json_t *lease)
{
	const json_t *version = answer_version(list, answer_text(lease, "version")), *part;
	double bytes = 0;
	size_t i;

	json_array_foreach(json_object_get(version, "parts"), i, part) {
		if (answer_number(part, "rank") == answer_number(lease, "rank") &&
		    strcmp(answer_text(part, "device"), answer_text(lease, "device")) == 0)
			bytes += (double)answer_number(part, "bytes");
	}
	return bytes;
}

/* Of all leases of the session: their bytes, and when the oldest began. */
static void session_sum(const json_t *list, const json_t *session, double *ret_bytes, uint64_t *ret_since)
{
	const json_t *lease;
	size_t i;

	*ret_bytes = 0;
	*ret_since = 0;
	json_array_foreach(json_object_get(session, "leases"), i, lease) {
		const uint64_t since = answer_number(lease, "since_ms");

		*ret_bytes += lease_bytes(list, lease);
		if (i == 0 || since < *ret_since)
			*ret_since = since;
	}
}

/* "llama@v2", "llama@v2 +3", "llama@v2 (parked)" */
static void held_text(const json_t *session, char *ret_text, size_t size)
{
	const json_t *leases = json_object_get(session, "leases"), *lease = json_array_get(leases, 0);
	const size_t more = json_array_size(leases) - 1;
	const char *state = json_is_true(json_object_get(lease, "parked")) ? " (parked)" : "";
	char raw[600], count[32] = "";

	if (more > 0)
		snprintf(count, sizeof(count), " +%zu", more);
	snprintf(raw, sizeof(raw), "%s@%s%s%s", answer_text(lease, "model"), answer_text(lease, "tag"), count,
		 json_object_get(lease, "revoked_ms") ? " (revoked)" : state);
	utf8_show(raw, ret_text, size);
}

static bool session_is_shown(const struct top_view *view, const json_t *session)
{
	const json_t *lease;
	size_t i;

	if (view_shows(view, answer_text(session, "command")) || view_shows(view, answer_text(session, "name")))
		return true;
	json_array_foreach(json_object_get(session, "leases"), i, lease) {
		if (view_shows(view, answer_text(lease, "model")))
			return true;
	}
	return false;
}

static void worker_row(const struct look *look, const struct view_row *row, struct picture *picture,
		       const struct grid_column *columns)
{
	char pid[24], user[UTF8_SHOWN_MAX(64)], command[UTF8_SHOWN_MAX(64)], held[UTF8_SHOWN_MAX(600)],
		size[SHORT_TEXT], age[SHORT_TEXT];
	const json_t *session = row->json;
	uint64_t since;
	double bytes;

	session_sum(look->list, session, &bytes, &since);
	snprintf(pid, sizeof(pid), "%llu", (unsigned long long)answer_number(session, "pid"));
	utf8_show(users_name((unsigned)answer_number(session, "uid")), user, sizeof(user));
	utf8_show(answer_text(session, "command"), command, sizeof(command));
	held_text(session, held, sizeof(held));
	grid_row(picture, columns, json_is_true(json_object_get(session, "ended")) ? STYLE_BUSY : STYLE_PLAIN,
		 (const char *[]){pid, user, command, held, size_text((uint64_t)bytes, size),
				  age_text(since, age)});
}

void view_workers(const struct top_view *view, const struct look *look, struct picture *picture)
{
	static const struct grid_column columns[] = {
		{"PID", 8, true, 0},
		{"USER", 10, false, 70},
		{"COMMAND", 15, false, 0},
		{"HOLDS", 0, false, 0},
		{"SIZE", 9, true, 50},
		{"SINCE", 5, true, 0},
		{0},
	};
	const json_t *sessions = json_object_get(look->clients, "clients"), *session;
	struct view_row *rows;
	size_t count = 0, idle = 0, i;
	char title[80];

	if (!look->clients) {
		picture_section(picture, "WORKERS");
		picture_line(picture, STYLE_DIM, "only operators and observers see who holds what");
		return;
	}
	rows = calloc(json_array_size(sessions) + 1, sizeof(*rows));
	json_array_foreach(sessions, i, session) {
		const size_t leases = json_array_size(json_object_get(session, "leases"));
		uint64_t since;
		double bytes;

		idle += leases == 0;
		if (!rows || leases == 0 || !session_is_shown(view, session))
			continue;
		session_sum(look->list, session, &bytes, &since);
		rows[count++] = (struct view_row){answer_text(session, "command"), bytes, (double)leases,
						  (double)time(NULL) - (double)since / 1000, session};
	}
	snprintf(title, sizeof(title), "WORKERS %zu (%zu other session%s)", count, idle, idle == 1 ? "" : "s");
	picture_section(picture, title);
	grid_heads(picture, columns);
	if (count > 0)
		view_rows_sort(view, rows, count);
	for (i = 0; i < count; i++)
		worker_row(look, &rows[i], picture, columns);
	free(rows);
}
