/* worker/nn/embedding.c - rows of a table, by their numbers. */
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

typedef struct embedding {
    sg_tensor *table;
    const uint32_t *ids;
} embedding;

static void embedding_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const embedding *e = state;
    bool accumulate;
    void *dtable = sg_tape_gradient(tape, e->table, &accumulate);
    if (dtable)
        sg_tape_kernel(tape)->move->scatter(y->shape[0], e->table->shape[0], e->table->shape[1], y->gradient, e->ids,
                                            accumulate, dtable);
}

sg_tensor *sg_embedding_forward(sg_tape *tape, sg_tensor *table, const uint32_t *ids, size_t n_ids)
{
    if (!table)
        return NULL;
    if (table->rank != 2)
        return sg_tape_fail(tape, SG_INVALID, "embedding: table %s; wanted [rows, columns]",
                            sg_shape_describe(table).text);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] >= table->shape[0])
            return sg_tape_fail(tape, SG_INVALID, "embedding: number %u in place %zu; the table has %llu rows, from 0",
                                ids[i], i, (unsigned long long)table->shape[0]);
    sg_tensor *y = sg_tape_output(tape, 2, (uint64_t[]){n_ids, table->shape[1]}, table->needs_gradient);
    ids = sg_tape_bring(tape, ids, n_ids * sizeof *ids);
    if (!y || !sg_tape_may_read(tape, table, 0, table->n_elems))
        return NULL;
    sg_tape_kernel(tape)->move->gather(n_ids, table->shape[1], table->value, ids, y->value);
    embedding state = {.table = table, .ids = ids};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &table,
                                          .n_inputs = 1,
                                          .backward = embedding_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
