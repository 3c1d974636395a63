#include "messages.h"

const struct record record_nothing = {0};

const struct message_form *const message_forms[] = {
	&form_hello,
	&form_ping,
	&form_subscribe,
	&form_event,
	&form_lost,
	&form_list,
	&form_status,
	&form_clients,
	&form_own_clients,
	&form_metrics,
	&form_get_handles,
	&form_release,
	&form_announce,
	&form_park,
	&form_unpark,
	&form_resume,
	&form_claim,
	&form_claim_give_up,
	&form_revoked,
	&form_publish_begin,
	&form_publish_commit,
	&form_publish_abort,
	&form_region_create,
	&form_region_open,
	&form_region_close,
	&form_region_remove,
	&form_scratch_acquire,
	&form_scratch_release,
	&form_region_list,
	&form_load,
	&form_verify,
	&form_jobs,
	&form_cancel,
	&form_pin_version,
	&form_unpin_version,
	&form_hot_swap,
	&form_demote,
	&form_promote,
	&form_describe,
	&form_retire,
	&form_remove,
	&form_kick,
	&form_drain,
	&form_reload,
	&form_job_load,
	&form_job_check,
	&form_job_verify,
	&form_job_move,
	&form_job_region,
	&form_job_hold,
	&form_job_cancel,
	&form_hand_in,
	&form_hand_files,
	&form_warm,
	&form_report,
	&form_loader_hello,
	&form_loader_devices,
	&form_loader_roots,
	&form_loader_warm,
	&form_loader_progress,
	&form_loader_done,
	&form_loader_checked,
	&form_loader_region,
	&form_loader_moved,
	&form_loader_resident,
	&form_loader_holds,
	NULL, /* the end */
};

void message_write_request(struct message_writer *w, uint64_t id, const struct message_form *form,
			   const void *params)
{
	message_writer_init(w, PACKET_BYTES_MAX);
	message_request(w, id, form->name);
	record_put(w, form->params, params);
	message_end(w);
}

void message_write_notification(struct message_writer *w, const struct message_form *form, const void *params)
{
	message_writer_init(w, PACKET_BYTES_MAX);
	message_notification(w, form->name);
	record_put(w, form->params, params);
	message_end(w);
}
