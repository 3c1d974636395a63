/* Messages about leases and claims. */
#include "../address.h"
#include "messages.h"

#include <errno.h>
#include <string.h>

/* An empty text is no device. Only a missing one stands for the device that has the part. */
static int check_device(const char *device, struct error *error)
{
	if (!device || device[0])
		return 0;
	return error_set(error, -EINVAL, "name one, or leave the parameter out", "the device \"\" %s",
			 device_wrong(device));
}

/* ---- get_handles ---- */

static int check_get_handles(const void *value, struct error *error)
{
	const struct get_handles_params *params = value;
	int r = check_device(params->device, error);

	if (r == 0)
		r = transport_check(params->transport, error);
	if (r == 0 && params->room > 0 &&
	    (params->look || (params->transport && strcmp(params->transport, TRANSPORT_FD) != 0)))
		return error_set(error, -EINVAL, "attach by descriptors, without \"look\"",
				 "room is for a lease that can be parked");
	return r;
}

static const struct record_field get_handles_params_rows[] = {
	FIELD_REF(struct get_handles_params, ref),
	FIELD_TEXT_MAYBE(struct get_handles_params, device, DEVICE_BYTES_MAX),
	FIELD_U64_OR(struct get_handles_params, rank, 0, UINT64_MAX),
	FIELD_WAIT_MS(struct get_handles_params),
	FIELD_BOOL_OR(struct get_handles_params, look, false),
	FIELD_OWNER(struct get_handles_params, owner),
	FIELD_TEXT_MAYBE(struct get_handles_params, transport, TRANSPORT_BYTES_MAX),
	FIELD_U64_OR(struct get_handles_params, room, 0, ROOM_BYTES_MAX),
};
static const struct record get_handles_params = {RECORD(struct get_handles_params, get_handles_params_rows),
						 .check = check_get_handles};

static const struct record_field get_handles_result_rows[] = {
	FIELD_U64(struct get_handles_result, lease),
	FIELD_ID(struct get_handles_result, version),
	FIELD_TEXT(struct get_handles_result, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct get_handles_result, tag, NAME_BYTES_MAX),
	FIELD_TEXT(struct get_handles_result, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct get_handles_result, rank),
	FIELD_U64(struct get_handles_result, world),
	FIELD_U64(struct get_handles_result, generation),
	FIELD_TEXT_MAYBE(struct get_handles_result, transport, TRANSPORT_BYTES_MAX),
	FIELD_MAPS_MAYBE(struct get_handles_result, handles, PART_SEGMENTS_MAX, struct ipc_segment,
			 &ipc_segment_record),
	FIELD_TEXT_MAYBE(struct get_handles_result, event, IPC_HANDLE_TEXT - 1),
	FIELD_U64_MAYBE(struct get_handles_result, holder),
	FIELD_U64_OR(struct get_handles_result, room, 0, ROOM_BYTES_MAX),
};
static const struct record get_handles_result = {
	RECORD(struct get_handles_result, get_handles_result_rows),
	.beside = "index: u64, index_bytes: u64, segments: [{fd: u64, bytes: u64}]",
};

/* A lease that was granted has ended with its connection. */
const struct message_form form_get_handles = {
	.name = "get_handles", .params = &get_handles_params, .result = &get_handles_result, .again = true};

/* ---- release ---- */

static const struct record_field release_params_rows[] = {
	FIELD_U64(struct release_params, lease),
	FIELD_U64_OR(struct release_params, room_to, 0, UINT64_MAX),
};
static const struct record release_params = {RECORD(struct release_params, release_params_rows)};

const struct message_form form_release = {
	.name = "release", .params = &release_params, .result = &record_nothing};

/* ---- park, unpark ---- */

static const struct record_field park_params_rows[] = {
	FIELD_U64(struct park_params, lease),
	FIELD_U64_OR(struct park_params, room, 0, ROOM_BYTES_MAX),
};
static const struct record park_params = {RECORD(struct park_params, park_params_rows)};

/* After a restart a lease has another number, and resume says whether it is parked: neither may be sent again. */
const struct message_form form_park = {.name = "park", .params = &park_params, .result = &record_nothing};

static const struct record_field unpark_params_rows[] = {
	FIELD_U64(struct unpark_params, lease),
	FIELD_WAIT_MS(struct unpark_params),
	FIELD_U64_MAYBE(struct unpark_params, room),
	FIELD_TEXT_MAYBE(struct unpark_params, group, NAME_BYTES_MAX),
	FIELD_U64_OR(struct unpark_params, group_leases, 0, UNPARK_GROUP_MAX),
};
static int check_unpark(const void *value, struct error *error)
{
	const struct unpark_params *params = value;

	if (params->room && *params->room > ROOM_BYTES_MAX)
		return error_set(error, -EINVAL, NULL, "room: at most %llu bytes",
				 (unsigned long long)ROOM_BYTES_MAX);
	if ((params->group && params->group[0] != '\0') != (params->group_leases > 0))
		return error_set(error, -EINVAL, "a name, and how many leases have it",
				 "group and group_leases: one of them is missing");
	return 0;
}

static const struct record unpark_params = {RECORD(struct unpark_params, unpark_params_rows),
					    .check = check_unpark};

const struct message_form form_unpark = {
	.name = "unpark", .params = &unpark_params, .result = &get_handles_result};

/* ---- announce ---- */

/* No address has no text, not an empty one. */
static int check_address(const char *address, struct error *error)
{
	const char *wrong = address ? address_wrong(address) : NULL;

	return wrong ? error_set(error, -EINVAL,
				 "host:port, [IPv6]:port or unix:/path; leave the parameter out for none",
				 "the address \"%s\" %s", address, wrong)
		     : 0;
}

static int check_announce(const void *value, struct error *error)
{
	return check_address(((const struct announce_params *)value)->address, error);
}

static const struct record_field announce_params_rows[] = {
	FIELD_U64(struct announce_params, lease),
	FIELD_TEXT_MAYBE(struct announce_params, address, ADDRESS_BYTES_MAX),
};
static const struct record announce_params = {RECORD(struct announce_params, announce_params_rows),
					      .check = check_announce};

/* Whoever connects again sends the address with resume. */
const struct message_form form_announce = {
	.name = "announce", .params = &announce_params, .result = &record_nothing};

/* ---- resume ---- */

static int check_resume_lease(const void *value, struct error *error)
{
	return check_address(((const struct resume_lease *)value)->address, error);
}

static const struct record_field resume_lease_rows[] = {
	FIELD_U64(struct resume_lease, lease),
	FIELD_ID(struct resume_lease, version),
	FIELD_TEXT(struct resume_lease, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct resume_lease, rank),
	FIELD_TEXT_MAYBE(struct resume_lease, address, ADDRESS_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct resume_lease, transport, TRANSPORT_BYTES_MAX),
	FIELD_BOOL_OR(struct resume_lease, parked, false),
	FIELD_U64_OR(struct resume_lease, room, 0, ROOM_BYTES_MAX),
};
static const struct record resume_lease = {RECORD(struct resume_lease, resume_lease_rows),
					   .check = check_resume_lease};

static const struct record_field resume_params_rows[] = {
	FIELD_MAPS_EACH(struct resume_params, leases, RESUME_LEASES_MAX, struct resume_lease, &resume_lease),
	FIELD_TEXTS_EACH_MAYBE(struct resume_params, claims, RESUME_CLAIMS_MAX, 2 * NAME_BYTES_MAX + 1),
};
static const struct record resume_params = {RECORD(struct resume_params, resume_params_rows)};

static const struct record_field resumed_lease_rows[] = {
	FIELD_U64_MAYBE(struct resumed_lease, lease),
	FIELD_ERROR_MAYBE(struct resumed_lease, error),
	FIELD_BOOL_OR(struct resumed_lease, revoked, false),
};
const struct record resumed_lease_record = {RECORD(struct resumed_lease, resumed_lease_rows)};

static const struct record_field resumed_claim_rows[] = {
	FIELD_ERROR_MAYBE(struct resumed_claim, error),
};
const struct record resumed_claim_record = {RECORD(struct resumed_claim, resumed_claim_rows)};

static const struct record_field resume_result_rows[] = {
	FIELD_MAPS(struct resume_result, leases, RESUME_LEASES_MAX, struct resumed_lease,
		   &resumed_lease_record),
	FIELD_MAPS_MAYBE(struct resume_result, claims, RESUME_CLAIMS_MAX, struct resumed_claim,
			 &resumed_claim_record),
	FIELD_U64(struct resume_result, grace_ms),
};
static const struct record resume_result = {RECORD(struct resume_result, resume_result_rows)};

const struct message_form form_resume = {.name = "resume", .params = &resume_params, .result = &resume_result};

/* ---- claim, claim_give_up ---- */

static int check_claim(const void *value, struct error *error)
{
	return check_device(((const struct claim_params *)value)->device, error);
}

static const struct record_field claim_params_rows[] = {
	FIELD_NAME(struct claim_params, name),
	FIELD_TEXT_MAYBE(struct claim_params, device, DEVICE_BYTES_MAX),
	FIELD_U64_OR(struct claim_params, rank, 0, UINT64_MAX),
	FIELD_WAIT_MS(struct claim_params),
	FIELD_OWNER(struct claim_params, owner),
};
static const struct record claim_params = {RECORD(struct claim_params, claim_params_rows),
					   .check = check_claim};

static const struct record_field claim_result_rows[] = {
	FIELD_BOOL_OR(struct claim_result, claimed, false),
};
static const struct record claim_result = {RECORD(struct claim_result, claim_result_rows)};

/* A claim that was granted has ended with its connection. */
const struct message_form form_claim = {
	.name = "claim", .params = &claim_params, .result = &claim_result, .again = true};

static const struct record_field claim_give_up_params_rows[] = {
	FIELD_NAME(struct claim_give_up_params, name),
};
static const struct record claim_give_up_params = {
	RECORD(struct claim_give_up_params, claim_give_up_params_rows)};

const struct message_form form_claim_give_up = {
	.name = "claim_give_up", .params = &claim_give_up_params, .result = &record_nothing};

/* ---- revoked ---- */

static const struct record_field revoked_params_rows[] = {
	FIELD_TEXT(struct revoked_params, reason, TEXT_BYTES_MAX),
	FIELD_U64S(struct revoked_params, leases, REVOKED_PER_PACKET),
};
static const struct record revoked_params = {RECORD(struct revoked_params, revoked_params_rows)};

const struct message_form form_revoked = {.name = "revoked", .params = &revoked_params};
