/* worker/cli/program.h - where the programs that belong to `shardgrad` lie. */
#ifndef SG_WORKER_CLI_PROGRAM_H
#define SG_WORKER_CLI_PROGRAM_H

/* The program of this name beside the one that runs; NULL if there is none. Freed by free(). */
char *sg_program_beside(const char *name);
/* That, or else the bare name, to be looked up in PATH. Freed by free(). */
char *sg_program_find(const char *name);
/* The program that runs. Freed by free(). */
char *sg_program_self(void);

#endif
