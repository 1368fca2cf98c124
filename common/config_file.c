/* common/config_file.c - reads a file and turns its YAML into nodes, by libfyaml's events.
 *
 * Events and not its documents: they carry the place of every node, and nothing that we refuse (aliases, a second
 * document) is expanded before we see it. What libfyaml is silent or vague about - bytes that are not text, tabs as
 * indentation - is looked for first. */
#include "common/config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/config_syntax.h"
#include "common/plain_file.h"
#include "common/utf8.h"

#define MAX_DEPTH 8

typedef struct reader {
    const char *name, *text;
    size_t n_bytes;
    struct fy_diag *diag;
    struct fy_parser *parser;
} reader;

/* --- before YAML: is it text at all? ------------------------------------------------------------------------- */

static sg_status check_text(const char *text, size_t n_bytes, const char *name, sg_error *err)
{
    uint32_t line = 1, column = 1;
    bool indent = true;
    for (size_t i = 0; i < n_bytes;) {
        uint32_t character;
        size_t length = sg_utf8_decode(text + i, n_bytes - i, &character);
        if (length == 0 || character == 0)
            return sg_error_set(err, SG_CONFIG, "%s:%u:%u: found byte 0x%02x, wanted a text file in UTF-8", name, line,
                                column, (unsigned char)text[i]);
        if (character == '\t' && indent) {
            size_t next = i;
            while (next < n_bytes && (text[next] == ' ' || text[next] == '\t' || text[next] == '\r'))
                next++;
            if (next < n_bytes && text[next] != '\n' && text[next] != '#')
                return sg_error_set(err, SG_CONFIG,
                                    "%s:%u:%u: found a tab, wanted spaces: YAML indents by spaces alone", name, line,
                                    column);
        }
        indent = character == '\n' || (indent && (character == ' ' || character == '\t'));
        line += character == '\n';
        column = character == '\n' ? 1 : column + 1;
        i += length;
    }
    return SG_OK;
}

/* --- events to nodes ----------------------------------------------------------------------------------------- */

static void stay_silent(struct fy_diag *diag, void *user, const char *text, size_t n_bytes)
{
    (void)diag, (void)user, (void)text, (void)n_bytes;
}

static sg_status syntax_error(const reader *in, sg_error *err)
{
    void *position = NULL;
    const struct fy_diag_error *first = fy_diag_errors_iterate(in->diag, &position);
    if (first == NULL || first->msg == NULL || first->line < 0)
        return sg_error_set(err, SG_CONFIG, "%s: is not valid YAML", in->name);
    char words[SG_CONFIG_SYNTAX_BYTES];
    return sg_error_set(err, SG_CONFIG, "%s:%d:%d: %s", in->name, first->line, first->column,
                        sg_config_syntax_explain(in->text, in->n_bytes, first->msg, (uint32_t)first->line,
                                                 (uint32_t)first->column, words));
}

/* The next event, freed by fy_parser_event_free; NULL is a syntax error. */
static struct fy_event *next_event(const reader *in)
{
    struct fy_event *event = fy_parser_parse(in->parser);
    if (event != NULL && !fy_parser_get_stream_error(in->parser))
        return event;
    fy_parser_event_free(in->parser, event);
    return NULL;
}

/* Where an event stands; untouched for one that has no text of its own (nothing after a colon). */
static void set_place(sg_config_node *node, struct fy_token *token, bool quoted)
{
    const struct fy_mark *mark = token != NULL ? fy_token_start_mark(token) : NULL;
    if (mark == NULL)
        return;
    node->line = (uint32_t)mark->line + 1;
    node->column = (uint32_t)mark->column + (quoted && mark->column > 0 ? 0 : 1); /* the mark is behind the quote */
}

static sg_status refuse(const reader *in, const sg_config_node *node, const char *what, sg_error *err)
{
    return sg_error_set(err, SG_CONFIG, "%s:%u:%u: found %s, which a cluster file cannot hold: write the value itself",
                        in->name, node->line, node->column, what);
}

static sg_status fill_scalar(const reader *in, const struct fy_event *event, sg_config_node *node, sg_error *err)
{
    struct fy_token *token = event->scalar.value;
    size_t n_bytes = 0;
    const char *text = token != NULL ? fy_token_get_text(token, &n_bytes) : "";
    enum fy_scalar_style style = token != NULL ? fy_token_scalar_style(token) : FYSS_PLAIN;
    node->kind = SG_CONFIG_SCALAR;
    node->quoted = style != FYSS_PLAIN;
    set_place(node, token, style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED);
    if (text == NULL)
        return syntax_error(in, err);
    if (memchr(text, '\0', n_bytes) != NULL)
        return refuse(in, node, "the character \\0", err);
    node->text = sg_xcalloc(n_bytes + 1, 1);
    memcpy(node->text, text, n_bytes);
    return SG_OK;
}

static sg_status fill_node(const reader *in, const struct fy_event *event, unsigned depth, sg_config_node *node,
                           sg_error *err);

static sg_status fill_key(const reader *in, const struct fy_event *event, sg_config_node *node, sg_error *err)
{
    sg_config_node key = {.line = node->line, .column = node->column};
    sg_status status = fill_node(in, event, MAX_DEPTH, &key, err);
    if (status == SG_OK && key.kind != SG_CONFIG_SCALAR)
        status = sg_error_set(err, SG_CONFIG, "%s:%u:%u: found %s as a key, wanted a word", in->name, key.line,
                              key.column, key.kind == SG_CONFIG_MAP ? "a map" : "a list");
    if (status == SG_OK) {
        node->key = key.text;
        key.text = NULL;
        node->key_line = node->line = key.line; /* and of the value, should it have no text */
        node->key_column = node->column = key.column;
    }
    sg_config_node_deinit(&key);
    return status;
}

/* The entries of a list or a map, up to its end. */
static sg_status fill_items(const reader *in, enum fy_event_type end, unsigned depth, sg_config_node *node,
                            sg_error *err)
{
    for (size_t room = 0;;) {
        struct fy_event *event = next_event(in);
        if (event == NULL)
            return syntax_error(in, err);
        if (event->type == end) {
            fy_parser_event_free(in->parser, event);
            return SG_OK;
        }
        if (node->n_items == room) {
            room = room == 0 ? 8 : room * 2;
            node->items = sg_xrealloc(node->items, room, sizeof(*node->items));
        }
        sg_config_node *item = &node->items[node->n_items++];
        *item = (sg_config_node){.line = node->line, .column = node->column};
        sg_status status = SG_OK;
        if (node->kind == SG_CONFIG_MAP) {
            status = fill_key(in, event, item, err);
            fy_parser_event_free(in->parser, event);
            event = status == SG_OK ? next_event(in) : NULL;
        }
        if (status == SG_OK)
            status = event != NULL ? fill_node(in, event, depth, item, err) : syntax_error(in, err);
        fy_parser_event_free(in->parser, event);
        if (status != SG_OK)
            return status;
    }
}

/* A key is filled at MAX_DEPTH, so that one which is a list or a map is known for what it is but not entered. */
static sg_status fill_node(const reader *in, const struct fy_event *event, unsigned depth, sg_config_node *node,
                           sg_error *err)
{
    bool map = event->type == FYET_MAPPING_START, list = event->type == FYET_SEQUENCE_START;
    struct fy_token *anchor = NULL, *tag = NULL;
    if (map || list) {
        node->kind = map ? SG_CONFIG_MAP : SG_CONFIG_LIST;
        set_place(node, map ? event->mapping_start.mapping_start : event->sequence_start.sequence_start, false);
        anchor = map ? event->mapping_start.anchor : event->sequence_start.anchor;
        tag = map ? event->mapping_start.tag : event->sequence_start.tag;
    } else if (event->type == FYET_SCALAR) {
        sg_status status = fill_scalar(in, event, node, err);
        if (status != SG_OK)
            return status;
        anchor = event->scalar.anchor;
        tag = event->scalar.tag;
    } else if (event->type == FYET_ALIAS) {
        set_place(node, event->alias.anchor, true);
        return refuse(in, node, "an alias (*)", err);
    } else {
        return syntax_error(in, err);
    }
    if (anchor != NULL || tag != NULL)
        return refuse(in, node, anchor != NULL ? "an anchor (&)" : "a tag (!)", err);
    if (node->kind == SG_CONFIG_SCALAR || depth == MAX_DEPTH)
        return SG_OK;
    if (depth + 1 == MAX_DEPTH)
        return sg_error_set(err, SG_CONFIG, "%s:%u:%u: is nested more than %u levels deep", in->name, node->line,
                            node->column, depth);
    return fill_items(in, map ? FYET_MAPPING_END : FYET_SEQUENCE_END, depth + 1, node, err);
}

/* Stream start, then for each document its start, a node and its end, then stream end. */
static sg_status fill_root(const reader *in, sg_config_node *root, sg_error *err)
{
    for (;;) {
        struct fy_event *event = next_event(in);
        if (event == NULL)
            return syntax_error(in, err);
        sg_status status = SG_OK;
        enum fy_event_type type = event->type;
        bool frame = type == FYET_STREAM_START || type == FYET_DOCUMENT_START || type == FYET_DOCUMENT_END;
        if (!frame && type != FYET_STREAM_END) {
            sg_config_node again = {.line = 1, .column = 1};
            bool second = root->kind != SG_CONFIG_NOTHING;
            status = fill_node(in, event, 0, second ? &again : root, err);
            if (status == SG_OK && second)
                status = sg_error_set(err, SG_CONFIG, "%s:%u:%u: found a second document, wanted one in a file",
                                      in->name, again.line, again.column);
            sg_config_node_deinit(&again);
        }
        fy_parser_event_free(in->parser, event);
        if (status != SG_OK || type == FYET_STREAM_END)
            return status;
    }
}

sg_status sg_config_file_parse(const char *text, size_t n_bytes, const char *name, sg_config_node *root, sg_error *err)
{
    *root = (sg_config_node){.kind = SG_CONFIG_NOTHING, .line = 1, .column = 1};
    if (n_bytes > SG_CONFIG_FILE_BYTES)
        return sg_error_set(err, SG_CONFIG, "%s: is larger than %u bytes: not a cluster file", name,
                            SG_CONFIG_FILE_BYTES);
    sg_status status = check_text(text, n_bytes, name, err);
    if (status != SG_OK || n_bytes == 0)
        return status;
    struct fy_diag_cfg silence = {.output_fn = stay_silent, .level = FYET_ERROR, .module_mask = ~0u};
    reader in = {.name = name, .text = text, .n_bytes = n_bytes, .diag = fy_diag_create(&silence)};
    SG_ASSERT(in.diag != NULL);
    fy_diag_set_collect_errors(in.diag, true);
    in.parser =
        fy_parser_create(&(struct fy_parse_cfg){.flags = FYPCF_JSON_NONE | FYPCF_DEFAULT_VERSION_1_2, .diag = in.diag});
    SG_ASSERT(in.parser != NULL);
    status = fy_parser_set_string(in.parser, text, n_bytes) == 0 ? fill_root(&in, root, err) : syntax_error(&in, err);
    fy_parser_destroy(in.parser);
    fy_diag_destroy(in.diag);
    if (status != SG_OK) {
        sg_config_node_deinit(root);
        *root = (sg_config_node){.kind = SG_CONFIG_NOTHING};
    }
    return status;
}

void sg_config_node_deinit(sg_config_node *node)
{
    for (size_t i = 0; i < node->n_items; i++)
        sg_config_node_deinit(&node->items[i]);
    free(node->items);
    free(node->text);
    free(node->key);
}

/* --- the file ------------------------------------------------------------------------------------------------- */

static sg_status read_all(int fd, const char *path, char *text, size_t *n_bytes, sg_error *err)
{
    size_t length = 0;
    for (;;) {
        ssize_t got = read(fd, text + length, SG_CONFIG_FILE_BYTES + 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sg_error_set(err, SG_CONFIG, "%s: cannot be read: %s", path, strerror(errno));
        length += (size_t)got;
        if (length > SG_CONFIG_FILE_BYTES)
            return sg_error_set(err, SG_CONFIG, "%s: is larger than %u bytes: not a cluster file", path,
                                SG_CONFIG_FILE_BYTES);
        if (got == 0)
            break;
    }
    *n_bytes = length;
    return SG_OK;
}

sg_status sg_config_file_read(const char *path, char **text, size_t *n_bytes, sg_error *err)
{
    int fd;
    const int error = sg_plain_file_open(path, O_RDONLY, &fd);
    if (error == EISDIR)
        return sg_error_set(err, SG_CONFIG, "%s: is a folder, wanted a cluster file", path);
    if (error == ENXIO)
        return sg_error_set(err, SG_CONFIG, "%s: is not a plain file, wanted a cluster file", path);
    if (error != 0)
        return sg_error_set(err, error == ENOENT || error == ENOTDIR ? SG_NOT_FOUND : SG_CONFIG,
                            "%s: cannot be opened: %s; wanted a cluster file", path, strerror(error));
    char *buffer = sg_xcalloc(SG_CONFIG_FILE_BYTES + 1, 1);
    const sg_status status = read_all(fd, path, buffer, n_bytes, err);
    close(fd);
    if (status != SG_OK) {
        free(buffer);
        return status;
    }
    *text = buffer;
    return SG_OK;
}
