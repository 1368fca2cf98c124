/* Cluster files. One that is taken is printed, and what is printed is taken again. */
#include <stdio.h>
#include <stdlib.h>

#include "common/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
const char *__lsan_default_suppressions(void);

/* libfyaml 0.7.12 loses its list of pieces when fy_token_get_text puts together a quoted scalar of more than some eight
 * of them, such as '' written nine times: a few hundred bytes of each file. That our own code frees what it takes from
 * it is seen by the tests of tests/common under AddressSanitizer. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    sg_config *config, *again;
    sg_error err = {.message = ""};
    if (sg_config_parse((const char *)data, n_bytes, "fuzz.yaml", NULL, 0, &config, &err) != SG_OK) {
        SG_ASSERT(err.message[0] != '\0');
        return 0;
    }
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    sg_config_print(config, out);
    fclose(out);
    SG_ASSERT(sg_config_parse(text, text_bytes, "again.yaml", NULL, 0, &again, &err) == SG_OK);
    sg_config_destroy(again);
    sg_config_destroy(config);
    free(text);
    return 0;
}
