/* Messages between gpuwmd and its loaders. */
#include "messages.h"

#include "../tier_kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define JOB_KIND_BYTES_MAX 15
#define TIER_BYTES_MAX 31 /* longer than the names of tiers, so that a wrong name is quoted */
#define SEGMENTS "segments: [{fd: u64, bytes: u64}]" /* part_segments_write, part_segments_read */
#define PART "index: u64, index_bytes: u64, " SEGMENTS /* part_write, part_read */

/* ---- job ---- */

static const struct record_field job_head_rows[] = {
	FIELD_U64(struct job_head, job),
	FIELD_TEXT(struct job_head, kind, JOB_KIND_BYTES_MAX),
};
const struct record job_head_record = {RECORD(struct job_head, job_head_rows)};
#define JOB_HEAD "job: u64, kind: text"

static const struct record_field job_peers_rows[] = {
	FIELD_TEXT_MAYBE(struct job_peers, certificate, PATH_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct job_peers, key, PATH_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct job_peers, authority, PATH_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_peers, secrets, PEER_LIST_MAX, PATH_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_peers, names, PEER_LIST_MAX, PEER_HOST_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_peers, peers, PEER_LIST_MAX, PEER_ADDRESS_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_peers, dns, PEER_LIST_MAX, PEER_ADDRESS_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct job_peers, listen, PEER_ADDRESS_BYTES_MAX),
	FIELD_BOOL_OR(struct job_peers, clear, false),
};
static const struct record job_peers_record = {RECORD(struct job_peers, job_peers_rows)};

static const struct record_field job_load_params_rows[] = {
	FIELD_SPLICE(struct job_load_params, wish, struct load_wish, &load_wish_record),
	FIELD_TEXT(struct job_load_params, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_load_params, tag, NAME_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_load_params, roots, ROOTS_MAX, PATH_BYTES_MAX),
	FIELD_BOOL_OR(struct job_load_params, keep, false),
	FIELD_MAP_MAYBE(struct job_load_params, peers, struct job_peers, &job_peers_record),
	FIELD_U64_MAYBE(struct job_load_params, files),
};
static const struct record job_load_params = {
	RECORD(struct job_load_params, job_load_params_rows),
	.beside = JOB_HEAD,
};

const struct message_form form_job_load = {.name = NOTIFY_JOB, .params = &job_load_params};

static const struct record_field job_place_rows[] = {
	FIELD_U64(struct job_place, rank),
	FIELD_U64(struct job_place, world),
	FIELD_TEXT(struct job_place, device, DEVICE_BYTES_MAX),
};
static const struct record job_place_record = {RECORD(struct job_place, job_place_rows)};

static const struct record_field job_check_params_rows[] = {
	FIELD_ID(struct job_check_params, publish),
	FIELD_SPLICE(struct job_check_params, place, struct job_place, &job_place_record),
	FIELD_U64(struct job_check_params, bytes),
	FIELD_U64(struct job_check_params, publisher),
	FIELD_BOOL_OR(struct job_check_params, keep, false),
};
static const struct record job_check_params = {
	RECORD(struct job_check_params, job_check_params_rows),
	.beside = JOB_HEAD,
};

const struct message_form form_job_check = {.name = NOTIFY_JOB, .params = &job_check_params};

static const struct record_field job_verify_params_rows[] = {
	FIELD_TEXT(struct job_verify_params, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_verify_params, tag, NAME_BYTES_MAX),
	FIELD_SPLICE(struct job_verify_params, place, struct job_place, &job_place_record),
	FIELD_U64_MAYBE(struct job_verify_params, chunk),
	FIELD_U64_MAYBE(struct job_verify_params, permille),
	FIELD_TEXT_MAYBE(struct job_verify_params, source, PATH_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_verify_params, roots, ROOTS_MAX, PATH_BYTES_MAX),
	FIELD_SPLICE(struct job_verify_params, choice, struct load_choice, &load_choice_record),
	FIELD_BOOL_OR(struct job_verify_params, by_publisher, false),
};
static const struct record job_verify_params = {
	RECORD(struct job_verify_params, job_verify_params_rows),
	.beside = JOB_HEAD ", " PART,
};

const struct message_form form_job_verify = {.name = NOTIFY_JOB, .params = &job_verify_params};

static const struct record_field job_again_rows[] = {
	FIELD_MAP_MAYBE(struct job_again, peers, struct job_peers, &job_peers_record),
	FIELD_TEXT(struct job_again, source, PATH_BYTES_MAX),
	FIELD_TEXT(struct job_again, fingerprint, FINGERPRINT_TEXT),
	FIELD_ID(struct job_again, version),
	FIELD_ID(struct job_again, content),
	FIELD_U64(struct job_again, bytes),
};
static const struct record job_again_record = {RECORD(struct job_again, job_again_rows)};

static int check_job_move(const void *value, struct error *error)
{
	const struct job_move_params *params = value;
	char names[TIERS_TEXT], detail[TIERS_TEXT + 16];
	enum tier from, to;

	if (tier_find(params->from, &from) < 0 || tier_find(params->to, &to) < 0) {
		snprintf(detail, sizeof(detail), "a tier is %s", tier_list(ON_DEVICE, names));
		return error_set(error, -EINVAL, detail, "a move from \"%.32s\" to \"%.32s\"", params->from,
				 params->to);
	}
	if ((tier_has_memory(from) && tier_has_memory(to)) || params->source || params->again)
		return 0;
	return error_set(error, -EINVAL, NULL, "a move from \"%s\" to \"%s\" needs files or nodes",
			 params->from, params->to);
}

static const struct record_field job_move_params_rows[] = {
	FIELD_TEXT(struct job_move_params, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_move_params, tag, NAME_BYTES_MAX),
	FIELD_SPLICE(struct job_move_params, place, struct job_place, &job_place_record),
	FIELD_TEXT(struct job_move_params, from, TIER_BYTES_MAX),
	FIELD_TEXT(struct job_move_params, to, TIER_BYTES_MAX),
	FIELD_BOOL_OR(struct job_move_params, keep, false),
	FIELD_TEXT_MAYBE(struct job_move_params, source, PATH_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_move_params, roots, ROOTS_MAX, PATH_BYTES_MAX),
	FIELD_SPLICE(struct job_move_params, choice, struct load_choice, &load_choice_record),
	FIELD_MAP_MAYBE(struct job_move_params, again, struct job_again, &job_again_record),
	FIELD_BOOL_OR(struct job_move_params, by_publisher, false),
	FIELD_U64S_MAYBE(struct job_move_params, shared, PART_SEGMENTS_MAX),
	FIELD_U64_MAYBE(struct job_move_params, files),
};
static const struct record job_move_params = {
	RECORD(struct job_move_params, job_move_params_rows),
	.beside = JOB_HEAD ", " PART,
	.check = check_job_move,
};

const struct message_form form_job_move = {.name = NOTIFY_JOB, .params = &job_move_params};

static const struct record_field job_region_params_rows[] = {
	FIELD_ID(struct job_region_params, region),
	FIELD_TEXT(struct job_region_params, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct job_region_params, bytes),
};
static const struct record job_region_params = {RECORD(struct job_region_params, job_region_params_rows),
						.beside = JOB_HEAD};

const struct message_form form_job_region = {.name = NOTIFY_JOB, .params = &job_region_params};

static const struct record_field job_hold_params_rows[] = {
	FIELD_TEXT(struct job_hold_params, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_hold_params, tag, NAME_BYTES_MAX),
	FIELD_SPLICE(struct job_hold_params, place, struct job_place, &job_place_record),
};
static const struct record job_hold_params = {
	RECORD(struct job_hold_params, job_hold_params_rows),
	.beside = JOB_HEAD ", " PART,
};

const struct message_form form_job_hold = {.name = NOTIFY_JOB, .params = &job_hold_params};

const struct message_form form_job_cancel = {.name = "cancel", .params = &record_nothing};

/* ---- hand_in ---- */

static const struct record hand_in_params = {.beside = PART};

const struct message_form form_hand_in = {
	.name = "hand_in", .params = &hand_in_params, .result = &record_nothing};

/* ---- hand_files ---- */

static const struct record_field hand_files_params_rows[] = {
	FIELD_TEXTS(struct hand_files_params, names, LOAD_FILES_MAX, LOAD_FILE_NAME_BYTES_MAX),
};
static const struct record hand_files_params = {RECORD(struct hand_files_params, hand_files_params_rows)};

const struct message_form form_hand_files = {.name = "hand_files", .params = &hand_files_params};

/* ---- warm ---- */

static const struct record_field warm_params_rows[] = {
	FIELD_TEXTS(struct warm_params, devices, PARTS_PER_VERSION_MAX, DEVICE_BYTES_MAX),
};
static const struct record warm_params = {RECORD(struct warm_params, warm_params_rows)};

const struct message_form form_warm = {.name = "warm", .params = &warm_params};

/* ---- devices ---- */

static const struct record_field device_found_rows[] = {
	FIELD_TEXT(struct device_found, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct device_found, kind, DEVICE_NAME_BYTES_MAX),
	FIELD_TEXT(struct device_found, name, DEVICE_NAME_BYTES_MAX),
	FIELD_U64(struct device_found, total),
	FIELD_U64_MAYBE(struct device_found, free),
	FIELD_U64(struct device_found, granularity),
	FIELD_U64_OR(struct device_found, context, 0, UINT64_MAX),
};
static const struct record device_found = {RECORD(struct device_found, device_found_rows)};

static const struct record_field device_known_rows[] = {
	FIELD_TEXT(struct device_known, device, DEVICE_BYTES_MAX),
	FIELD_BOOL_OR(struct device_known, lost, false),
};
static const struct record device_known = {RECORD(struct device_known, device_known_rows)};

static const struct record_field loader_hello_params_rows[] = {
	FIELD_U64(struct loader_hello_params, protocol_min),
	FIELD_U64(struct loader_hello_params, protocol_max),
	FIELD_U64_MAYBE(struct loader_hello_params, pid),
	FIELD_U64_MAYBE(struct loader_hello_params, pidfd),
	FIELD_MAPS(struct loader_hello_params, devices, UINT32_MAX, struct device_found, &device_found),
};
static const struct record loader_hello_params = {RECORD(struct loader_hello_params, loader_hello_params_rows)};

static const struct record_field loader_hello_result_rows[] = {
	FIELD_U64(struct loader_hello_result, protocol),
	FIELD_ID(struct loader_hello_result, instance),
	FIELD_MAPS(struct loader_hello_result, devices, UINT32_MAX, struct device_known, &device_known),
	FIELD_TEXTS_MAYBE(struct loader_hello_result, roots, ROOTS_MAX, PATH_BYTES_MAX),
};
static const struct record loader_hello_result = {RECORD(struct loader_hello_result, loader_hello_result_rows)};

const struct message_form form_loader_hello = {
	.name = "loader_hello", .params = &loader_hello_params, .result = &loader_hello_result};

static const struct record_field report_params_rows[] = {
	FIELD_MAPS(struct report_params, devices, UINT32_MAX, struct device_known, &device_known),
	FIELD_TEXTS_MAYBE(struct report_params, roots, ROOTS_MAX, PATH_BYTES_MAX),
};
static const struct record report_params = {RECORD(struct report_params, report_params_rows)};

const struct message_form form_report = {.name = "report", .params = &report_params};

static const struct record_field loader_roots_params_rows[] = {
	FIELD_MAPS(struct loader_roots_params, roots, ROOTS_MAX, struct root_told, &root_told_record),
};
static const struct record loader_roots_params = {RECORD(struct loader_roots_params, loader_roots_params_rows)};

const struct message_form form_loader_roots = {.name = "loader_roots", .params = &loader_roots_params};

static const struct record_field device_found_lost_rows[] = {
	FIELD_TEXT(struct device_found_lost, device, DEVICE_BYTES_MAX),
	FIELD_ERROR(struct device_found_lost, error),
};
static const struct record device_found_lost = {RECORD(struct device_found_lost, device_found_lost_rows)};

static const struct record_field loader_devices_params_rows[] = {
	FIELD_MAPS(struct loader_devices_params, devices, UINT32_MAX, struct device_found, &device_found),
	FIELD_MAPS_MAYBE(struct loader_devices_params, lost, UINT32_MAX, struct device_found_lost,
			 &device_found_lost),
	FIELD_TEXTS_MAYBE(struct loader_devices_params, back, UINT32_MAX, DEVICE_BYTES_MAX),
};
static const struct record loader_devices_params = {
	RECORD(struct loader_devices_params, loader_devices_params_rows)};

const struct message_form form_loader_devices = {.name = "loader_devices", .params = &loader_devices_params};

/* ---- how a job goes ---- */

static const struct record_field loader_warm_params_rows[] = {
	FIELD_ERROR_MAYBE(struct loader_warm_params, error),
};
static const struct record loader_warm_params = {RECORD(struct loader_warm_params, loader_warm_params_rows)};

const struct message_form form_loader_warm = {.name = "loader_warm", .params = &loader_warm_params};

static const struct record_field loader_progress_params_rows[] = {
	FIELD_TEXT(struct loader_progress_params, phase, PHASE_BYTES_MAX),
	FIELD_U64(struct loader_progress_params, done),
	FIELD_U64(struct loader_progress_params, total),
	FIELD_TEXT_MAYBE(struct loader_progress_params, note, TEXT_BYTES_MAX),
};
static const struct record loader_progress_params = {
	RECORD(struct loader_progress_params, loader_progress_params_rows)};

const struct message_form form_loader_progress = {.name = "loader_progress", .params = &loader_progress_params};

static const struct record_field plan_device_rows[] = {
	FIELD_TEXT(struct plan_device, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct plan_device, bytes),
	FIELD_U64(struct plan_device, segments),
};
static const struct record plan_device = {RECORD(struct plan_device, plan_device_rows)};

static const struct record_field plan_params_rows[] = {
	FIELD_U64(struct plan_params, tensors),
	FIELD_U64(struct plan_params, files),
	FIELD_U64(struct plan_params, bytes),
	FIELD_U64(struct plan_params, cached),
	FIELD_MAPS(struct plan_params, devices, PARTS_PER_VERSION_MAX, struct plan_device, &plan_device),
	FIELD_U64S_MAYBE(struct plan_params, parts, PARTS_PER_VERSION_MAX),
};
const struct record plan_params_record = {RECORD(struct plan_params, plan_params_rows)};

static const struct record_field loader_done_params_rows[] = {
	FIELD_ERROR_MAYBE(struct loader_done_params, error),
	FIELD_U64_MAYBE(struct loader_done_params, segment),
	FIELD_BOOL_OR(struct loader_done_params, keeps, false),
	FIELD_MAP_MAYBE(struct loader_done_params, plan, struct plan_params, &plan_params_record),
};
static const struct record loader_done_params = {RECORD(struct loader_done_params, loader_done_params_rows)};

static const struct record_field loader_done_result_rows[] = {
	FIELD_BOOL_OR(struct loader_done_result, stay, false),
};
static const struct record loader_done_result = {RECORD(struct loader_done_result, loader_done_result_rows)};

const struct message_form form_loader_done = {
	.name = "loader_done", .params = &loader_done_params, .result = &loader_done_result};

static const struct record_field segment_shared_rows[] = {
	FIELD_U64(struct segment_shared, segment),
	FIELD_U64(struct segment_shared, resident),
};
static const struct record segment_shared = {RECORD(struct segment_shared, segment_shared_rows)};

static const struct record_field loader_checked_params_rows[] = {
	FIELD_ID(struct loader_checked_params, publish),
	FIELD_U64(struct loader_checked_params, rank),
	FIELD_TEXT(struct loader_checked_params, device, DEVICE_BYTES_MAX),
	FIELD_ID(struct loader_checked_params, content),
	FIELD_ID(struct loader_checked_params, layout),
	FIELD_U64(struct loader_checked_params, tensors),
	FIELD_MAPS_MAYBE(struct loader_checked_params, shared, PART_SEGMENTS_MAX, struct segment_shared,
			 &segment_shared),
};
static const struct record loader_checked_params = {
	RECORD(struct loader_checked_params, loader_checked_params_rows),
	.beside = PART,
};

const struct message_form form_loader_checked = {
	.name = "loader_checked", .params = &loader_checked_params, .result = &record_nothing};

/* ---- a part that was moved ---- */

static const struct record_field loader_moved_params_rows[] = {
	FIELD_U64(struct loader_moved_params, rank),
	FIELD_TEXT(struct loader_moved_params, device, DEVICE_BYTES_MAX),
};
static const struct record loader_moved_params = {
	RECORD(struct loader_moved_params, loader_moved_params_rows),
	.beside = SEGMENTS,
};

const struct message_form form_loader_moved = {
	.name = "loader_moved", .params = &loader_moved_params, .result = &record_nothing};

/* ---- the part of a version that a load shares ---- */

static const struct record_field loader_resident_params_rows[] = {
	FIELD_U64(struct loader_resident_params, rank),
	FIELD_TEXT(struct loader_resident_params, device, DEVICE_BYTES_MAX),
};
static const struct record loader_resident_params = {
	RECORD(struct loader_resident_params, loader_resident_params_rows)};

static const struct record loader_resident_result = {
	.beside = PART,
};

const struct message_form form_loader_resident = {
	.name = "loader_resident", .params = &loader_resident_params, .result = &loader_resident_result};

/* ---- a copy that the loader holds ---- */

static const struct record_field loader_holds_params_rows[] = {
	FIELD_MAPS(struct loader_holds_params, handles, PART_SEGMENTS_MAX, struct ipc_segment,
		   &ipc_segment_record),
	FIELD_TEXT(struct loader_holds_params, event, IPC_HANDLE_TEXT - 1),
};
static const struct record loader_holds_params = {RECORD(struct loader_holds_params, loader_holds_params_rows)};

const struct message_form form_loader_holds = {
	.name = "loader_holds", .params = &loader_holds_params, .result = &record_nothing};
