/* Patterns of model names: which values `match` of a section may have. */
#ifndef GPUWM_DAEMON_PATTERN_H
#define GPUWM_DAEMON_PATTERN_H

/* Returns NULL if a model's name can match the pattern, else what is wrong with the pattern, as the end of a sentence. A
 * pattern that matches no name is refused, since its section would protect nothing. */
const char *pattern_wrong(const char *pattern);

#endif
