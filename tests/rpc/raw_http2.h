/* tests/rpc/raw_http2.h - a hand-made HTTP/2 client, for what a well-behaved one never sends. */
#ifndef SG_TESTS_RPC_RAW_HTTP2_H
#define SG_TESTS_RPC_RAW_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Connects to 127.0.0.1; the descriptor is the caller's. */
int raw_http2_connect(uint16_t port);
/* Writes, and does not mind a peer that hung up. */
void raw_http2_write(int fd, const void *data, size_t n_bytes);
/* The connection preface and empty SETTINGS. */
void raw_http2_begin(int fd);
/* HEADERS of a gRPC call of `path` on stream 1. encoding: value of grpc-encoding, NULL for none. */
void raw_http2_call(int fd, const char *path, const char *encoding);
/* The first part_bytes of a gRPC message of n_bytes, in DATA frames of at most 16 KiB. whole ends the stream. The bytes
 * are 8, 1, 8, 1, ...: an even number of them is a valid PushRequest of worker 1, said again and again. */
void raw_http2_message(int fd, uint8_t compressed_flag, size_t n_bytes, size_t part_bytes, int whole);
/* The same on another stream, an odd number. */
void raw_http2_stream_call(int fd, uint8_t stream, const char *path, const char *encoding);
void raw_http2_stream_message(int fd, uint8_t stream, uint8_t compressed_flag, size_t n_bytes, size_t part_bytes,
                              int whole);
/* n_bytes more of a message that was begun; last ends the stream. */
void raw_http2_stream_more(int fd, uint8_t stream, size_t n_bytes, int last);
/* Reads until `word` has come; false if the server closed before. */
bool raw_http2_read_until(int fd, const char *word);

#endif
