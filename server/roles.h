/* server/roles.h - which role every method of a ps asks for. */
#ifndef SG_SERVER_ROLES_H
#define SG_SERVER_ROLES_H

#include "common/security.h"

/* What the table does not name is for admins. */
sg_role sg_role_needed(const char *path);

#endif
