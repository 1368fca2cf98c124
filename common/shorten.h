/* common/shorten.h - a line that is too long keeps what matters: its beginning and its end. */
#ifndef SG_COMMON_SHORTEN_H
#define SG_COMMON_SHORTEN_H

#include <stddef.h>

/* Makes text at most max_bytes long (at least 3), in place. What is too much is taken out of the middle of the longest
 * words, which are paths and addresses as a rule, so that the words after them, often what to do, survive; only where
 * that does not suffice the end goes, between two words. "..." stands for what is missing. No UTF-8 character is cut
 * in two. The time grows with the length times the number of long words: bound the text first. */
void sg_shorten(char *text, size_t max_bytes);

#endif
