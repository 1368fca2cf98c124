#include "common/rpc_address.h"

#include <criterion/criterion.h>

TestSuite(rpc_address, .timeout = 20);

Test(rpc_address, only_127_x_x_x_and_1_in_brackets_and_localhost_are_loopback)
{
    static const char *const loopback[] = {"127.0.0.1:0", "127.0.0.1:5000", "127.255.3.4:1",
                                           "[::1]:5000",  "localhost:5000", "[0:0:0:0:0:0:0:1]:5000"};
    static const char *const others[] = {"127.evil.example:5000",
                                         "127.0.0.1.example:5000",
                                         "localhost.example:5000",
                                         "localhosts:5000",
                                         "128.0.0.1:5000",
                                         "10.127.0.1:5000",
                                         "0.0.0.0:5000",
                                         "[::]:5000",
                                         "[::2]:5000",
                                         "[1::1]:5000",
                                         "node-1:5000",
                                         "127.0.0.1",
                                         "127.",
                                         "localhost",
                                         "[::1]",
                                         "[::1:5000",
                                         ":5000",
                                         ""};
    for (size_t i = 0; i < SG_ARRAY_LEN(loopback); i++)
        cr_expect(sg_rpc_address_is_loopback(loopback[i]), "%s", loopback[i]);
    for (size_t i = 0; i < SG_ARRAY_LEN(others); i++)
        cr_expect_not(sg_rpc_address_is_loopback(others[i]), "%s", others[i]);
}
