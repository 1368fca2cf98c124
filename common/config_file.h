/* common/config_file.h - YAML as a small tree in which every node knows its place; config_file.c alone knows libfyaml.
 *
 * It is less than YAML: one document, no anchors, aliases or tags, a few levels deep. What a scalar means (a number, a
 * word) is decided by the option that it is for, not here. */
#ifndef SG_COMMON_CONFIG_FILE_H
#define SG_COMMON_CONFIG_FILE_H

#include "common/status.h"

#define SG_CONFIG_FILE_BYTES (1u << 20) /* bound of a cluster file */

typedef enum sg_config_kind { SG_CONFIG_NOTHING, SG_CONFIG_SCALAR, SG_CONFIG_LIST, SG_CONFIG_MAP } sg_config_kind;

typedef struct sg_config_node {
    sg_config_kind kind;   /* NOTHING: an empty document */
    bool quoted;           /* scalar: in any style but the plain one, so it is text */
    uint32_t line, column; /* where it begins, from 1 */
    char *text;            /* scalar: its value, terminated; no byte in it is 0 */
    char *key;             /* of an entry of a map, else NULL */
    uint32_t key_line, key_column;
    struct sg_config_node *items; /* of a list or a map, in order; a map may hold a key twice */
    size_t n_items;
} sg_config_node;

/* Errors: CONFIG, "name:line:column: what is wrong". On success freed by sg_config_node_deinit. */
SG_MUST_USE sg_status sg_config_file_parse(const char *text, size_t n_bytes, const char *name, sg_config_node *root,
                                           sg_error *err);
void sg_config_node_deinit(sg_config_node *node);

/* Reads a whole file into *text (freed by free). Errors: NOT_FOUND, CONFIG (a folder, too large, not readable). */
SG_MUST_USE sg_status sg_config_file_read(const char *path, char **text, size_t *n_bytes, sg_error *err);

#endif
