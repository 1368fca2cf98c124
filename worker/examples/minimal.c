#include <shardgrad/shardgrad.h>
#include <stdio.h>

int main(void)
{
    sg_variable w = {.name = "w", .value = &(float){0}, .gradient = &(float){0}}; /* a scalar; loss (w - 3)^2 / 2 */
    sg_step step = {.examples = 1};
    sg_client *client = NULL;
    sg_error err = {.message = "w is not 3 yet"}; /* what fails says why; NULL in its place is fine, too */
    bool ok = sg_client_open(&(sg_client_options){.config = "cluster.yaml"}, &client, &err) == SG_OK &&
              sg_client_declare(client, &w, 1, &err) == SG_OK; /* *w.value is now the cluster's */
    while (ok && (ok = sg_client_begin_step(client, &step, &err) == SG_OK) && step.number < 100)
        *w.gradient = *w.value - 3, ok = sg_client_goes_on(sg_client_end_step(client, &step, &err)); /* push, pull */
    sg_client_close(client);
    return ok && *w.value > 2.999f ? 0 : (puts(err.message), 1);
}
