/* tests/worker/client_fixture.h - a client of the public interface and the ps that it talks to, which does as the test
 * says. */
#ifndef SG_TESTS_WORKER_CLIENT_FIXTURE_H
#define SG_TESTS_WORKER_CLIENT_FIXTURE_H

#include "fake_ps.h"
#include "shardgrad/shardgrad.h"

#define CLIENT_N 40 /* elements of the first variable: three slices */

/* Made anew for every test. */
extern fake_ps *client_ps; /* NULL after a test has destroyed it */
extern float client_value[CLIENT_N], client_gradient[CLIENT_N], client_other_value[8], client_other_gradient[8];
extern const sg_variable client_variables[2]; /* "w" of CLIENT_N elements and "v" of 2 x 4, with the buffers above */

void client_create(void); /* .init and .fini of a suite */
void client_destroy(void);

sg_client *client_open_logged(const char *address, sg_log_fn log, void *user);
sg_client *client_open_to(const char *address);
sg_client *client_open_declared(const sg_variable *list, size_t n);
void client_begin(sg_client *client, sg_step *step);
void client_fill(float *list, size_t n, float with);
/* The report of the last step is on its way when the next one begins. */
void client_await_reported(uint64_t examples);

#endif
