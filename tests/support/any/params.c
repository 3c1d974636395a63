#include "params.h"

void param_put_text(struct message_writer *w, const struct param *param)
{
	message_put_text(w, param->key, param->text);
}

void param_put_number(struct message_writer *w, const struct param *param)
{
	message_put_u64(w, param->key, param->number);
}

void param_put_signed(struct message_writer *w, const struct param *param)
{
	message_put_i64(w, param->key, (int64_t)param->number);
}

void param_put_flag(struct message_writer *w, const struct param *param)
{
	message_put_bool(w, param->key, param->number);
}

void param_put_id(struct message_writer *w, const struct param *param)
{
	message_put_hex128(w, param->key, param->id);
}

void params_put(struct message_writer *w, const struct param *params)
{
	for (; params && params->key; params++)
		params->put(w, params);
}
