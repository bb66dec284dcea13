/* A progress line on a terminal with escape sequences; prints nothing elsewhere or with -q. */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

/* Replaces the line, at most ten times a second. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "[======    ] 61%", into `text` of 32 bytes, which is returned. */
const char *progress_bar(double share, char *text);

/* Removes the line. */
void progress_clear(void);

#endif
