/* Patterns of models' names, as rules_match compares them: what `match` of a section may be. */
#ifndef GPUWM_DAEMON_PATTERN_H
#define GPUWM_DAEMON_PATTERN_H

/* NULL if a model's name can match the pattern, else what is wrong with the pattern, as the end of a sentence. A
 * pattern that matches nothing would hide nothing. */
const char *pattern_wrong(const char *pattern);

#endif
