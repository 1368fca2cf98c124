/* tests/rpc/raw_http2.c - see raw_http2.h. Header fields are literals without indexing and without Huffman coding. */
#include "raw_http2.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

enum { FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_SETTINGS = 4 };
enum { FLAG_END_STREAM = 1, FLAG_END_HEADERS = 4 };
enum { FRAME_MAX_BYTES = 16384, MESSAGE_PREFIX_BYTES = 5 };

int raw_http2_connect(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

void raw_http2_write(int fd, const void *data, size_t n_bytes)
{
    for (const char *from = data; n_bytes > 0;) {
        ssize_t sent = send(fd, from, n_bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        from += sent;
        n_bytes -= (size_t)sent;
    }
}

static void write_frame(int fd, uint8_t type, uint8_t flags, uint8_t stream, const void *payload, size_t n_bytes)
{
    uint8_t head[9] = {
        (uint8_t)(n_bytes >> 16), (uint8_t)(n_bytes >> 8), (uint8_t)n_bytes, type, flags, 0, 0, 0, stream};
    raw_http2_write(fd, head, sizeof(head));
    raw_http2_write(fd, payload, n_bytes);
}

void raw_http2_begin(int fd)
{
    raw_http2_write(fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    write_frame(fd, FRAME_SETTINGS, 0, 0, "", 0);
}

static size_t put_field(uint8_t *out, const char *name, const char *value)
{
    size_t name_bytes = strlen(name), value_bytes = strlen(value);
    out[0] = 0;
    out[1] = (uint8_t)name_bytes;
    memcpy(out + 2, name, name_bytes);
    out[2 + name_bytes] = (uint8_t)value_bytes;
    memcpy(out + 3 + name_bytes, value, value_bytes);
    return 3 + name_bytes + value_bytes;
}

void raw_http2_stream_call(int fd, uint8_t stream, const char *path, const char *encoding)
{
    uint8_t block[512];
    size_t n_bytes = put_field(block, ":method", "POST");
    n_bytes += put_field(block + n_bytes, ":scheme", "http");
    n_bytes += put_field(block + n_bytes, ":path", path);
    n_bytes += put_field(block + n_bytes, ":authority", "test");
    n_bytes += put_field(block + n_bytes, "content-type", "application/grpc");
    n_bytes += put_field(block + n_bytes, "te", "trailers");
    if (encoding != NULL)
        n_bytes += put_field(block + n_bytes, "grpc-encoding", encoding);
    write_frame(fd, FRAME_HEADERS, FLAG_END_HEADERS, stream, block, n_bytes);
}

void raw_http2_call(int fd, const char *path, const char *encoding)
{
    raw_http2_stream_call(fd, 1, path, encoding);
}

void raw_http2_stream_more(int fd, uint8_t stream, size_t n_bytes, int last)
{
    uint8_t content[FRAME_MAX_BYTES];
    for (size_t i = 0; i < sizeof(content); i++)
        content[i] = i % 2 == 0 ? 8 : 1;
    for (size_t left = n_bytes; left > 0;) {
        size_t frame_bytes = left < sizeof(content) ? left : sizeof(content);
        write_frame(fd, FRAME_DATA, 0, stream, content, frame_bytes);
        left -= frame_bytes;
    }
    if (last)
        write_frame(fd, FRAME_DATA, FLAG_END_STREAM, stream, "", 0);
}

void raw_http2_stream_message(int fd, uint8_t stream, uint8_t compressed_flag, size_t n_bytes, size_t part_bytes,
                              int whole)
{
    uint8_t prefix[MESSAGE_PREFIX_BYTES] = {compressed_flag, (uint8_t)(n_bytes >> 24), (uint8_t)(n_bytes >> 16),
                                            (uint8_t)(n_bytes >> 8), (uint8_t)n_bytes};
    write_frame(fd, FRAME_DATA, 0, stream, prefix, sizeof(prefix));
    raw_http2_stream_more(fd, stream, part_bytes, whole);
}

void raw_http2_message(int fd, uint8_t compressed_flag, size_t n_bytes, size_t part_bytes, int whole)
{
    raw_http2_stream_message(fd, 1, compressed_flag, n_bytes, part_bytes, whole);
}

bool raw_http2_read_until(int fd, const char *word)
{
    char buffer[8192];
    size_t n_bytes = 0;
    while (n_bytes < sizeof(buffer)) {
        ssize_t got = recv(fd, buffer + n_bytes, sizeof(buffer) - n_bytes, 0);
        if (got <= 0)
            return false;
        n_bytes += (size_t)got;
        if (memmem(buffer, n_bytes, word, strlen(word)) != NULL)
            return true;
    }
    return false;
}
