/* The words of each change for the audit: what the request asks for. */
#ifndef GPUWM_DAEMON_WORDS_H
#define GPUWM_DAEMON_WORDS_H

#include "../clients/audit.h"
#include "../clients/request.h"

/* Describes a request with these params, a struct of the params of the method's form, before the method runs. Returns false if the
 * request changes nothing that others see. */
typedef bool words_fn(const struct request *request, const void *params, struct audit *ret);

words_fn words_load, words_cancel, words_publish_begin, words_publish_commit, words_hot_swap, words_pin_version,
	words_unpin_version, words_demote, words_promote, words_describe, words_retire, words_remove,
	words_verify, words_kick, words_drain, words_reload, words_region_create, words_region_remove;

#endif
