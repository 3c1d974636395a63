/* What the exporter answers to whom. */
#ifndef GPUWM_EXPORTER_ROUTES_H
#define GPUWM_EXPORTER_ROUTES_H

#include "source.h"
#include "token.h"

#include <microhttpd.h>

/* Who sees more than totals: who shows the token, or everybody. */
struct admission {
	struct token token;
	bool for_all;
};

struct routes {
	const struct admission *admission;
	struct source *source;
	struct tally *tally;
};

/* Answers a GET or HEAD for the path. A client without a token gets what everybody may see. */
enum MHD_Result routes_answer(const struct routes *routes, struct MHD_Connection *connection, const char *path);
/* Answers with an error and a line of text, which is static. */
enum MHD_Result routes_refuse(const struct routes *routes, struct MHD_Connection *connection, unsigned code,
			      const char *text);

#endif
