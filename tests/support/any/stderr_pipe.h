/* stderr as a pipe, for tests of what a program logs. */
#ifndef GPUWM_TESTS_ANY_STDERR_PIPE_H
#define GPUWM_TESTS_ANY_STDERR_PIPE_H

/* From here on stderr is a pipe, and no journal. For the rest of the process. */
void stderr_pipe(void);
/* Returns what was written since the last call. The text stays until the next one. */
const char *stderr_written(void);
/* The same where the pipe may be full. Something must have been written. */
const char *stderr_read(void);
/* Fills the pipe: whoever writes now would wait. */
void stderr_fill(void);
/* From here on nobody can read it, and then it is closed. */
void stderr_end(void);

#endif
