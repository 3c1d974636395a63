/* Results for people and programs, as JSON. */
#include "call.h"

#include "json.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What can be asked, and the key that a filter goes under. */
static const struct question {
	const char *method;
	const char *filter; /* NULL: takes none */
	bool is_number;
} questions[] = {
	{METHOD_LIST, "model", false}, {METHOD_STATUS, NULL, false},    {METHOD_CLIENTS, NULL, false},
	{METHOD_JOBS, "job", true},    {METHOD_DRAIN, "device", false}, {METHOD_RELOAD, NULL, false},
};

static const struct question *question_find(const char *method)
{
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		if (method && strcmp(questions[i].method, method) == 0)
			return &questions[i];
	}
	return NULL;
}

static int number_parse(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || *end || *text < '0' || *text > '9' ? -EINVAL : 0;
}

static int query(struct gpuwm_client *client, const char *method, const char *filter, char **ret,
		 struct error *error)
{
	const struct question *question = question_find(method);
	struct call call;
	struct reply reply;
	uint64_t number = 0;
	int r;

	if (!question)
		return error_set(error, -EINVAL, "list, status, clients, jobs, drain or reload",
				 "there is no query \"%.64s\"", method ? method : "(NULL)");
	if (filter && !question->filter)
		return error_set(error, -EINVAL, NULL, "%s takes no filter", method);
	if (filter && question->is_number && number_parse(filter, &number) < 0)
		return error_set(error, -EINVAL, NULL, "%s: \"%.64s\" is no number", method, filter);
	call_begin(&call, client, &(const struct message_form){.name = method}, NULL);
	if (filter && question->is_number)
		message_put_u64(&call.request, question->filter, number);
	else if (filter)
		message_put_text(&call.request, question->filter, filter);
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
