/* JSON values as YAML 1.1 and 1.2, with the same meaning in both. */
#ifndef GPUWM_CTL_YAML_H
#define GPUWM_CTL_YAML_H

#include <jansson.h>
#include <stdio.h>

/* Writes one document, which begins with "---". ferror tells whether a write failed. */
void yaml_write(FILE *stream, const json_t *value);

#endif
