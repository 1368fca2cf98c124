/* What is no cluster file, and what is wrong in one: one line that says where, what was found, what was wanted. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config_fixture.h"
#include "tests/support/seed.h"

TestSuite(config_refused, .timeout = 20);

typedef struct wrong {
    const char *text;    /* of the file */
    const char *message; /* beginning of what is said about it, after "c.yaml" */
} wrong;

static void refuse(const char *text, size_t n_bytes, const char *message)
{
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, &err), SG_CONFIG, "%s", text);
    cr_assert_null(config);
    cr_assert_eq(strncmp(err.message, message, strlen(message)), 0, "%s\nsaid   %s\nwanted %s", text, err.message,
                 message);
    cr_assert_eq(sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, NULL), SG_CONFIG);
}

static void refuse_all(const wrong *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        refuse(rows[i].text, strlen(rows[i].text), rows[i].message);
}

Test(config_refused, a_key_that_is_none_is_refused_with_what_was_perhaps_meant)
{
    static const wrong rows[] = {
        {"update:\n  lerning_rate: 1\n",
         "c.yaml:2:3: update.lerning_rate: is not a key (did you mean update.learning_rate?)"},
        {"workrs: 1\n", "c.yaml:1:1: workrs: is not a key (did you mean workers?)"},
        {"learning_rate: 1\n", "c.yaml:1:1: learning_rate: is not a key (did you mean update.learning_rate?)"},
        {"updat:\n  mode: sync\n", "c.yaml:1:1: updat: is not a key (did you mean update?)"},
        {"workers: 2\n\n\nxyzzy: 1\n", "c.yaml:4:1: xyzzy: is not a key; configs/README.md lists them"},
        {"update.mode: sync\n",
         "c.yaml:1:1: update.mode: belongs into a map: write 'update:' and below it, indented, 'mode: ...'"},
        {"update: {momentum: 0.9, momemtum: 0.8}\n",
         "c.yaml:1:25: update.momemtum: is not a key (did you mean update.momentum?)"},
        {"update: {clip: 1}\n", "c.yaml:1:10: update.clip: is not a key (did you mean update.clip_global_norm?)"},
        {"update: {flip: true}\n", "c.yaml:1:10: update.flip: is not a key (did you mean data.flip?)"},
        {"train: {test_every: 5}\n",
         "c.yaml:1:9: train.test_every: is not a key (did you mean train.test_every_steps?)"},
        {"lease: 5\n", "c.yaml:1:1: lease: is not a key (did you mean lease_ms?)"},
        {"test_every: 5\n", "c.yaml:1:1: test_every: is not a key (did you mean train.test_every_steps?)"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, a_key_given_twice_is_refused_with_both_places)
{
    static const wrong rows[] = {
        {"workers: 2\nseed: 1\nworkers: 2\n", "c.yaml:3:1: workers: is here a second time, first in line 1"},
        {"update:\n  mode: sync\n  mode: sync\n", "c.yaml:3:3: update.mode: is here a second time, first in line 2"},
        {"update:\n  mode: sync\ntrain:\n  batch: 1\nupdate:\n  rule: sgd\n",
         "c.yaml:5:1: update: is here a second time, first in line 1"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, a_number_written_in_a_doubtful_way_is_refused_with_the_way_to_write_it)
{
    static const wrong rows[] = {
        {"workers: \"2\"\n",
         "c.yaml:1:10: workers: found the text \"2\", wanted a whole number from 1 to 1024 (in quotes "
         "it is text: write it without)"},
        {"workers: 07071\n",
         "c.yaml:1:10: workers: found '07071', wanted a whole number from 1 to 1024 (a leading zero "
         "means octal to some: write 7071)"},
        {"workers: 0x10\n",
         "c.yaml:1:10: workers: found '0x10', wanted a whole number from 1 to 1024 (write it in decimal: 16)"},
        {"workers: 0o17\n",
         "c.yaml:1:10: workers: found '0o17', wanted a whole number from 1 to 1024 (write it in decimal: 15)"},
        {"workers: 1_000\n",
         "c.yaml:1:10: workers: found '1_000', wanted a whole number from 1 to 1024 (write it without '_')"},
        {"update: {momentum: 00.5}\n",
         "c.yaml:1:20: update.momentum: found '00.5', wanted a number from 0 to below 1 (a "
         "leading zero means octal to some: write 0.5)"},
        {"update: {learning_rate: '0.1'}\n",
         "c.yaml:1:25: update.learning_rate: found the text \"0.1\", wanted a number"},
        {"slice_bytes: 01KiB\n", "c.yaml:1:14: slice_bytes: found '01KiB', wanted bytes such as 65536, 64KiB or 1MiB, "
                                 "from 64 to 1GiB (a leading zero means octal to some: write 1KiB)"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, a_number_that_is_none_or_out_of_range_is_refused)
{
    static const wrong rows[] = {
        {"workers: 0\n", "c.yaml:1:10: workers: found '0', wanted a whole number from 1 to 1024"},
        {"workers: 1025\n", "c.yaml:1:10: workers: found '1025', wanted a whole number from 1 to 1024"},
        {"workers: -1\n", "c.yaml:1:10: workers: found '-1'"},
        {"workers: +1\n", "c.yaml:1:10: workers: found '+1'"},
        {"workers: 2.0\n", "c.yaml:1:10: workers: found '2.0'"},
        {"workers: 1e3\n", "c.yaml:1:10: workers: found '1e3'"},
        {"workers: .inf\n", "c.yaml:1:10: workers: found '.inf'"},
        {"workers: two\n", "c.yaml:1:10: workers: found 'two'"},
        {"workers: true\n", "c.yaml:1:10: workers: found 'true'"},
        {"workers: 99999999999999999999999\n", "c.yaml:1:10: workers: found '99999999999999999999999'"},
        {"workers: 2 3\n", "c.yaml:1:10: workers: found '2 3'"},
        {"seed: 18446744073709551616\n", "c.yaml:1:7: seed: found '18446744073709551616'"},
        {"lease_ms: 5s\n", "c.yaml:1:11: lease_ms: found '5s', wanted whole milliseconds from 10 to 86400000"},
        {"slice_bytes: 1MB\n", "c.yaml:1:14: slice_bytes: found '1MB'"},
        {"slice_bytes: 1 MiB\n", "c.yaml:1:14: slice_bytes: found '1 MiB'"},
        {"slice_bytes: 2GiB\n", "c.yaml:1:14: slice_bytes: found '2GiB'"},
        {"slice_bytes: 18014398509481985KiB\n", "c.yaml:1:14: slice_bytes: found '18014398509481985KiB'"},
        {"train: {label_smoothing: 1}\n",
         "c.yaml:1:26: train.label_smoothing: found '1', wanted a number from 0 to below 1"},
        {"update: {momentum: 1}\n", "c.yaml:1:20: update.momentum: found '1', wanted a number from 0 to below 1"},
        {"update: {beta1: -.1}\n", "c.yaml:1:17: update.beta1: found '-.1'"},
        {"update: {beta2: 1.0}\n", "c.yaml:1:17: update.beta2: found '1.0'"},
        {"update: {epsilon: 0}\n", "c.yaml:1:19: update.epsilon: found '0', wanted a number above 0 to 1"},
        {"update: {learning_rate: .nan}\n", "c.yaml:1:25: update.learning_rate: found '.nan'"},
        {"update: {learning_rate: inf}\n", "c.yaml:1:25: update.learning_rate: found 'inf'"},
        {"update: {learning_rate: 1e999}\n", "c.yaml:1:25: update.learning_rate: found '1e999'"},
        {"update: {learning_rate: 0x1p3}\n", "c.yaml:1:25: update.learning_rate: found '0x1p3'"},
        {"update: {learning_rate: 1e}\n", "c.yaml:1:25: update.learning_rate: found '1e'"},
        {"update: {learning_rate: .}\n", "c.yaml:1:25: update.learning_rate: found '.'"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, a_value_of_another_type_is_refused)
{
    static const wrong rows[] = {
        {"workers:\n", "c.yaml:1:1: workers: found nothing, wanted a whole number"},
        {"workers: {a: 1}\n", "c.yaml:1:10: workers: found a map, wanted a whole number"},
        {"workers: [1]\n", "c.yaml:1:10: workers: found a list of 1, wanted a whole number"},
        {"linger: yes\n", "c.yaml:1:9: linger: found 'yes', wanted true or false (write true)"},
        {"linger: \"true\"\n", "c.yaml:1:9: linger: found the text \"true\", wanted true or false (write true)"},
        {"linger: Off\n", "c.yaml:1:9: linger: found 'Off', wanted true or false (write false)"},
        {"job: 12\n", "c.yaml:1:6: job: found '12', wanted a name"},
        {"run_dir: true\n",
         "c.yaml:1:10: run_dir: found 'true', wanted a line of at most 4096 bytes (if text is meant, write \"true\")"},
        {"run_dir:\n", "c.yaml:1:1: run_dir: found nothing, wanted a line"},
        {"run_dir: [a]\n", "c.yaml:1:10: run_dir: found a list of 1, wanted a line"},
        {"run_dir: \"a\\nb\"\n", "c.yaml:1:10: run_dir: found the text \"a b\", wanted a line"},
        {"run_dir: \"a\\u2028b\"\n", "c.yaml:1:10: run_dir: found the text"},
        {"job: a/b\n", "c.yaml:1:6: job: found 'a/b', wanted a name of at most 64 letters, digits, '.', '_' and '-'"},
        {"job: ..\n", "c.yaml:1:6: job: found '..', wanted a name"},
        {"job: \"\"\n", "c.yaml:1:6: job: found the text \"\", wanted a name"},
        {"update: 5\n", "c.yaml:1:9: update: found a value, wanted a map"},
        {"update:\n", "c.yaml:1:1: update: found nothing, wanted a map"},
        {"update: []\n", "c.yaml:1:9: update: found a list, wanted a map"},
        {"update:\n  mode: [sync]\n", "c.yaml:2:9: update.mode: found a list of 1, wanted one of sync, async"},
        {"update:\n  mode:\n", "c.yaml:2:3: update.mode: found nothing, wanted one of sync, async"},
        {"model: {layers: {relu: 1}}\n",
         "c.yaml:1:17: model.layers: found a map, wanted a list such as [this, that], of at most 256"},
        {"model: {layers: ''}\n", "c.yaml:1:17: model.layers: found the text \"\", wanted a list"},
        {"model: {layers: [relu, [relu]]}\n", "c.yaml:1:24: model.layers: found a list of 1, wanted a line of at most"},
        {"model: {hidden: 64}\n", "c.yaml:1:17: model.hidden: found '64', wanted a list of at most 64 whole numbers"},
        {"model: {hidden: [64, x]}\n", "c.yaml:1:22: model.hidden: found 'x', wanted a whole number from 1"},
        {"model:\n  hidden:\n    - 64\n    - [1]\n",
         "c.yaml:4:7: model.hidden: found a list of 1, wanted a whole number"},
        {"ps: a:1\n", "c.yaml:1:5: ps: found 'a:1', wanted a list of 1 to 1024 host:port"},
        {"ps: []\n", "c.yaml:1:5: ps: found a list of 0, wanted a list of 1 to 1024 host:port"},
        {"ps: [[a]]\n", "c.yaml:1:6: ps: found a list of 1, wanted host:port"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, a_word_that_is_none_of_the_choices_is_refused_with_the_choices)
{
    static const wrong rows[] = {
        {"update:\n  mode: asink\n",
         "c.yaml:2:9: update.mode: 'asink' is not one of sync, async, ssp (did you mean async?)"},
        {"update: {rule: adem}\n", "c.yaml:1:16: update.rule: 'adem' is not one of sgd, momentum, nesterov, adagrad, "
                                   "rmsprop, adam, adamw, average, lars, lamb (did you "
                                   "mean adam?)"},
        {"update: {schedule: linear}\n", "c.yaml:1:20: update.schedule: 'linear' is not one of constant, step, cosine"},
        {"log_level: INFO\n", "c.yaml:1:12: log_level: 'INFO' is not one of debug, info, warn, error"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, an_address_that_is_none_is_refused_at_its_place)
{
    static const wrong rows[] = {
        {"ps: [a:1, b]\n", "c.yaml:1:11: ps: found 'b', wanted host:port, such as 127.0.0.1:5000"},
        {"ps:\n  - a:1\n  - a:70000\n",
         "c.yaml:3:5: ps: found port '70000' in 'a:70000', wanted a number from 0 to 65535"},
        {"ps: [a:01]\n", "c.yaml:1:6: ps: found port '01'"},
        {"ps: [a: 1]\n", "c.yaml:1:7: ps: found a map, wanted host:port"},
        {"ps: ['a:']\n", "c.yaml:1:6: ps: found port ''"},
        {"ps: [':1']\n", "c.yaml:1:6: ps: found ':1', wanted host:port"},
        {"ps: ['a b:1']\n", "c.yaml:1:6: ps: found 'a b:1', wanted host:port"},
        {"ps: ['http://a:1']\n", "c.yaml:1:6: ps: found 'http://a:1', wanted host:port"},
        {"ps: ['::1:5']\n",
         "c.yaml:1:6: ps: found '::1:5', wanted host:port (an IPv6 address goes in brackets: \"[::1]:5000\")"},
        {"ps: ['[::1]']\n", "c.yaml:1:6: ps: found '[::1]', wanted host:port"},
        {"ps: ['[::1']\n", "c.yaml:1:6: ps: found '[::1', wanted host:port"},
        {"ps: [a:1, A:1]\n", "c.yaml:1:5: ps: entries 0 and 1 are both A:1"},
        {"ps: ['0.0.0.0:1']\n", "c.yaml:1:5: ps: 0.0.0.0:1 is where a ps may listen but not where it is found"},
        {"ps: [a:1, b:1]\nadvertise: [c:1]\n", "c.yaml:2:12: advertise: found 2 ps and 1 advertised addresses"},
        {"ps: ['[::]:1', '[::]:1']\nadvertise: [c:1, c:1]\n", "c.yaml:2:12: advertise: entries 0 and 1 are both c:1"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
    sg_config_destroy(config_parsed("ps: [127.0.0.1:0, 127.0.0.1:0]\n"));
    sg_config_destroy(
        config_parsed("ps: ['0.0.0.0:5', '0.0.0.0:5']\nadvertise: [a:5, b:5]\nsecurity: {insecure: true}\n"));
}

Test(config_refused, listening_beyond_this_machine_takes_tls_or_the_word_insecure)
{
    static const wrong rows[] = {
        {"ps: ['10.0.0.1:5000']\n", "c.yaml:1:5: ps: 10.0.0.1:5000 is beyond this machine and there is no TLS: set "
                                    "security.ca, certificate and key (scripts/make-certs makes them), or "
                                    "security.insecure: true"},
        {"ps: ['127.0.0.1:1', 'node1:1']\n", "c.yaml:1:5: ps: node1:1 is beyond this machine"},
        {"ps: ['0.0.0.0:1']\nadvertise: ['127.0.0.1:1']\n", "c.yaml:1:5: ps: 0.0.0.0:1 is beyond this machine"},
        {"ps: ['node1:1']\nsecurity: {token_file: t}\n", "c.yaml:1:5: ps: node1:1 is beyond this machine"},
        {"security: {ca: a}\n", "c.yaml:1:16: security.ca: is given and security.key is not: TLS needs ca, certificate "
                                "and key"},
        {"security:\n  key: a\n  certificate: b\n", "c.yaml:2:8: security.key: is given and security.ca is not"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
    sg_config_destroy(config_parsed("ps: ['127.9.9.9:1', '[::1]:1', 'localhost:1']\nadvertise: [a:1, b:1, c:1]\n"));
    sg_config_destroy(config_parsed("ps: ['node1:1']\nsecurity: {insecure: true}\n"));
    sg_config_destroy(config_parsed("ps: ['node1:1']\nsecurity: {ca: a, certificate: b, key: c}\n"));
}

Test(config_refused, keys_that_do_not_go_together_are_refused_where_the_fault_was_made)
{
    static const wrong rows[] = {
        {"slice_bytes: 100\n", "c.yaml:1:14: slice_bytes: found 100, wanted a multiple of 64, such as 64"},
        {"slice_bytes: 2MiB\n", "c.yaml:1:14: slice_bytes: found 2097152, and message_bytes is 1048576: wanted "
                                "slice_bytes at most message_bytes; change one of them"},
        {"seed: 2\nmessage_bytes: 64KiB\n", "c.yaml:2:16: message_bytes: found 65536, and slice_bytes is 524288"},
        {"contribution_bytes: 64\n",
         "c.yaml:1:21: contribution_bytes: found 64, and slice_bytes is 524288: wanted room for two slices, or nearly "
         "every push would be refused and sent again; set contribution_bytes to at least 1048576"},
        {"slice_bytes: 128\ncontribution_bytes: 255\n", "c.yaml:2:21: contribution_bytes: found 255, and slice_bytes"},
        {"contribution_bytes: 1MiB\nslice_bytes: 524352\n", "c.yaml:1:21: contribution_bytes: found 1048576"},
        {"workers: 65\n", "c.yaml:1:10: workers: found 65, and max_workers is 64"},
        {"park_ms: 5000\n", "c.yaml:1:10: park_ms: found 5000, and lease_ms is 5000: wanted park_ms below lease_ms"},
        {"update: {rule: nesterov, momentum: 0}\n", "c.yaml:1:36: update.momentum: rule is nesterov and momentum is 0"},
        {"update: {rule: lars, mode: async}\n",
         "c.yaml:1:16: update.rule: rule lars or lamb needs norms of whole variables"},
        {"update: {mode: ssp, rule: lamb}\n",
         "c.yaml:1:27: update.rule: rule lars or lamb needs norms of whole variables"},
        {"update: {clip_global_norm: 1, mode: async}\n",
         "c.yaml:1:28: update.clip_global_norm: clip_global_norm needs the norm of a whole gradient"},
        {"update: {clip_global_norm: 1, rule: lamb}\n",
         "c.yaml:1:28: update.clip_global_norm: clip_global_norm is not for rule lamb, "},
        {"update: {rule: average, clip_global_norm: 1}\n",
         "c.yaml:1:43: update.clip_global_norm: clip_global_norm is not for"},
        {"update: {wire: bf16, rule: average}\n", "c.yaml:1:16: update.wire: wire is bf16 and rule is average"},
        {"update: {mode: async}\non_worker_loss: wait\n",
         "c.yaml:2:17: on_worker_loss: no step of async waits for a lost worker, as on_worker_loss: wait wants: set "
         "on_worker_loss to continue or abort, or update.mode to sync"},
        {"on_worker_loss: wait\nupdate:\n  mode: ssp\n",
         "c.yaml:1:17: on_worker_loss: no step of ssp waits for a lost worker"},
        {"workers: 2\nupdate: {backup_workers: 2}\n",
         "c.yaml:2:26: update.backup_workers: found 2, and workers is 2: wanted update.backup_workers "
         "below workers; change one of them"},
        {"min_workers: 65\n", "c.yaml:1:14: min_workers: found 65, and max_workers is 64: wanted"},
        {"update: {trust: 0}\n", "c.yaml:1:17: update.trust: "},
        {"update: {clip_global_norm: -1}\n", "c.yaml:1:28: update.clip_global_norm: "},
        {"update: {schedule: step}\n", "c.yaml:1:20: update.schedule: schedule is not constant and decay_steps is 0"},
        {"update: {schedule: cosine, warmup_steps: 10, decay_steps: 10}\n", "c.yaml:1:42: update.warmup_steps: "},
        {"checkpoint:\n  every: 5\n", "c.yaml:2:10: checkpoint.every: found 5, and checkpoint.dir, the folder"},
        {"workers: 1\nrestore: 5\n", "c.yaml:2:10: restore: 5 is the iteration of a checkpoint, and checkpoint.dir"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, what_means_something_in_another_mode_alone_is_read)
{
    sg_config_destroy(config_parsed("update: {mode: async}\non_worker_loss: abort\n"));
    sg_config_destroy(config_parsed("workers: 1\nupdate: {mode: async, backup_workers: 1}\n"));
    sg_config_destroy(config_parsed("workers: 3\nupdate: {backup_workers: 2}\non_worker_loss: wait\n"));
}

Test(config_refused, what_is_no_cluster_file_is_refused)
{
    static const wrong rows[] = {
        {"", "c.yaml: is empty; wanted a cluster file"},
        {"# nothing\n\n", "c.yaml: is empty; wanted a cluster file"},
        {"---\n", "c.yaml: is empty; wanted a cluster file"},
        {"hello\n", "c.yaml:1:1: found text, wanted lines of key: value"},
        {"[1]\n", "c.yaml:1:1: found a list, wanted lines of key: value"},
        {"\tworkers: 1\n", "c.yaml:1:1: found a tab, wanted spaces"},
        {"update:\n  mode: sync\n  \trule: sgd\n", "c.yaml:3:3: found a tab, wanted spaces"},
        {"run_dir: \"x\n", "c.yaml:1:11: found no \" at the end of a text that begins with one"},
        {"a: b: c\n", "c.yaml:1:5: "},
        {"workers: *x\n", "c.yaml:1:10: found an alias (*)"},
        {"workers: &x 2\n", "c.yaml:1:13: found an anchor (&)"},
        {"workers: !!int 2\n", "c.yaml:1:16: found a tag (!)"},
        {"seed: 1\n---\nseed: 2\n", "c.yaml:3:1: found a second document, wanted one in a file"},
        {"? [a]\n: 1\n", "c.yaml:1:3: found a list as a key, wanted a word"},
        {"x: [[[[[[[[[[[[1]]]]]]]]]]]]\n", "c.yaml:1:10: is nested more than 7 levels deep"},
        {"\xff\xfe\n", "c.yaml:1:1: found byte 0xff, wanted a text file in UTF-8"},
        {"seed: 1\nrun_dir: \xc3(\n", "c.yaml:2:10: found byte 0xc3, wanted a text file in UTF-8"},
        {"run_dir: \"a\\0b\"\n", "c.yaml:1:10: found the character \\0"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
    refuse("seed: 1\n\0", 9, "c.yaml:2:1: found byte 0x00, wanted a text file in UTF-8");
}

Test(config_refused, a_bracket_or_a_quote_that_is_not_closed_is_told_with_the_place_where_it_was_opened)
{
    static const wrong rows[] = {
        {"workers: 1\nps: [a:1\nseed: 2\n",
         "c.yaml:4:1: wanted a comma or ']': the '[' in line 2, column 5 is not closed"},
        {"ps: [a:1\n", "c.yaml:2:1: wanted a comma or ']': the '[' in line 1, column 5 is not closed"},
        {"update: {mode: sync\nworkers: 2\n",
         "c.yaml:2:8: wanted a comma or '}': the '{' in line 1, column 9 is not closed"},
        {"ps: [a:1}\n", "c.yaml:1:9: found '}', wanted a comma or ']': the '[' in line 1, column 5 is not closed"},
        {"update: {mode: sync]\n",
         "c.yaml:1:20: found ']', wanted a comma or '}': the '{' in line 1, column 9 is not closed"},
        {"data: {train: [a.csv, b.csv}\n",
         "c.yaml:1:28: found '}', wanted a comma or ']': the '[' in line 1, column 15 is not closed"},
        {"model:\n  layers: [dense 10, # ] of\n    '[', \"]\"\ndata:\n  classes: 10\n",
         "c.yaml:4:1: wanted a comma or ']': the '[' in line 2, column 11 is not closed"},
        {"update: {mode: sync rule: sgd}\n", "c.yaml:1:25: wanted a comma or '}': the '{' in line 1, column 9"},
        {"ps: [a:1]]\n", "c.yaml:1:10: found ']' without a '[' before it"},
        {"workers: 2\n}\n", "c.yaml:2:1: found '}' without a '{' before it"},
        {"run_dir: \"x\nseed: 1\n", "c.yaml:1:10: found no \" at the end of a text that begins with one"},
        {"run_dir: 'x\nseed: 1\n", "c.yaml:1:10: found no ' at the end of a text that begins with one"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, what_is_no_yaml_is_told_with_what_was_wanted)
{
    static const wrong rows[] = {
        {"update: mode: sync\n",
         "c.yaml:1:13: found a second ': ' in one line: a map begins on the next line, indented"},
        {"ps: - a:1\n",
         "c.yaml:1:5: found a '-' behind a key: a list begins on the next line, or is written [this, that]"},
        {"workers:2\nseed: 1\n",
         "c.yaml:1:1: found a text that goes on in the next line, wanted key: value, with a space"},
        {"seed: 1\nworkers 2\nlinger: true\n", "c.yaml:2:1: found a line without ': ', wanted key: value"},
        {"seed: 1\nworkers 2\n", "c.yaml:2:1: found what belongs to no key, wanted lines of key: value"},
        {"update:\n    mode: sync\n  rule: sgd\n", "c.yaml:3:3: wrong indentation: the keys of one map"},
        {"ps:\n  - a:1\n - b:1\n", "c.yaml:3:2: wrong indentation: the keys of one map, or the '-' of one list"},
        {"ps: [a:1, , b:1]\n", "c.yaml:1:11: found a comma, wanted a value before it"},
        {"update: {mode: sync,, rule: sgd}\n", "c.yaml:1:21: wanted a value here"},
        {"run_dir: @x\n", "c.yaml:1:10: found a text that begins with a sign of YAML: put it in quotes"},
        {"run_dir: \"x\" y\n", "c.yaml:1:14: found more behind a text in quotes, wanted the next line"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, what_another_model_would_use_is_refused)
{
    static const wrong rows[] = {
        {"model:\n  name: layers\n  hidden: [512, 512]\n  layers: [dense 10]\n",
         "c.yaml:3:11: model.hidden: is given, but model.name is layers, which has no such key: remove it, or set "
         "model.name to mlp"},
        {"model: {name: lenet, hidden: [4]}\n", "c.yaml:1:30: model.hidden: is given, but model.name is lenet"},
        {"model: {name: lenet, width: 64}\n",
         "c.yaml:1:29: model.width: is given, but model.name is lenet, which has no such key: remove it, or set "
         "model.name to resnet18"},
        {"model: {layers: [dense 10]}\n", "c.yaml:1:17: model.layers: is given, but model.name is mlp, which has no "
                                          "such key: remove it, or set model.name "
                                          "to layers"},
        {"model: {name: resnet50, layers: [dense 10]}\n",
         "c.yaml:1:33: model.layers: is given, but model.name is resnet50"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
    sg_config_destroy(config_parsed("model: {name: lenet, hidden: [], layers: []}\n")); /* none is none */
    sg_config_destroy(config_parsed("model: {name: resnet18, width: 16}\n"));
    sg_config_destroy(config_parsed("model: {name: own, width: 16, hidden: [4], layers: [any]}\n"));
}

/* The text has no NUL behind it: AddressSanitizer sees who reads on. */
Test(config_refused, blanks_at_the_end_of_a_text_are_read_up_to_its_end)
{
    static const char blanks[] = {'\n', ' ', '\t'};
    char *text = malloc(sizeof blanks);
    memcpy(text, blanks, sizeof blanks);
    sg_config *config;
    sg_error err;
    cr_assert_eq(sg_config_parse(text, sizeof blanks, "c.yaml", NULL, 0, &config, &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "c.yaml:2:"), "%s", err.message);
    free(text);
}

Test(config_refused, tabs_where_they_do_no_harm_are_read)
{
    sg_config *config = config_parsed("workers:\t3\t# so many\n\t\n\t# a comment\n");
    cr_assert_eq(config->workers, 3u);
    sg_config_destroy(config);
}

static char *temporary_file(size_t n_bytes, const char *content)
{
    char *path = sg_xstrdup("/tmp/shardgrad-test-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    if (content != NULL)
        cr_assert_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    else
        cr_assert_eq(ftruncate(fd, (off_t)n_bytes), 0);
    close(fd);
    return path;
}

static void refuse_path(const char *path, sg_status status, const char *message)
{
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_load(path, NULL, 0, &config, &err), status, "%s", err.message);
    cr_assert_not_null(strstr(err.message, message), "%s", err.message);
    cr_assert_not_null(strstr(err.message, path), "%s", err.message);
    cr_assert_null(config);
}

Test(config_refused, a_file_that_is_missing_or_cannot_be_one_is_refused)
{
    refuse_path("/tmp/shardgrad-test-no-such-file", SG_NOT_FOUND, "No such file");
    refuse_path("/dev/null/x", SG_NOT_FOUND, "Not a directory");
    refuse_path("/tmp", SG_CONFIG, "is a folder, wanted a cluster file");
    refuse_path("/dev/zero", SG_CONFIG, "is not a plain file, wanted a cluster file");
    refuse_path("/dev/null", SG_CONFIG, "is not a plain file");
    char *large = temporary_file(100u << 20, NULL), *binary = temporary_file(1000, NULL);
    refuse_path(large, SG_CONFIG, "is larger than 1048576 bytes");
    refuse_path(binary, SG_CONFIG, "found byte 0x00");
    unlink(large);
    cr_assert_eq(mkfifo(large, 0600), 0);
    refuse_path(large, SG_CONFIG, "is not a plain file, wanted a cluster file"); /* and nobody waits for a writer */
    unlink(large);
    unlink(binary);
    free(large);
    free(binary);
}

Test(config_refused, a_message_names_the_file_as_it_was_given)
{
    char *path = temporary_file(0, "workers: 2\nupdate:\n  mode: asink\n");
    char wanted[128];
    snprintf(wanted, sizeof(wanted), "%s:3:9: update.mode: 'asink' is not one of", path);
    refuse_path(path, SG_CONFIG, wanted);
    unlink(path);
    free(path);
}

/* The library must not write where it was not asked to: libfyaml would, to standard error. */
Test(config_refused, a_fault_prints_nothing)
{
    FILE *caught = tmpfile();
    int before = dup(STDERR_FILENO);
    fflush(stderr);
    cr_assert_geq(dup2(fileno(caught), STDERR_FILENO), 0);
    static const char *const texts[] = {"a: [1\n", "a: \"x\n",  "%YAML 3.0\n---\na: 1\n",
                                        "@\n",     "a: b: c\n", "\t\n- a\nb\n"};
    sg_config *config;
    for (size_t i = 0; i < SG_ARRAY_LEN(texts); i++)
        cr_assert_neq(sg_config_parse(texts[i], strlen(texts[i]), "c", NULL, 0, &config, NULL), SG_OK);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    cr_assert_eq(lseek(fileno(caught), 0, SEEK_END), 0);
    fclose(caught);
}

/* Valid files, broken at random: whatever comes out, nothing crashes, and a failure has a message of one line. */
Test(config_refused, no_garbage_harms_the_reader)
{
    sg_seed seed = sg_seed_begin();
    static const char alphabet[] = "[]{}:,-?#&*!|>'\"%@`\n\t \\01ax\xff\xc3\xa9";
    sg_error err;
    for (int round = 0; round < 3000; round++) {
        char text[4096];
        size_t n_bytes = strlen(config_everything);
        cr_assert_lt(n_bytes, sizeof(text));
        memcpy(text, config_everything, n_bytes + 1);
        for (uint64_t i = sg_seed_below(&seed, 6); i > 0; i--)
            text[sg_seed_below(&seed, n_bytes)] = alphabet[sg_seed_below(&seed, sizeof(alphabet))];
        if (round % 3 == 0)
            n_bytes = sg_seed_below(&seed, n_bytes);
        sg_config *config = NULL;
        err = (sg_error){0};
        sg_status status = sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, &err);
        cr_assert(status == SG_OK || status == SG_CONFIG, "seed %lu round %d", seed.first, round);
        cr_assert_eq(status == SG_OK, config != NULL, "seed %lu round %d", seed.first, round);
        cr_assert_eq(status != SG_OK, strncmp(err.message, "c.yaml", 6) == 0, "seed %lu: %s", seed.first, err.message);
        cr_assert_null(strchr(err.message, '\n'), "seed %lu: %s", seed.first, err.message);
        sg_config_destroy(config);
    }
}

Test(config_refused, a_large_file_that_is_no_cluster_file_is_refused_in_no_time)
{
    static const char *const pieces[] = {"[",         "{",  "- ", "a: ", "a: 1\n", "[],",
                                         "\"\\x41\"", "? ", "#",  " ",   "&a ",    "*a,"};
    for (size_t i = 0; i < SG_ARRAY_LEN(pieces); i++) {
        size_t n_bytes = 1000000, length = strlen(pieces[i]);
        char *text = malloc(n_bytes);
        for (size_t at = 0; at < n_bytes; at++)
            text[at] = pieces[i][at % length];
        sg_config *config = NULL;
        cr_assert_eq(sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, NULL), SG_CONFIG, "%s", pieces[i]);
        free(text);
    }
}

Test(config_refused, data_that_no_reader_could_read_is_refused)
{
    static const wrong rows[] = {
        {"data: {format: libsvn}\n", "c.yaml:1:16: data.format: 'libsvn' is not one of idx, cifar10, csv, libsvm, raw, "
                                     "synthetic (did you mean libsvm?)"},
        {"data: {format: csv, train: [a.csv]}\n",
         "c.yaml:1:16: data.format: csv wants the files to be listed in data.train and data.test"},
        {"data: {format: csv, train: [a], test: [b], train_images: c}\n",
         "c.yaml:1:58: data.train_images: is given, but data.format is csv, which has no such key: "
         "remove it, or set data.format to idx"},
        {"data: {format: libsvm, shape: [4], train: [a], test: [b], train_labels: c}\n",
         "c.yaml:1:73: data.train_labels: is given, but data.format is libsvm, which has no "
         "such key"},
        {"data: {format: csv, train: [a], test: [b], test_images: c}\n",
         "c.yaml:1:57: data.test_images: is given, but data.format is csv, which has no such key: "
         "remove it, or set data.format to idx"},
        {"data: {format: synthetic, shape: [4], test_labels: c}\n",
         "c.yaml:1:52: data.test_labels: is given, but data.format is synthetic"},
        {"data:\n  train: [a.csv]\n", "c.yaml:2:10: data.train: is given, but data.format is idx, which has "
                                      "no such key: remove it, or set data.format to cifar10"},
        {"data: {format: synthetic, shape: [4], test: [a]}\n",
         "c.yaml:1:45: data.test: is given, but data.format is synthetic"},
        {"data: {shape: [1, 28, 28]}\n", "c.yaml:1:15: data.shape: is given, but data.format is idx"},
        {"data: {format: libsvm, shape: [4], train: [a], test: [b], header: true}\n",
         "c.yaml:1:67: data.header: is given, but data.format is libsvm"},
        {"data: {format: raw, shape: [4], label_column: 1}\n",
         "c.yaml:1:47: data.label_column: is given, but data.format is raw"},
        {"data: {first_label: 1}\n", "c.yaml:1:21: data.first_label: is given, but data.format is idx"},
        {"data: {format: raw, shape: [4], train_rows: 5}\n",
         "c.yaml:1:45: data.train_rows: is given, but data.format is raw, which has no such key: remove it, or set "
         "data.format to synthetic"},
        {"data: {format: libsvm, train: [a], test: [b]}\n",
         "c.yaml:1:16: data.format: libsvm, raw and synthetic want data.shape, such as [123]"},
        {"data: {format: synthetic, shape: [28, 28]}\n",
         "c.yaml:1:34: data.shape: found 2 numbers, wanted [features], or [channels, height, width]"},
        {"data: {format: synthetic, shape: [4096, 4096, 4096]}\n",
         "c.yaml:1:34: data.shape: makes more than 268435456 features, wanted fewer"},
        {"data: {format: synthetic, shape: [16777216, 16777216, 16777216]}\n",
         "c.yaml:1:34: data.shape: makes more than 268435456 features"},
        {"data: {format: synthetic, shape: [0]}\n", "c.yaml:1:35: data.shape"},
        {"data: {format: synthetic, shape: [4], classes: 1}\n", "c.yaml:1:48: data.classes: found '1'"},
        {"data: {format: cifar10, train: [a], test: [b], classes: 100}\n",
         "c.yaml:1:57: data.classes: cifar10 has 10 classes: set data.classes to 10"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config_refused, the_name_of_the_longest_file_leaves_room_for_what_is_wrong_in_it)
{
    static const char text[] = "update: {mode: asink}\n";
    char name[4096] = "/first/";
    memset(name + 7, 'x', sizeof(name) - 8);
    memcpy(name + sizeof(name) - sizeof("/c.yaml"), "/c.yaml", sizeof("/c.yaml"));
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), name, NULL, 0, &config, &err), SG_CONFIG);
    cr_assert_eq(strncmp(err.message, "/first/xxx", 10), 0, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "xxx...xxx"), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "/c.yaml:1:16: update.mode: 'asink' is not one of sync, async, ssp"), "%s",
                       err.message);
}
