/* server/coordinator_reports.c - what the ps report of their parts of the checkpoint that was cut. */
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

void sg_coordinator_reports_take(sg_coordinator *c, uint32_t index, const Shardgrad__V1__SaveReport *report)
{
    sg_coordinator_saved *saved = &c->ps[index].saved;
    if (report == NULL || c->save.phase != SG_COORDINATOR_SAVE_CUT || saved->reported ||
        report->generation != c->generation || report->number != c->save.number)
        return;
    *saved =
        (sg_coordinator_saved){.reported = true,
                               .folder = report->folder,
                               .part = {.ps = index, .header_crc32c = report->header_crc32c, .n_bytes = report->bytes}};
    if (!sg_status_from_number(report->status, &saved->status))
        saved->status = SG_INTERNAL;
    snprintf(saved->message, sizeof saved->message, "%s", sg_coordinator_text(report->message));
}

void sg_coordinator_reports_refused(sg_coordinator *c, uint32_t index, sg_status status, const char *message)
{
    sg_coordinator_saved *saved = &c->ps[index].saved;
    *saved = (sg_coordinator_saved){.reported = true, .status = status};
    snprintf(saved->message, sizeof saved->message, "%s", message);
}

/* The parts of one checkpoint lie in one folder. */
sg_status sg_coordinator_reports_check(const sg_coordinator *c, sg_error *err)
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    uint64_t folder = 0;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        const sg_coordinator_saved *saved = &c->ps[i].saved;
        if (saved->status != SG_OK)
            return sg_error_set(err, saved->status, "%s: %s", sg_coordinator_ps_name(c, i, name), saved->message);
        if (folder != 0 && saved->folder != folder)
            return sg_error_set(err, SG_MISMATCH,
                                "%s sees another folder at its checkpoint.dir than the others: all ps must share one",
                                sg_coordinator_ps_name(c, i, name));
        folder = saved->folder;
    }
    return SG_OK;
}

bool sg_coordinator_reports_all(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (!c->ps[i].saved.reported)
            return false;
    }
    return true;
}
