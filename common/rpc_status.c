/* common/rpc_status.c - see rpc_status.h. */
#include "common/rpc_status.h"

#include <ctype.h>
#include <string.h>

#include <grpc/slice.h>

grpc_metadata sg_rpc_status_trailer(sg_status status)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string(SG_RPC_STATUS_TRAILER),
                           .value = grpc_slice_from_static_string(sg_status_name(status))};
}

bool sg_rpc_status_from_trailers(const grpc_metadata_array *trailers, sg_status *status)
{
    for (size_t i = 0; i < trailers->count; i++) {
        grpc_slice value = trailers->metadata[i].value;
        if (grpc_slice_str_cmp(trailers->metadata[i].key, SG_RPC_STATUS_TRAILER) == 0)
            return sg_status_from_name((const char *)GRPC_SLICE_START_PTR(value), GRPC_SLICE_LENGTH(value), status) &&
                   *status != SG_OK;
    }
    return false;
}

static const char *after_last(const char *words, const char *marker)
{
    for (const char *at; (at = strstr(words, marker)) != NULL;)
        words = at + strlen(marker);
    return words;
}

static bool skip_prefix(const char **words, const char *prefix)
{
    size_t n_bytes = strlen(prefix);
    if (strncmp(*words, prefix, n_bytes) != 0)
        return false;
    *words += n_bytes;
    return true;
}

/* "ipv4:127.0.0.1:4001: " */
static bool skip_peer(const char **words)
{
    if (strncmp(*words, "ipv4:", 5) != 0 && strncmp(*words, "ipv6:", 5) != 0)
        return false;
    const char *end = strstr(*words, ": ");
    if (end == NULL)
        return false;
    *words = end + 2;
    return true;
}

/* gRPC wraps the reason in what it was doing: the layers are taken off one by one, in whatever order they come. */
static const char *unwrap(const char *words)
{
    static const char *const layers[] = {"UNKNOWN: ",
                                         "UNKNOWN:",
                                         "UNAVAILABLE: ",
                                         "UNAVAILABLE:",
                                         "INTERNAL: ",
                                         "Failed to connect to remote host: ",
                                         "Endpoint read failed: ",
                                         "connect: ",
                                         "recvmsg:",
                                         "sendmsg:"};
    words = after_last(words, "last error: ");
    for (bool again = true; again;) {
        again = skip_peer(&words);
        for (size_t i = 0; i < SG_ARRAY_LEN(layers); i++)
            again |= skip_prefix(&words, layers[i]);
    }
    return words;
}

/* What gRPC's words mean where they are about its own trade; NULL: they will do. */
static const char *in_plain_words(const char *words)
{
    static const char *const rows[][2] = {
        {"DNS resolution failed", "the host name does not resolve"},
        {"SETTINGS frame",
         "who listens there says nothing: it is no shardgrad-ps, or only one side has TLS (security.ca)"},
        {"andshake read failed",
         "TLS did not come about: who listens there is no shardgrad-ps, or does not accept security.certificate"},
        {"ailed parsing HTTP/2", "who listens there does not answer as a shardgrad-ps does"},
        {"http1.x server", "who listens there does not answer as a shardgrad-ps does"},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        if (strstr(words, rows[i][0]) != NULL)
            return rows[i][1];
    }
    return NULL;
}

sg_status sg_rpc_status_transport(sg_error *err, sg_status code, const char *address, const char *words)
{
    const char *plain = in_plain_words(words);
    if (plain != NULL)
        return sg_error_set(err, code, "%s: %s", address, plain);
    words = unwrap(words);
    int length = (int)strcspn(words, "{[");
    while (length > 0 && strchr(" ;,:", words[length - 1]) != NULL)
        length--;
    if (length == 0)
        return sg_error_set(err, code, "%s: %s", address, sg_status_text(code));
    int first = tolower((unsigned char)words[0]);
    bool shout = isupper((unsigned char)words[1]); /* GOAWAY, RST_STREAM */
    return sg_error_set(err, code, "%s: %c%.*s", address, shout ? words[0] : first, length - 1, words + 1);
}
