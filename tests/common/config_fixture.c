#include "config_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

const char config_everything[] = "job: a.b-c_1\n"
                                 "seed: 18446744073709551615\n"
                                 "ps: [node1:5000, \"[fe80::1%eth0]:5001\"]\n"
                                 "advertise:\n"
                                 "  - node1.lan:5000\n"
                                 "  - 'node2:5001'\n"
                                 "workers: 3\n"
                                 "max_workers: 1024\n"
                                 "min_workers: 2\n"
                                 "on_worker_loss: abort\n"
                                 "threads: 8\n"
                                 "rpc_threads: 2\n"
                                 "connections: 16\n"
                                 "slice_bytes: 64KiB\n"
                                 "message_bytes: 4194304\n"
                                 "contribution_bytes: 100MiB\n"
                                 "lease_ms: 60001\n"
                                 "park_ms: 60000\n"
                                 "warn_after_ms: 1\n"
                                 "start_timeout_ms: 86400000\n"
                                 "shutdown_grace_ms: 17\n"
                                 "linger: true\n"
                                 "run_dir: 'it''s \"here\" \\ #1: \xc3\xa9'\n"
                                 "log_level: debug\n"
                                 "update:\n"
                                 "  mode: async\n"
                                 "  staleness: 7\n"
                                 "  backup_workers: 1\n"
                                 "  rule: adam\n"
                                 "  learning_rate: 1e-3\n"
                                 "  momentum: 0\n"
                                 "  beta1: .5\n"
                                 "  beta2: 0.1234567890123456789\n"
                                 "  epsilon: 1\n"
                                 "  weight_decay: 5e-324\n"
                                 "  schedule: cosine\n"
                                 "  warmup_steps: 9\n"
                                 "  decay_steps: 10\n"
                                 "  decay_factor: 0.30000000000000004\n"
                                 "  non_finite: apply\n"
                                 "train: {batch: 129, epochs: 1000000, steps: 20}\n"
                                 "checkpoint: {dir: /tmp/c, every: 100, keep: 7}\n"
                                 "restore: 1200\n"
                                 "restarts: 4\n"
                                 "model:\n"
                                 "  name: mlp\n"
                                 "  hidden: []\n"
                                 "  layers: [\"conv2d 4 window 3\", flatten, dense 10, '12']\n"
                                 "data:\n"
                                 "  train_images: \"\"\n"
                                 "  train_labels: /a/b.gz\n"
                                 "  test_images: \"true\"\n"
                                 "  test_labels: \"07\"\n"
                                 "security: {ca: c, certificate: d, key: e, token_file: f, insecure: true}\n";

sg_config *config_parsed(const char *text)
{
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), "c.yaml", NULL, 0, &config, &err), SG_OK, "%s", err.message);
    return config;
}
