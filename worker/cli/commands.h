/* worker/cli/commands.h - the commands of `shardgrad`. Each gets argv from its own name on and returns the exit
 * code. */
#ifndef SG_WORKER_CLI_COMMANDS_H
#define SG_WORKER_CLI_COMMANDS_H

int sg_run_main(int argc, char **argv);
int sg_status_main(int argc, char **argv);
int sg_export_main(int argc, char **argv);
int sg_import_main(int argc, char **argv);
int sg_save_main(int argc, char **argv);
int sg_set_main(int argc, char **argv);
int sg_bench_main(int argc, char **argv);
int sg_check_config_main(int argc, char **argv);
int sg_version_main(int argc, char **argv);

#endif
