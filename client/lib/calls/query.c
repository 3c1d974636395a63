/* Results for people and programs, as JSON. */
#include "../request/call.h"

#include "../json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What can be asked. Each takes at most one filter, which is a text or a number. */
static const struct message_form *const questions[] = {&form_list,        &form_status,  &form_clients,
						       &form_own_clients, &form_metrics, &form_jobs,
						       &form_drain,       &form_reload,  &form_region_list};

/* filter may be NULL. */
static int question_begin(struct call *call, struct gpuwm_client *client, const struct message_form *form,
			  const char *filter, struct error *error)
{
	uint64_t number = 0;
	char *end;

	if (form == &form_list) {
		call_begin(call, client, form, &(struct list_params){.model = filter});
	} else if (form == &form_region_list) {
		call_begin(call, client, form, &(struct region_list_params){.region = filter});
	} else if (form == &form_drain) {
		const bool keeps = filter && strcmp(filter, GPUWM_DRAIN_KEEPS) == 0;

		call_begin(call, client, form,
			   &(struct drain_params){.device = keeps ? NULL : filter, .keep_descriptions = keeps});
	} else if (form == &form_jobs) {
		if (filter) {
			errno = 0;
			number = strtoull(filter, &end, 10);
			if (errno || *end || *filter < '0' || *filter > '9')
				return error_set(error, -EINVAL, NULL, "%s: \"%.64s\" is no number", form->name,
						 filter);
		}
		call_begin(call, client, form, &(struct jobs_params){.job = filter ? &number : NULL});
	} else if (filter) {
		return error_set(error, -EINVAL, NULL, "%s takes no filter", form->name);
	} else {
		call_begin(call, client, form, NULL);
	}
	return 0;
}

static int query(struct gpuwm_client *client, const char *method, const char *filter, char **ret,
		 struct error *error)
{
	const struct message_form *form = NULL;
	struct call call;
	struct reply reply;
	int r;

	for (size_t i = 0; method && !form && i < sizeof(questions) / sizeof(*questions); i++) {
		if (strcmp(questions[i]->name, method) == 0)
			form = questions[i];
	}
	if (!form)
		return error_set(
			error, -EINVAL,
			"list, status, clients, own_clients, metrics, jobs, drain, reload or region_list",
			"there is no query \"%.64s\"", method ? method : "(none)");
	r = question_begin(&call, client, form, filter, error);
	if (r == 0)
		r = call_run(&call, 0, &reply, error);
	if (r < 0)
		return r;
	*ret = json_text(reply.message.body);
	reply_clear(&reply);
	return *ret ? 0 : error_set(error, -ENOMEM, NULL, "out of memory for the result of %s", method);
}

int gpuwm_query(struct gpuwm_client *client, const char *method, const char *filter, char **ret_json)
{
	struct error error;
	char *json = NULL;
	int r = client_check(client, &error);

	if (r == 0)
		r = query(client, method, filter, &json, &error);
	if (r < 0)
		return client_fail(&error);
	*ret_json = json;
	return 0;
}
