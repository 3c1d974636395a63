#include "versions_internal.h"
#include "../../proto/methods.h"

static void begin(struct work *work, struct message_writer *w, const char *kind, const struct version *version)
{
	event_begin(work->ledger->events, w, kind);
	message_put_hex128(w, "version", version->id.bytes);
	message_put_text(w, "model", model_name(version->model));
	message_put_text(w, "tag", version->tag);
}

/* The model is there: the version is. */
static void emit(struct work *work, struct message_writer *w, const struct model *model)
{
	event_emit_about(work->ledger->events, w,
			 &(struct event_about){.model = model_name(model), .owner = model_owner(model)});
}

void tell_version(struct work *work, const char *kind, const struct version *version)
{
	struct message_writer w;

	begin(work, &w, kind, version);
	emit(work, &w, version->model);
}

void tell_retiring(struct work *work, const struct version *version, const uint64_t *after_ms)
{
	struct message_writer w;

	begin(work, &w, EVENT_RETIRING, version);
	if (after_ms)
		message_put_u64(&w, "force_in_ms", *after_ms);
	emit(work, &w, version->model);
}

void tell_failed(struct work *work, const struct version *version)
{
	struct message_writer w;

	begin(work, &w, EVENT_FAILED, version);
	message_put_error(&w, "error", &version->error);
	emit(work, &w, version->model);
}

void tell_tainted(struct work *work, const struct version *version, const struct replica *replica,
		  const struct error *found)
{
	struct message_writer w;

	begin(work, &w, EVENT_TAINTED, version);
	message_put_text(&w, "device", replica->device->id);
	message_put_u64(&w, "rank", replica->rank);
	message_put_error(&w, "error", found);
	emit(work, &w, version->model);
}

void tell_swapped(struct work *work, const char *model, const char *alias, const struct swap_result *result)
{
	struct message_writer w;

	event_begin(work->ledger->events, &w, EVENT_SWAPPED);
	message_put_text(&w, "model", model);
	message_put_text(&w, "alias", alias);
	if (result->now)
		message_put_hex128(&w, "version", result->now->id.bytes);
	if (result->old)
		message_put_hex128(&w, "old", result->old->id.bytes);
	message_put_u64(&w, "generation", result->generation);
	emit(work, &w, registry_model(work->ledger->registry, model));
}
