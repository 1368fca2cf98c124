#include "client_fixture.h"

#include <criterion/criterion.h>
#include <time.h>

fake_ps *client_ps;
float client_value[CLIENT_N], client_gradient[CLIENT_N], client_other_value[8], client_other_gradient[8];
const sg_variable client_variables[2] = {
    {.name = "w", .rank = 1, .shape = {CLIENT_N}, .value = client_value, .gradient = client_gradient},
    {.name = "v", .rank = 2, .shape = {2, 4}, .value = client_other_value, .gradient = client_other_gradient},
};

void client_create(void)
{
    client_ps = fake_ps_create();
}

void client_destroy(void)
{
    if (client_ps != NULL)
        fake_ps_destroy(client_ps);
}

sg_client *client_open_logged(const char *address, sg_log_fn log, void *user)
{
    sg_client *client = NULL;
    sg_error err;
    const sg_client_options options = {
        .coordinator = address, .job = "job", .start_timeout_ms = 5000, .log = log, .log_user = user};
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_OK, "%s", err.message);
    return client;
}

sg_client *client_open_to(const char *address)
{
    return client_open_logged(address, NULL, NULL);
}

sg_client *client_open_declared(const sg_variable *list, size_t n)
{
    sg_client *client = client_open_to(client_ps->address);
    sg_error err;
    cr_assert_eq(sg_client_declare(client, list, n, &err), SG_OK, "%s", err.message);
    return client;
}

void client_begin(sg_client *client, sg_step *step)
{
    sg_error err;
    cr_assert_eq(sg_client_begin_step(client, step, &err), SG_OK, "%s", err.message);
}

void client_fill(float *list, size_t n, float with)
{
    for (size_t i = 0; i < n; i++)
        list[i] = with;
}

void client_await_reported(uint64_t examples)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (fake_ps_get(client_ps, &client_ps->reported_examples) < examples)
        nanosleep(&pause, NULL);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), examples);
}
