/* What becomes of gRPC's words for a failed connection. */
#include <criterion/criterion.h>

#include "common/rpc_status.h"

TestSuite(rpc_status, .timeout = 20);

static void expect(const char *words, const char *wanted)
{
    sg_error err;
    cr_assert_eq(sg_rpc_status_transport(&err, SG_UNAVAILABLE, "node1:5000", words), SG_UNAVAILABLE);
    cr_assert_str_eq(err.message, wanted);
}

Test(rpc_status, who_listens_and_is_no_ps_is_told_in_plain_words)
{
    expect("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:5000: connection attempt timed out "
           "before receiving SETTINGS frame",
           "node1:5000: who listens there says nothing: it is no shardgrad-ps, or only one side has TLS (security.ca)");
    expect("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:5000: Handshake read failed",
           "node1:5000: TLS did not come about: who listens there is no shardgrad-ps, or does not accept "
           "security.certificate");
    expect("Failed parsing HTTP/2", "node1:5000: who listens there does not answer as a shardgrad-ps does");
    expect("Trying to connect an http1.x server",
           "node1:5000: who listens there does not answer as a shardgrad-ps does");
}

Test(rpc_status, what_the_system_says_loses_its_wrapping_alone)
{
    expect("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:5000: Failed to connect to remote "
           "host: Connection refused",
           "node1:5000: connection refused");
    expect("DNS resolution failed for node1:5000: C-ares status is not ARES_SUCCESS",
           "node1:5000: the host name does not resolve");
}
