#include "format.h"

const struct format *const formats[] = {
	&format_safetensors,
	NULL,
};
