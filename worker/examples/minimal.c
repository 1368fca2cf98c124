#include <shardgrad/shardgrad.h>

int main(void)
{
    sg_variable w = {.name = "w", .value = &(float){0}, .gradient = &(float){0}}; /* a scalar */
    sg_step step = {.examples = 1};
    sg_client *client = NULL;
    bool ok = sg_client_open(&(sg_client_options){.config = "cluster.yaml"}, &client, NULL) == SG_OK &&
              sg_client_declare(client, &w, 1, NULL) == SG_OK; /* *w.value is now the cluster's */
    while (ok && (ok = sg_client_begin_step(client, &step, NULL) == SG_OK) && step.number < 100) {
        *w.gradient = *w.value - 3;                                      /* of the loss (w - 3)^2 / 2 */
        ok = sg_client_goes_on(sg_client_end_step(client, &step, NULL)); /* push, wait as the mode says, pull */
    }
    sg_client_close(client);
    return ok && *w.value > 2.999f ? 0 : 1;
}
