/* common/plain_file.h - opens what is a file and nothing else. */
#ifndef SG_COMMON_PLAIN_FILE_H
#define SG_COMMON_PLAIN_FILE_H

/* open(2) with O_CLOEXEC, for files alone: a FIFO would keep its opener waiting past every time limit, and a device may
 * never end. New files get the mode 0666. Waits for nobody. Returns 0 and a descriptor in *fd, or the error: EISDIR for
 * a folder, ENXIO for what is neither file nor folder, otherwise that of the call. */
int sg_plain_file_open(const char *path, int flags, int *fd);

#endif
